// `doctor`: what plumbline finds on this machine, and what it cannot do for want of something.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/doctor_probe.h"
#include "engine/base/json_writer.h"
#include "engine/base/text.h"

namespace plumbline::cli {
namespace {

struct Options {
  bool json = false;
  std::string require;  // comma-separated
};

std::string json_text(const std::vector<Finding>& findings) {
  JsonWriter out;
  out.begin_object().field("plumbline", 1).key("found").begin_object();
  for (const Finding& finding : findings) {
    out.key(finding.name).begin_object();
    out.field("found", finding.found).field("detail", finding.detail).end_object();
  }
  out.end_object().key("environment").begin_array();
  for (const std::string& entry : relevant_environment()) out.value(entry);
  return out.end_array().end_object().text();
}

void print_findings(const std::vector<Finding>& findings) {
  const bool color = color_on_stdout();
  std::size_t widest = 0;
  for (const Finding& finding : findings) widest = std::max(widest, finding.name.size());
  for (const Finding& finding : findings) {
    // Painted after padding: escape sequences take no columns.
    const std::string mark =
        finding.found ? paint("yes", Paint::kGreen, color) : paint("no ", Paint::kYellow, color);
    print_line(fmt::format("{}  {:<{}}  {}", mark, finding.name, widest, finding.detail));
  }
  const std::vector<std::string> environment = relevant_environment();
  print_line(environment.empty() ? "\nno environment variable changes what plumbline does" : "\nenvironment");
  for (const std::string& entry : environment) print_line("  " + entry);
}

// Exit code 75 for the first required thing that is absent.
int check_required(const std::vector<Finding>& findings, std::string_view required) {
  std::vector<std::string> names;
  for (const Finding& finding : findings) names.push_back(finding.name);
  if (required.empty()) return kExitHolds;
  for (const std::string_view name : split(required, ',')) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      const std::string near = nearest(name, names);
      return report(Error{ErrorCode::kUsage,
                          fmt::format("--require '{}' is nothing doctor looks for{}", name,
                                      near.empty() ? "" : fmt::format(" — did you mean '{}'?", near)),
                          {}});
    }
    const Finding& finding = findings[static_cast<std::size_t>(found - names.begin())];
    if (!finding.found)
      return report(Error{ErrorCode::kMissing, fmt::format("{} is missing: {}", name, finding.detail), {}});
  }
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--json", options->json, "one JSON document");
  app.add_option("--require", options->require, "names that must be found, comma-separated");
  return [options]() -> int {
    const std::vector<Finding> findings = probe();
    if (options->json) {
      print_line(json_text(findings));
    } else {
      print_findings(findings);
    }
    return check_required(findings, options->require);
  };
}

const RegisterCommand kCommand(
    {.name = "doctor",
     .summary = "print what is found: engine, LibTorch, CUDA, NCCL, Graphviz, cores",
     .usage = "[--json] [--require NAME,...]",
     .examples = {{"plumbline doctor", ""},
                  {"plumbline doctor --require engine,nccl,gpus", "for CI: exit 75 to skip"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
