#include "cli/common/program.h"

#include <algorithm>
#include <exception>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "engine/base/assert.h"
#include "engine/base/text.h"
#include "engine/base/version.h"

namespace plumbline::cli {
namespace {

Program& current_program() {
  static Program program;
  return program;
}

std::string examples_of(const Command& command) {
  if (command.examples.empty()) return {};
  std::size_t longest = 0;
  for (const Example& example : command.examples) longest = std::max(longest, example.command.size());
  // Explanations stand beside short commands and below long ones.
  const bool beside = longest <= 44;
  std::string out = "Examples:\n";
  for (const Example& example : command.examples) {
    if (example.what.empty()) {
      out += fmt::format("  {}\n", example.command);
    } else if (beside) {
      out += fmt::format("  {:<{}}  # {}\n", example.command, longest, example.what);
    } else {
      out += fmt::format("  # {}\n  {}\n", example.what, example.command);
    }
  }
  return out + "\n";
}

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const Command& command) : command_(&command) {}
  std::string make_usage(const CLI::App* app, std::string name) const override {
    if (app->get_parent() != nullptr) return CLI::Formatter::make_usage(app, name);
    return fmt::format("Usage: {} {} {}\n", program_name(), command_->name, command_->usage);
  }
  std::string make_description(const CLI::App* app) const override {
    if (app->get_parent() != nullptr) return CLI::Formatter::make_description(app);
    return fmt::format("{}\n\n{}", command_->summary, examples_of(*command_));
  }

 private:
  const Command* command_;
};

Run set_up(CLI::App& app, const Command& command) {
  auto formatter = std::make_shared<HelpFormatter>(command);
  formatter->column_width(28);
  app.formatter(formatter);
  app.set_help_flag("-h,--help", "print this help");
  // Read before the parse (see color_argument), declared for help and completion.
  app.add_option("--color", "auto, always or never")->expected(1);
  return command.build(app);
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
    for (const std::string& name : option->get_snames()) out.push_back("-" + name);
  }
  return out;
}

// "--out_dir=x" is "--out-dir=x", as torchrun has it. A value keeps its text.
std::string normalized(std::string argument) {
  if (argument.size() < 3 || argument.compare(0, 2, "--") != 0) return argument;
  const std::size_t end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return argument;
}

std::string suggestion(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string near = nearest(name, candidates);
  return near.empty() ? std::string() : fmt::format(" — did you mean '{}'?", near);
}

int leftover_error(const CLI::App& app, const Command& command) {
  const std::vector<std::string> rest = app.remaining();
  const std::string first = rest.empty() ? std::string() : rest.front();
  const bool flag = first.size() > 1 && first[0] == '-';
  std::string text = flag ? fmt::format("unknown flag {}{}", first,
                                        suggestion(first.substr(0, first.find('=')), flags_of(app)))
                          : fmt::format("unexpected argument '{}'", first);
  text += fmt::format("; see '{} {} --help'", program_name(), command.name);
  return report(Error{ErrorCode::kUsage, std::move(text), {}});
}

int run_command(const Command& command, std::vector<std::string> arguments) {
  CLI::App app(command.summary, program_name() + " " + command.name);
  const Run run = set_up(app, command);
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  std::transform(arguments.begin(), end, arguments.begin(), normalized);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the last argument first
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return kExitHolds;
  } catch (const CLI::ExtrasError&) {
    return leftover_error(app, command);
  } catch (const CLI::ParseError& error) {
    return report(Error{ErrorCode::kUsage,
                        fmt::format("{}; see '{} {} --help'", error.what(), program_name(), command.name),
                        {}});
  }
  return run();
}

// What stands before the command word, and where that word is.
struct Front {
  std::size_t command = 0;  // index into the arguments; their number when there is no command
  bool help = false;
  bool version = false;
  std::string unknown;
};

Front read_front(const std::vector<std::string>& arguments) {
  Front front;
  std::size_t i = 1;
  for (; i < arguments.size() && arguments[i].size() > 1 && arguments[i][0] == '-'; ++i) {
    const std::string& argument = arguments[i];
    if (argument == "-h" || argument == "--help") {
      front.help = true;
    } else if (argument == "-V" || argument == "--version") {
      front.version = true;
    } else if (argument == "--color") {
      ++i;
    } else if (argument.compare(0, 8, "--color=") != 0) {
      front.unknown = argument;
      return front;
    }
  }
  front.command = std::min(i, arguments.size());
  return front;
}

