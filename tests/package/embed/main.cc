// Prints the embedded page that its argument names, so that run.cmake can compare it with the file.
#include <cstdio>
#include <string_view>

#include "reports/html/embedded.h"

int main(int argc, char** argv) {
  const std::string_view kind = argc == 2 ? argv[1] : "";
  const std::string_view page = kind == "html"  ? plumbline::report_page_html()
                                : kind == "css" ? plumbline::report_page_css()
                                                : plumbline::report_page_js();
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}
