// The flags in a script that launches Megatron: shell text, or the words of a command line. Of the shell it knows
// what such scripts are made of: comments, quotes, line ends behind a backslash, NAME=value and NAME=( words ),
// $NAME, ${NAME}, ${NAME:-default} and ${NAME[@]}. Nothing is executed; what other programs would fill in
// ($(nproc)) is left as it stands and reported where it would be a flag's value.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

struct ScriptWord {
  std::string text;
  int line = 0;
};

struct LaunchFlag {
  std::string name;                 // "--num-layers"
  std::vector<std::string> values;  // the words up to the next flag
  int line = 0;                     // 0: of a command line
};

struct LaunchScript {
  std::vector<LaunchFlag> flags;                 // in order; every occurrence
  std::map<std::string, std::string> variables;  // last value of each

  // The last occurrence, or null.
  const LaunchFlag* find(std::string_view name) const;
};

// Errors name file and line: a quote or a parenthesis that is not closed, no flag at all.
Result<LaunchScript> read_launch_script(std::string_view text, const std::string& name);
// The same of words as the shell hands them over.
Result<LaunchScript> read_launch_words(const std::vector<std::string>& words);

}  // namespace plumbline
