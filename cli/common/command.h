// Subcommands register themselves: one file a command, holding one static object. Nothing else names them;
// help, completion and dispatch walk the registry. Both executables are made this way (cli/ and cli/engine/).
//
// To add a command, write cli/NAME.cc:
//
//   namespace plumbline::cli {
//   namespace {
//   Run build(CLI::App& app) {
//     struct Options { std::string out; };
//     auto options = std::make_shared<Options>();         // outlives the parse: the run function holds it
//     app.add_option("--out", options->out, "folder for the result");
//     auto config = add_config_arguments(app);            // only for commands that take a configuration
//     return [=]() -> int {
//       const Result<ValidConfig> loaded = config->load(Purpose::kCheck);
//       if (!loaded) return report(loaded.error());
//       ...
//       return kExitHolds;
//     };
//   }
//   const RegisterCommand kCommand({.name = "name", .summary = "one line", .usage = "[CONFIG] [flags]",
//                                   .examples = {{"plumbline name cfg.toml", "what it does"}},
//                                   .build = build});
//   }  // namespace
//   }  // namespace plumbline::cli
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace plumbline::cli {

// Runs the command with the parsed options; returns the exit code.
using Run = std::function<int()>;

struct Example {
  std::string command;
  std::string what;
};

struct Command {
  std::string name;
  std::string summary;            // one line, no full stop
  std::string usage;              // what follows the name, "[CONFIG] [flags]"
  std::vector<Example> examples;  // shown first in the help
  // Adds the options of the command to `app` and returns what runs it. Called once a process, and for
  // completion.
  std::function<Run(CLI::App& app)> build = nullptr;
  // Instead of `build`: takes the whole command line unparsed, from argv[0] on (see exec_engine.h).
  std::function<int(const std::vector<std::string>& arguments)> delegate = nullptr;
};

class RegisterCommand {
 public:
  explicit RegisterCommand(Command command);
};

// A page of `plumbline help TOPIC` that belongs to no command.
struct Topic {
  std::string name;
  std::string summary;
  std::function<std::string()> text;
};

class RegisterTopic {
 public:
  explicit RegisterTopic(Topic topic);
};

// Sorted by name; the order of static initialization must not show.
const std::vector<Command>& commands();
const std::vector<Topic>& topics();
const Command* find_command(std::string_view name);

}  // namespace plumbline::cli
