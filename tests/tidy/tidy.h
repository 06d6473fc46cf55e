#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plumbline::tidy {

/// A broken rule at a place. `line` counts from 1; 0 means the file as a whole.
struct Finding {
  std::string file;
  int line = 0;
  std::string what;
};

/// Checks one source file. `file` is its path below the repository root and decides which rules apply.
/// The rules, and the comments that grant an exception, are described in docs/testing.md.
std::vector<Finding> check_file(std::string_view file, std::string_view content);

/// Checks every .h and .cc file of the repository at `root`, in path order. `files` receives how many were
/// read.
std::vector<Finding> check_tree(const std::string& root, int* files);

}  // namespace plumbline::tidy
