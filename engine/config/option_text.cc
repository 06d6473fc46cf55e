#include "engine/config/option_text.h"

#include <array>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/text.h"

namespace plumbline {

std::string_view type_name(OptionType type) {
  constexpr std::array<std::string_view, 11> kNames{"integer",   "seed",      "number", "switch",
                                                    "text",      "choice",    "size",   "duration",
                                                    "bandwidth", "durations", "list"};
  return kNames[static_cast<std::size_t>(type)];
}

namespace option_text {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

// The value in the largest unit that leaves it whole; the units end with factor 1.
template <std::size_t N>
std::string in_largest_unit(std::int64_t value, const std::array<Unit, N>& units) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0) return fmt::format("{}{}", value / unit.factor, unit.name);
  }
  return fmt::format("{}{}", value, units.back().name);
}

// Shortest decimal digits that read back exactly, without an exponent.
std::string fixed(double value) {
  std::array<char, 400> buffer{};
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  PL_ASSERT(error == std::errc());
  return std::string(buffer.data(), end);
}

// Calls item(text) -> Status for each entry of a comma-separated list; an empty text is an empty list.
template <typename Item>
Status each(std::string_view text, const Item& item) {
  if (trim(text).empty()) return {};
  for (const std::string_view part : split(text, ',')) PL_TRY(item(trim(part)));
  return {};
}

// Reads "name=NUMBER".
Result<int> named_integer(std::string_view text, std::string_view key) {
  const bool named = text.size() > key.size() && text.substr(0, key.size()) == key && text[key.size()] == '=';
  int value = 0;
  if (!named || !IntegerText::read(text.substr(key.size() + 1), value)) {
    return fail(ErrorCode::kParse, fmt::format("'{}' is not of the form {}=NUMBER", text, key));
  }
  return value;
}

template <typename Value>
Status store(Result<Value> parsed, Value& target) {
  if (!parsed) return tl::unexpected(parsed.error());
  target = *std::move(parsed);
  return {};
}

}  // namespace

Status IntegerText::read(std::string_view text, int& target) {
  const Result<std::int64_t> value = parse_integer(text);
  if (!value) return tl::unexpected(value.error());
  if (*value < std::numeric_limits<int>::min() || *value > std::numeric_limits<int>::max()) {
    return fail(ErrorCode::kParse, fmt::format("'{}' does not fit in 32 bits", text));
  }
  target = static_cast<int>(*value);
  return {};
}
std::string IntegerText::print(int value) { return fmt::format("{}", value); }

Status LongText::read(std::string_view text, std::int64_t& target) {
  return store(parse_integer(text), target);
}
std::string LongText::print(std::int64_t value) { return fmt::format("{}", value); }

Status SeedText::read(std::string_view text, std::uint64_t& target) {
  return store(parse_unsigned(text), target);
}
std::string SeedText::print(std::uint64_t value) { return fmt::format("{}", value); }

Status NumberText::read(std::string_view text, double& target) { return store(parse_double(text), target); }
std::string NumberText::print(double value) { return fmt::format("{}", value); }

Status SwitchText::read(std::string_view text, bool& target) {
  const bool yes = text == "true" || text == "1";
  if (!yes && text != "false" && text != "0") {
    return fail(ErrorCode::kParse, fmt::format("'{}' is not true or false", text));
  }
  target = yes;
  return {};
}
std::string SwitchText::print(bool value) { return value ? "true" : "false"; }

Status PlainText::read(std::string_view text, std::string& target) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return fail(ErrorCode::kParse, "the text holds a control character — remove it");
    }
  }
  target = std::string(text);
  return {};
}
std::string PlainText::print(const std::string& value) { return value; }

Status SizeText::read(std::string_view text, Bytes& target) { return store(parse_bytes(text), target); }
std::string SizeText::print(Bytes value) {
  constexpr std::array<Unit, 4> kUnits{{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}};
  return in_largest_unit(value, kUnits);
}

Status DurationText::read(std::string_view text, Nanoseconds& target) {
  return store(parse_duration(text), target);
}
std::string DurationText::print(Nanoseconds value) {
  constexpr std::array<Unit, 4> kUnits{{{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}}};
  return in_largest_unit(value, kUnits);
}

Status BandwidthText::read(std::string_view text, double& target) {
  return store(parse_bandwidth(text), target);
}
std::string BandwidthText::print(double value) {
  constexpr std::array<Unit, 3> kUnits{{{"GB/s", 1'000'000'000}, {"MB/s", 1'000'000}, {"KB/s", 1'000}}};
  for (const Unit& unit : kUnits) {
    const std::string text = fixed(value / static_cast<double>(unit.factor)) + std::string(unit.name);
    const Result<double> back = parse_bandwidth(text);
    // "0.9GB/s" reads worse than "900MB/s", and a rounded quotient would not come back as the same number.
    if (value >= static_cast<double>(unit.factor) && back && *back == value && text.size() <= 12) return text;
  }
  return fixed(value) + "B/s";
}

