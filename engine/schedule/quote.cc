#include "engine/schedule/quote.h"

#include <iterator>

#include <fmt/format.h>

namespace plumbline {

std::string quote(std::string_view text) {
  constexpr std::size_t kLimit = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kLimit)) {
    const bool printable = c >= ' ' && c <= '~';
    if (printable) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kLimit) out += "...";
  return out + "'";
}

}  // namespace plumbline