// The last --color of the command line. Wanted before anything is parsed, because parsing may print errors.
Status read_color(const std::vector<std::string>& arguments) {
  for (std::size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    std::optional<std::string> mode;
    if (arguments[i] == "--color") mode = i + 1 < arguments.size() ? arguments[i + 1] : std::string();
    if (arguments[i].compare(0, 8, "--color=") == 0) mode = arguments[i].substr(8);
    if (!mode) continue;
    if (*mode != "auto" && *mode != "always" && *mode != "never") {
      return fail(ErrorCode::kUsage, fmt::format("--color '{}' is not one of auto, always, never", *mode));
    }
    set_color_mode(*mode == "auto"     ? ColorMode::kAuto
                   : *mode == "always" ? ColorMode::kAlways
                                       : ColorMode::kNever);
  }
  return {};
}

int unknown_command(const std::string& word) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  const std::string near = suggestion(word, names);
  return report(Error{ErrorCode::kUsage,
                      fmt::format("unknown command '{}'{}", word,
                                  near.empty() ? fmt::format("; see '{} --help'", program_name()) : near),
                      {}});
}

int dispatch(const std::vector<std::string>& arguments) {
  if (const Status color = read_color(arguments); !color) return report(color.error());
  const Front front = read_front(arguments);
  if (!front.unknown.empty()) {
    return report(
        Error{ErrorCode::kUsage,
              fmt::format("unknown flag {} before a command; see '{} --help'", front.unknown, program_name()),
              {}});
  }
  if (front.version) {
    print_line(fmt::format("{} {}", program_name(), version()));
    return kExitHolds;
  }
  if (front.help) {
    print(program_help());
    return kExitHolds;
  }
  if (front.command >= arguments.size()) {
    hint(program_help());
    return kExitUsage;
  }
  const std::string& word = arguments[front.command];
  const Command* command = find_command(word);
  if (command == nullptr) return unknown_command(word);
  if (command->delegate) return command->delegate(arguments);
  return run_command(*command,
                     {arguments.begin() + static_cast<std::ptrdiff_t>(front.command) + 1, arguments.end()});
}

}  // namespace

const std::string& program_name() { return current_program().name; }

std::string program_help() {
  std::string out =
      fmt::format("{}\n\nUsage: {} COMMAND [CONFIG] [flags]\n\n", current_program().summary, program_name());
  Table table{{"Commands", ""}, {}};
  for (const Command& command : commands()) table.rows.push_back({"  " + command.name, command.summary});
  out += layout(table);
  if (!topics().empty()) {
    Table pages{{"Help topics", ""}, {}};
    for (const Topic& topic : topics()) pages.rows.push_back({"  " + topic.name, topic.summary});
    out += "\n" + layout(pages);
  }
  out += fmt::format("\n'{} COMMAND --help' shows examples and flags. Options before the command:\n",
                     program_name());
  return out + "  -h, --help    -V, --version    --color auto|always|never\n";
}

std::string command_help(const Command& command) {
  CLI::App app(command.summary, program_name() + " " + command.name);
  const Run run = set_up(app, command);
  return app.help();
}

CommandFlags command_flags(const Command& command) {
  if (command.delegate) return {{"--help"}, true};
  CLI::App app;
  const Run run = set_up(app, command);
  return {flags_of(app), app.get_allow_extras()};
}

int run_program(const Program& program, int argc, const char* const* argv) {
  current_program() = program;
  std::string line = program.name;
  for (int i = 1; i < argc; ++i) line += std::string(" ") + argv[i];
  set_reproduction(std::move(line));  // a command that knows a fuller one replaces it
  int code = kExitInternal;
  try {
    code = dispatch({argv, argv + argc});
  } catch (const std::exception& error) {
    hint(fmt::format("{}: internal error: {}", program.name, error.what()));
  } catch (...) {
    hint(fmt::format("{}: internal error: an exception that is none of the library's", program.name));
  }
  if (!finish_output() && code == kExitHolds) {
    return report(Error{ErrorCode::kIo, "standard output could not be written — is the disk full?", {}});
  }
  return code;
}

}  // namespace plumbline::cli
