// `help`: pages that are compiled in, and the help of commands.
#include <algorithm>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/common/program.h"
#include "engine/base/text.h"
#include "engine/config/explain.h"

namespace plumbline::cli {
namespace {

int show(const std::string& name) {
  if (name.empty()) {
    print(program_help());
    return kExitHolds;
  }
  std::vector<std::string> known;
  for (const Topic& topic : topics()) {
    if (topic.name == name) {
      print(topic.text());
      return kExitHolds;
    }
    known.push_back(topic.name);
  }
  const Command* command = find_command(name);
  if (command != nullptr) {
    if (command->delegate) return command->delegate({program_name(), name, "--help"});
    print(command_help(*command));
    return kExitHolds;
  }
  for (const Command& entry : commands()) known.push_back(entry.name);
  const std::string near = nearest(name, known);
  return report(Error{ErrorCode::kUsage,
                      fmt::format("no help on '{}'{}", name,
                                  near.empty() ? "; 'plumbline help' lists commands and topics"
                                               : fmt::format(" — did you mean '{}'?", near)),
                      {}});
}

Run build(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  app.add_option("topic", *name, "a command or a topic");
  return [name]() -> int { return show(*name); };
}

const RegisterCommand kCommand(
    {.name = "help",
     .summary = "explain a command or a topic",
     .usage = "[COMMAND|TOPIC]",
     .examples = {{"plumbline help config", "every option with its type, default and rule"},
                  {"plumbline help exit-codes", "what a command's exit code says"}},
     .build = build});

const RegisterTopic kConfigTopic({"config", "configuration files, environment and flags", config_docs});
const RegisterTopic kExitCodesTopic({"exit-codes", "what the exit code of a command says", exit_codes_docs});

}  // namespace
}  // namespace plumbline::cli
