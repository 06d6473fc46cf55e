// Verdicts in the forms that continuous integration reads: JUnit's XML, and GitHub's workflow commands.
#pragma once

#include <string>
#include <vector>

#include "sim/verdict.h"

namespace plumbline {

// Where a verdict's subject stands; empty and 0 where it has no place.
struct SubjectPlace {
  std::string file;
  int line = 0;
};

// A document with one test suite a verdict: a test case for what does not depend on a mode, and one a mode.
class JunitReport {
 public:
  void add(const Verdict& verdict, const SubjectPlace& place);
  std::string text() const;

 private:
  std::string suites_;
  int tests_ = 0;
  int failures_ = 0;
};

// One "::error" command a finding, each a line; empty when the verdict holds.
std::string github_annotations(const Verdict& verdict, const SubjectPlace& place);

}  // namespace plumbline
