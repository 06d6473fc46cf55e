#include "engine/base/units.h"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "engine/base/text.h"

namespace plumbline {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 8> kByteUnits{{{"", 1.0},
                                          {"B", 1.0},
                                          {"KiB", 1024.0},
                                          {"MiB", 1048576.0},
                                          {"GiB", 1073741824.0},
                                          {"KB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9}}};
constexpr std::array<Unit, 5> kTimeUnits{{{"", 1.0}, {"ns", 1.0}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};

// Splits "1.5ms" into its number and its unit's factor. `what` names the quantity in the message.
template <std::size_t N>
Result<double> parse_quantity(std::string_view text, const std::array<Unit, N>& units, std::string_view what,
                              std::string_view examples) {
  const std::string_view trimmed = trim(text);
  std::size_t end = 0;
  while (end < trimmed.size() && ((trimmed[end] >= '0' && trimmed[end] <= '9') || trimmed[end] == '.')) ++end;
  const Result<double> number = parse_double(trimmed.substr(0, end));
  if (number) {
    const std::string_view name = trim(trimmed.substr(end));
    for (const Unit& unit : units) {
      if (unit.name == name) return *number * unit.factor;
    }
  }
  return fail(ErrorCode::kParse, fmt::format("'{}' is not a {} (examples: {})", text, what, examples));
}

Result<std::int64_t> whole(Result<double> value, std::string_view text, std::string_view unit) {
  if (!value) return tl::unexpected(value.error());
  if (*value > 9.0e18) return fail(ErrorCode::kParse, fmt::format("'{}' is too large", text));
  const double rounded = std::nearbyint(*value);
  if (std::abs(rounded - *value) > 1e-6 * std::max(1.0, std::abs(rounded))) {
    return fail(ErrorCode::kParse, fmt::format("'{}' is not a whole number of {}", text, unit));
  }
  return static_cast<std::int64_t>(rounded);
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  return whole(parse_quantity(text, kByteUnits, "size", "4096, 64KiB, 2MiB, 1GB"), text, "bytes");
}

Result<Nanoseconds> parse_duration(std::string_view text) {
  return whole(parse_quantity(text, kTimeUnits, "duration", "250ns, 20us, 1.5ms, 2s"), text, "nanoseconds");
}

Result<double> parse_bandwidth(std::string_view text) {
  std::string_view rate = trim(text);
  if (rate.size() > 2 && rate.substr(rate.size() - 2) == "/s") rate.remove_suffix(2);
  const Result<double> value = parse_quantity(rate, kByteUnits, "bandwidth", "10GB/s, 900MB/s");
  if (!value)
    return fail(ErrorCode::kParse, fmt::format("'{}' is not a bandwidth (examples: 10GB/s, 900MB/s)", text));
  if (*value <= 0.0) return fail(ErrorCode::kParse, fmt::format("bandwidth '{}' must be above zero", text));
  return *value;
}

std::string format_bytes(Bytes bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes < 10 * 1024) return fmt::format("{} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", value / 1024.0);
  if (bytes < 1024LL * 1024 * 1024) return fmt::format("{:.1f} MiB", value / 1048576.0);
  return fmt::format("{:.2f} GiB", value / 1073741824.0);
}

std::string format_duration(Nanoseconds duration) {
  const double value = static_cast<double>(duration);
  if (duration < 10'000) return fmt::format("{} ns", duration);
  if (duration < 10'000'000) return fmt::format("{:.2f} us", value / 1e3);
  if (duration < 10'000'000'000) return fmt::format("{:.2f} ms", value / 1e6);
  return fmt::format("{:.2f} s", value / 1e9);
}

Nanoseconds transfer_time(Bytes bytes, double bytes_per_second) {
  if (bytes_per_second <= 0.0 || bytes <= 0) return 0;
  return static_cast<Nanoseconds>(std::ceil(static_cast<double>(bytes) * 1e9 / bytes_per_second));
}

}  // namespace plumbline
