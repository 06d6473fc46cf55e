// Times and sizes with their units. Virtual time is integer nanoseconds everywhere; sizes are bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace plumbline {

using Nanoseconds = std::int64_t;
using Bytes = std::int64_t;

// "64", "64B", "2KiB", "2MiB", "1GiB", "2KB" (1000), "2MB", "2GB"; a fraction is accepted when the result is whole.
Result<Bytes> parse_bytes(std::string_view text);

// "250ns", "20us", "1.5ms", "2s"; a bare number is nanoseconds.
Result<Nanoseconds> parse_duration(std::string_view text);

// "10GB/s", "900MB/s", "100MiB/s": bytes per second.
Result<double> parse_bandwidth(std::string_view text);

// Human forms: "2.0 MiB", "1.50 ms".
std::string format_bytes(Bytes bytes);
std::string format_duration(Nanoseconds duration);

// Time that `bytes` take at `bytes_per_second`, rounded up; 0 bytes_per_second means infinitely fast.
Nanoseconds transfer_time(Bytes bytes, double bytes_per_second);

}  // namespace plumbline
