// How each type of option is written. print() gives the one canonical text, read() accepts it and its
// variants, and read(print(v)) == v for every value a RunConfig may hold. read() leaves the target alone when
// it fails.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/names.h"
#include "engine/config/run_config.h"

namespace plumbline {

// What a TOML value of the option may be, and how documentation calls it.
enum class OptionType : std::uint8_t {
  kInteger,    // TOML integer
  kSeed,       // TOML integer, or a string: decimal or 0x hexadecimal
  kNumber,     // TOML integer or float
  kSwitch,     // TOML boolean; as a flag it takes no value
  kText,       // TOML string
  kChoice,     // TOML string, one of a list
  kSize,       // TOML integer (bytes) or string ("2MiB")
  kDuration,   // TOML integer (nanoseconds) or string ("20us")
  kBandwidth,  // TOML string ("10GB/s")
  kDurations,  // one duration or a TOML array of them; comma-separated as a flag
  kList,       // a TOML string or array of strings; comma-separated, or the flag repeated
};
std::string_view type_name(OptionType type);

namespace option_text {

using Links = std::map<std::pair<Rank, Rank>, LinkConfig>;

struct IntegerText {
  static constexpr OptionType kType = OptionType::kInteger;
  static Status read(std::string_view text, int& target);
  static std::string print(int value);
};

struct LongText {  // 64 bits
  static constexpr OptionType kType = OptionType::kInteger;
  static Status read(std::string_view text, std::int64_t& target);
  static std::string print(std::int64_t value);
};

struct SeedText {
  static constexpr OptionType kType = OptionType::kSeed;
  static Status read(std::string_view text, std::uint64_t& target);
  static std::string print(std::uint64_t value);
};

struct NumberText {
  static constexpr OptionType kType = OptionType::kNumber;
  static Status read(std::string_view text, double& target);
  static std::string print(double value);
};

struct SwitchText {  // true, false, 1, 0
  static constexpr OptionType kType = OptionType::kSwitch;
  static Status read(std::string_view text, bool& target);
  static std::string print(bool value);
};

struct PlainText {  // anything without control characters
  static constexpr OptionType kType = OptionType::kText;
  static Status read(std::string_view text, std::string& target);
  static std::string print(const std::string& value);
};

struct SizeText {
  static constexpr OptionType kType = OptionType::kSize;
  static Status read(std::string_view text, Bytes& target);
  static std::string print(Bytes value);
};

struct DurationText {
  static constexpr OptionType kType = OptionType::kDuration;
  static Status read(std::string_view text, Nanoseconds& target);
  static std::string print(Nanoseconds value);
};

struct BandwidthText {
  static constexpr OptionType kType = OptionType::kBandwidth;
  static Status read(std::string_view text, double& target);
  static std::string print(double value);
};

struct DurationsText {  // "1ms,2ms": at least one
  static constexpr OptionType kType = OptionType::kDurations;
  static Status read(std::string_view text, std::vector<Nanoseconds>& target);
  static std::string print(const std::vector<Nanoseconds>& value);
};

struct SlowText {  // "rank=3:1.2": rank 3 computes 1.2 times as long; a repeated rank takes its last factor
  static constexpr OptionType kType = OptionType::kList;
  static Status read(std::string_view text, std::map<Rank, double>& target);
  static std::string print(const std::map<Rank, double>& value);
};

struct LinksText {  // "0-1:10GB/s" or "0-1:10GB/s:5us"; a repeated pair takes its last link
  static constexpr OptionType kType = OptionType::kList;
  static Status read(std::string_view text, Links& target);
  static std::string print(const Links& value);
};

struct RampText {  // "16,8,300000": first global batch, increment, samples of the ramp; or nothing
  static constexpr OptionType kType = OptionType::kList;
  static Status read(std::string_view text, std::vector<std::int64_t>& target);
  static std::string print(const std::vector<std::int64_t>& value);
};

struct OverflowText {  // "rank=2:step=5"
  static constexpr OptionType kType = OptionType::kList;
  static Status read(std::string_view text, std::vector<OverflowFault>& target);
  static std::string print(const std::vector<OverflowFault>& value);
};

// The fields of a SimConfig that describe a send: "rendezvous", "always-eager", "eager:2MiB", "eager:2MiB:8" (at
// most 8 messages), "eager:h100" (the buffers of a kind of machine).
struct SendText {
  static constexpr OptionType kType = OptionType::kText;
  static Status read(std::string_view text, SimConfig& target);
  static std::string print(const SimConfig& value);
};

// How a SimConfig's groups progress: "auto", "documented", or parts joined by "+": "batched" or "batched-across",
// and "split:63" or "split-restart:63".
struct ProgressText {
  static constexpr OptionType kType = OptionType::kText;
  static Status read(std::string_view text, SimConfig& target);
  static std::string print(const SimConfig& value);
};

// The message for a word that is not in a list; names the list and the nearest word.
tl::unexpected<Error> not_a_choice(std::string_view text, const std::vector<std::string>& choices);

template <typename Enum>
struct ChoiceText {
  static constexpr OptionType kType = OptionType::kChoice;
  static Status read(std::string_view text, Enum& target) {
    const std::optional<Enum> value = enum_from_name<Enum>(text);
    if (!value) return not_a_choice(text, names_of<Enum>());
    target = *value;
    return {};
  }
  static std::string print(Enum value) { return std::string(name(value)); }
};

}  // namespace option_text
}  // namespace plumbline
