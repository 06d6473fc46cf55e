#include "reports/palette.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace plumbline {
namespace {

double luminance(Colour colour) {
  const auto linear = [](std::uint8_t channel) {
    const double c = channel / 255.0;
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(colour.r) + 0.7152 * linear(colour.g) + 0.0722 * linear(colour.b);
}

}  // namespace

Colour kind_colour(WorkKind kind, int chunk, int chunks) {
  constexpr Colour kBase[kWorkKinds] = {{0x00, 0x72, 0xB2}, {0xE6, 0x9F, 0x00}, {0x00, 0x9E, 0x73},
                                        {0xCC, 0x79, 0xA7}, {0xD5, 0x5E, 0x00}, {0x56, 0xB4, 0xE9},
                                        {0x56, 0xB4, 0xE9}, {0x7A, 0x7A, 0x7A}, kRecomputeColour};
  const Colour base = kBase[static_cast<std::size_t>(kind)];
  if (chunks <= 1 || chunk <= 0 || is_communication(kind)) return base;
  // In thousandths, so that every machine rounds alike. The last chunk stops short of white, two chunks well
  // before it.
  const int share = 550 * std::min(chunk, chunks - 1) / std::max(chunks - 1, 2);
  const auto lighter = [&](std::uint8_t c) {
    return static_cast<std::uint8_t>(c + (255 - c) * share / 1000);
  };
  return {lighter(base.r), lighter(base.g), lighter(base.b)};
}

Colour ink_on(Colour background) {
  const double l = luminance(background);
  const bool white = 1.05 / (l + 0.05) > (l + 0.05) / 0.05;
  return white ? Colour{255, 255, 255} : Colour{0, 0, 0};
}

std::string hex_colour(Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.r, colour.g, colour.b);
}

}  // namespace plumbline
