// `completion`: scripts for three shells, made by walking the registered commands and the option table.
#include <memory>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/common/program.h"
#include "engine/config/options.h"

namespace plumbline::cli {
namespace {

struct Described {
  std::string name;
  std::string summary;
  std::string flags;  // separated by blanks
};

std::vector<Described> described_commands() {
  std::vector<Described> out;
  for (const Command& command : commands()) {
    const CommandFlags flags = command_flags(command);
    std::vector<std::string> all = flags.own;
    if (flags.configuration) {
      for (const std::string& flag : all_flags()) all.push_back(flag);
    }
    out.push_back({command.name, command.summary, fmt::format("{}", fmt::join(all, " "))});
  }
  return out;
}

std::string command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::string topic_names() {
  std::vector<std::string> names;
  for (const Topic& topic : topics()) names.push_back(topic.name);
  return fmt::format("{}", fmt::join(names, " "));
}

// {"--schedule", "gpipe 1f1b ..."} for each flag whose value is one of a list.
std::vector<std::pair<std::string, std::string>> flag_values() {
  std::vector<std::pair<std::string, std::string>> out{{"--color", "auto always never"}};
  for (const Option& option : options()) {
    if (option.choices.empty()) continue;
    for (const std::string& flag : option.flags)
      out.emplace_back(flag, fmt::format("{}", fmt::join(option.choices, " ")));
  }
  return out;
}

std::string bash_script() {
  std::string values;
  for (const auto& [flag, words] : flag_values()) {
    values += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n", flag, words);
  }
  std::string flags;
  for (const Described& command : described_commands())
    flags += fmt::format("    {}) flags=\"{}\" ;;\n", command.name, command.flags);
  return fmt::format(R"(# bash completion of {0}; load with: source <({0} completion bash)
_{0}() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" flags=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{1}" -- "$word"))
    return
  fi
  case "$before" in
{2}    help) COMPREPLY=($(compgen -W "{1} {4}" -- "$word")); return ;;
    completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$word")); return ;;
  esac
  case "${{COMP_WORDS[1]}}" in
{3}  esac
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _{0} {0}
)",
                     program_name(), command_names(), values, flags, topic_names());
}

// zsh runs bash completions once bashcompinit is loaded; one generator keeps the two alike.
std::string zsh_script() {
  return fmt::format(
      "#compdef {0}\n# zsh completion; load with: source <({0} completion zsh)\n"
      "autoload -U +X compinit && compinit -u\nautoload -U +X bashcompinit && bashcompinit\n\n{1}",
      program_name(), bash_script());
}

std::string fish_script() {
  const std::string& program = program_name();
  std::string out = fmt::format(
      "# fish completion; load with: {0} completion fish | source\n"
      "complete -c {0} -n __fish_use_subcommand -f\n",
      program);
  const auto values = flag_values();
  for (const Described& command : described_commands()) {
    out += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d '{}'\n", program, command.name,
                       command.summary);
    std::istringstream words(command.flags);
    for (std::string flag; words >> flag;) {
      const bool is_long = flag.compare(0, 2, "--") == 0;
      out += fmt::format("complete -c {} -n '__fish_seen_subcommand_from {}' -{} {}", program, command.name,
                         is_long ? "l" : "s", flag.substr(is_long ? 2 : 1));
      for (const auto& [name, list] : values) {
        if (name == flag) out += fmt::format(" -x -a '{}'", list);
      }
      out += "\n";
    }
  }
  out += fmt::format("complete -c {0} -n '__fish_seen_subcommand_from help' -f -a '{1} {2}'\n", program,
                     command_names(), topic_names());
  return out +
         fmt::format("complete -c {} -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n",
                     program);
}

Run build(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return [shell]() -> int {
    print(*shell == "bash" ? bash_script() : *shell == "zsh" ? zsh_script() : fish_script());
    return kExitHolds;
  };
}

const RegisterCommand kCommand({.name = "completion",
                                .summary = "print a completion script for bash, zsh or fish",
                                .usage = "bash|zsh|fish",
                                .examples = {{"source <(plumbline completion bash)", ""},
                                             {"plumbline completion fish | source", ""}},
                                .build = build});

}  // namespace
}  // namespace plumbline::cli
