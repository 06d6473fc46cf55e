// What both executables do: find the command, parse its options, run it, and turn whatever happens into an
// exit code. A main() is one call of run_program().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/common/command.h"

namespace plumbline::cli {

struct Program {
  std::string name;     // "plumbline"
  std::string summary;  // one line for the help
};

// Never throws: an exception that escapes a command is an internal error, exit code 101.
int run_program(const Program& program, int argc, const char* const* argv);

// The name given to run_program().
const std::string& program_name();

std::string program_help();
// Examples first, then usage and options. Only for commands with `build`.
std::string command_help(const Command& command);

// The long and short flags of a command, and whether it takes a configuration's flags besides. A delegate
// does.
struct CommandFlags {
  std::vector<std::string> own;
  bool configuration = false;
};
CommandFlags command_flags(const Command& command);

}  // namespace plumbline::cli
