#include "reports/markup.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline {
namespace {

struct Scale {
  Nanoseconds unit;
  std::string_view name;
};

Scale scale_of(Nanoseconds time) {
  if (time >= 1'000'000'000) return {1'000'000'000, "s"};
  if (time >= 1'000'000) return {1'000'000, "ms"};
  if (time >= 1'000) return {1'000, "us"};
  return {1, "ns"};
}

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string escape_dot(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    }
  }
  return out;
}

std::vector<Nanoseconds> axis_ticks(Nanoseconds span, int most) {
  if (span <= 0) return {0};
  Nanoseconds step = 1;
  for (int k = 0; span / step >= std::max(most, 2); ++k)
    step = k % 3 == 1 ? step / 2 * 5 : step * 2;  // 1 2 5 10
  std::vector<Nanoseconds> ticks;
  for (Nanoseconds t = 0; t <= span; t += step) ticks.push_back(t);
  return ticks;
}

std::string axis_label(Nanoseconds time, Nanoseconds step) {
  if (time == 0) return "0";
  const Scale scale = scale_of(time);
  int digits = 0;
  for (Nanoseconds unit = scale.unit; unit > step && unit > 1 && digits < 3; unit /= 10) ++digits;
  std::string text =
      fmt::format("{:.{}f}", static_cast<double>(time) / static_cast<double>(scale.unit), digits);
  if (digits > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return fmt::format("{} {}", text, scale.name);
}

}  // namespace plumbline
