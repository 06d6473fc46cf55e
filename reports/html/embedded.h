#pragma once

#include <string_view>

namespace plumbline {

/// The three files of the HTML report, reports/html/page.{html,css,js}, byte for byte as they were at build
/// time. cmake/embed.cmake turns them into a generated source. The views stay valid for the life of the
/// process.
std::string_view report_page_html();
std::string_view report_page_css();
std::string_view report_page_js();

}  // namespace plumbline
