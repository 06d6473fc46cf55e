// A command line as a person would type it.
#pragma once

#include <string>
#include <vector>

namespace plumbline {

// The words with blanks between; those that a shell would take apart are quoted.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace plumbline