Status DurationsText::read(std::string_view text, std::vector<Nanoseconds>& target) {
  std::vector<Nanoseconds> all;
  PL_TRY(each(text, [&](std::string_view part) { return DurationText::read(part, all.emplace_back()); }));
  if (all.empty())
    return fail(ErrorCode::kParse, "the list is empty — give one duration for all stages, or one a stage");
  target = std::move(all);
  return {};
}
std::string DurationsText::print(const std::vector<Nanoseconds>& value) {
  std::string out;
  for (const Nanoseconds duration : value) out += (out.empty() ? "" : ",") + DurationText::print(duration);
  return out;
}

Status SlowText::read(std::string_view text, std::map<Rank, double>& target) {
  std::map<Rank, double> all;
  PL_TRY(each(text, [&](std::string_view part) -> Status {
    const std::size_t colon = part.find(':');
    const Result<int> rank = named_integer(part.substr(0, colon), "rank");
    const Result<double> factor = parse_double(colon == std::string_view::npos ? "" : part.substr(colon + 1));
    if (!rank || !factor) {
      return fail(ErrorCode::kParse,
                  fmt::format("'{}' is not of the form rank=NUMBER:FACTOR (example: rank=3:1.2)", part));
    }
    all[*rank] = *factor;
    return {};
  }));
  target = std::move(all);
  return {};
}
std::string SlowText::print(const std::map<Rank, double>& value) {
  std::string out;
  for (const auto& [rank, factor] : value)
    out += fmt::format("{}rank={}:{}", out.empty() ? "" : ",", rank, factor);
  return out;
}

Status LinksText::read(std::string_view text, Links& target) {
  Links all;
  PL_TRY(each(text, [&](std::string_view part) -> Status {
    const std::vector<std::string_view> fields = split(part, ':');
    const std::vector<std::string_view> ends = split(fields[0], '-');
    Rank a = 0;
    Rank b = 0;
    LinkConfig link;
    link.latency = -1;  // "as every link", until the validator knows that value
    const bool shaped = (fields.size() == 2 || fields.size() == 3) && ends.size() == 2 &&
                        IntegerText::read(ends[0], a) && IntegerText::read(ends[1], b) &&
                        BandwidthText::read(fields[1], link.bytes_per_second) &&
                        (fields.size() == 2 || DurationText::read(fields[2], link.latency));
    if (!shaped) {
      return fail(
          ErrorCode::kParse,
          fmt::format("'{}' is not of the form RANK-RANK:BANDWIDTH[:LATENCY] (example: 0-1:10GB/s:5us)",
                      part));
    }
    all[{std::min(a, b), std::max(a, b)}] = link;
    return {};
  }));
  target = std::move(all);
  return {};
}
std::string LinksText::print(const Links& value) {
  std::string out;
  for (const auto& [ends, link] : value) {
    out += fmt::format("{}{}-{}:{}", out.empty() ? "" : ",", ends.first, ends.second,
                       BandwidthText::print(link.bytes_per_second));
    if (link.latency >= 0) out += ":" + DurationText::print(link.latency);
  }
  return out;
}

Status RampText::read(std::string_view text, std::vector<std::int64_t>& target) {
  std::vector<std::int64_t> all;
  PL_TRY(each(text, [&](std::string_view part) { return LongText::read(part, all.emplace_back()); }));
  if (!all.empty() && all.size() != 3) {
    return fail(
        ErrorCode::kParse,
        fmt::format("has {} numbers; a ramp-up is three: the first global batch, its increment and the "
                    "samples of the ramp (example: 16,8,300000)",
                    all.size()));
  }
  target = std::move(all);
  return {};
}
std::string RampText::print(const std::vector<std::int64_t>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}

Status OverflowText::read(std::string_view text, std::vector<OverflowFault>& target) {
  std::vector<OverflowFault> all;
  PL_TRY(each(text, [&](std::string_view part) -> Status {
    const std::size_t colon = part.find(':');
    const Result<int> rank = named_integer(part.substr(0, colon), "rank");
    const Result<int> step =
        named_integer(colon == std::string_view::npos ? "" : part.substr(colon + 1), "step");
    if (!rank || !step) {
      return fail(
          ErrorCode::kParse,
          fmt::format("'{}' is not of the form rank=NUMBER:step=NUMBER (example: rank=2:step=5)", part));
    }
    all.push_back({*rank, *step});
    return {};
  }));
  target = std::move(all);
  return {};
}
std::string OverflowText::print(const std::vector<OverflowFault>& value) {
  std::string out;
  for (const OverflowFault& fault : value) {
    out += fmt::format("{}rank={}:step={}", out.empty() ? "" : ",", fault.rank, fault.iteration);
  }
  return out;
}

