#include "cli/common/version.h"

#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/common/program.h"
#include "engine/base/json_writer.h"
#include "engine/base/version.h"

namespace plumbline::cli {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts& registered() {
  static Facts facts;
  return facts;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown";
#endif
}

Run build(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "one JSON document");
  return [json]() -> int {
    if (!*json) {
      for (const auto& [name, value] : version_facts()) print_line(fmt::format("{:<12} {}", name, value));
      return kExitHolds;
    }
    JsonWriter out;
    out.begin_object().field("plumbline", 1).field("executable", program_name());
    for (const auto& [name, value] : version_facts()) out.field(name, value);
    print_line(out.end_object().text());
    return kExitHolds;
  };
}

const RegisterCommand kCommand({.name = "version",
                                .summary = "print the version and how this executable was built",
                                .usage = "[--json]",
                                .examples = {{"plumbline version --json", "for scripts"}},
                                .build = build});

}  // namespace

RegisterVersionFact::RegisterVersionFact(std::string name, std::string value) {
  registered().emplace_back(std::move(name), std::move(value));
  std::sort(registered().begin(), registered().end());
}

Facts version_facts() {
  Facts facts{{"version", std::string(release_version())},
              {"revision", std::string(revision())},
              {"compiler", compiler()}};
  facts.insert(facts.end(), registered().begin(), registered().end());
  return facts;
}

}  // namespace plumbline::cli
