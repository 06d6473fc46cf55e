// plumbline_tidy [repository]: prints file:line: rule for each finding. Exit code 0 clean, 1 findings, 2
// usage.
#include <cstdio>
#include <string>

#include "tests/tidy/tidy.h"

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fprintf(stderr, "usage: plumbline_tidy [repository]\n");
    return 2;
  }
  const std::string root = argc == 2 ? argv[1] : ".";
  int files = 0;
  const auto findings = plumbline::tidy::check_tree(root, &files);
  for (const auto& finding : findings) {
    std::printf("%s:%d: %s\n", finding.file.c_str(), finding.line, finding.what.c_str());
  }
  std::printf("tidy: %d files, %zu findings\n", files, findings.size());
  if (files == 0) {
    std::fprintf(stderr, "plumbline_tidy: no sources below '%s'\n", root.c_str());
    return 2;
  }
  return findings.empty() ? 0 : 1;
}
