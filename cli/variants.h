// Several subjects on one command line, for diff and compare: files, names of generators, and flags in quotes; all
// other flags belong to every subject.
//
//   plumbline compare 1f1b zb-h1 my.csv "--generator zb-auto --activation-cap 12" --pp 4 -m 8
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace plumbline::cli {

struct Variants {
  std::vector<std::vector<std::string>> subjects;  // the words and flags of each
  std::vector<std::string> names;                  // of each, as given
  std::vector<std::string> shared;

  // What stands for a subject alone: the shared flags, then its own.
  std::vector<std::string> with_shared(const std::vector<std::string>& subject) const;
};

// A word that names a file stays a file, also where a generator is called like it.
Result<Variants> split_variants(const std::vector<std::string>& words);

}  // namespace plumbline::cli