Status SendText::read(std::string_view text, SimConfig& target) {
  const std::vector<std::string_view> parts = split(text, ':');
  const std::optional<SendCompletion> kind = enum_from_name<SendCompletion>(parts[0]);
  if (!kind) return not_a_choice(parts[0], names_of<SendCompletion>());
  Bytes bytes = 0;
  int messages = 0;
  EagerLinks links = EagerLinks::kSame;
  if (parts.size() > 1) {
    if (*kind != SendCompletion::kEager)
      return fail(ErrorCode::kParse, fmt::format("'{}' takes no size — only eager:SIZE does", parts[0]));
    const std::optional<EagerLinks> machine = enum_from_name<EagerLinks>(parts[1]);
    if (machine && *machine != EagerLinks::kSame) {
      links = *machine;
    } else {
      PL_TRY(SizeText::read(parts[1], bytes));
    }
  }
  if (parts.size() > 2) {
    if (parts.size() > 3 || links != EagerLinks::kSame)
      return fail(ErrorCode::kParse, fmt::format("'{}' reads eager:SIZE:MESSAGES at most", text));
    PL_TRY(IntegerText::read(parts[2], messages));
    if (messages < 1)
      return fail(ErrorCode::kParse, fmt::format("{} messages — at least 1, or leave it out", messages));
  }
  target.send = *kind;
  target.eager_bytes = bytes;
  target.eager_messages = messages;
  target.eager_links = links;
  return {};
}
std::string SendText::print(const SimConfig& value) {
  const std::string word(name(value.send));
  if (value.send != SendCompletion::kEager) return word;
  if (value.eager_links != EagerLinks::kSame) return fmt::format("{}:{}", word, name(value.eager_links));
  if (value.eager_messages > 0)
    return fmt::format("{}:{}:{}", word, SizeText::print(value.eager_bytes), value.eager_messages);
  return value.eager_bytes != 0 ? word + ":" + SizeText::print(value.eager_bytes) : word;
}

Status ProgressText::read(std::string_view text, SimConfig& target) {
  GroupProgress progress;
  bool automatic = false;
  for (const std::string_view part : split(text, '+')) {
    const std::size_t colon = part.find(':');
    const std::string_view word = part.substr(0, colon);
    const bool split_word = word == "split" || word == "split-restart";
    const bool alone = word == "auto" || word == "documented";
    if (split_word != (colon != std::string_view::npos) || (alone && text != word))
      return fail(ErrorCode::kParse,
                  fmt::format("'{}' reads auto, documented, batched, batched-across, split:N or "
                              "split-restart:N, the last two joined to the others by '+'",
                              text));
    if (word == "auto") {
      automatic = true;
    } else if ((word == "batched" || word == "batched-across") && progress.batch == 0) {
      progress.batch = 8;
      progress.batch_epochs = word == "batched";
    } else if (split_word && progress.plan_items == 0) {
      PL_TRY(IntegerText::read(part.substr(colon + 1), progress.plan_items));
      if (progress.plan_items < 1)
        return fail(ErrorCode::kParse, fmt::format("'{}' — a kernel holds at least 1 item", part));
      progress.plan_restart = word == "split-restart";
    } else if (!alone) {
      return not_a_choice(word,
                          {"auto", "documented", "batched", "batched-across", "split", "split-restart"});
    }
  }
  target.progress = progress;
  target.progress_auto = automatic;
  return {};
}
std::string ProgressText::print(const SimConfig& value) {
  if (value.progress_auto) return "auto";
  const GroupProgress& progress = value.progress;
  std::string out;
  if (progress.batch > 0) out = progress.batch_epochs ? "batched" : "batched-across";
  if (progress.plan_items > 0) {
    out += fmt::format("{}{}:{}", out.empty() ? "" : "+", progress.plan_restart ? "split-restart" : "split",
                       progress.plan_items);
  }
  return out.empty() ? "documented" : out;
}

tl::unexpected<Error> not_a_choice(std::string_view text, const std::vector<std::string>& choices) {
  const std::string near = nearest(text, choices);
  std::string message = fmt::format("'{}' is not one of {}", text, fmt::join(choices, ", "));
  if (!near.empty()) message += fmt::format(" — did you mean '{}'?", near);
  return fail(ErrorCode::kParse, std::move(message));
}

}  // namespace option_text
}  // namespace plumbline
