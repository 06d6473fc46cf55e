// The words of the Program's text form, in enumeration order.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace plumbline {

inline constexpr std::array<std::string_view, 14> kSlotKindNames{
    "activation",      "gradient",  "stash",    "main-grads", "parameters",      "tied-grad", "found-inf",
    "local-found-inf", "norm-sums", "snapshot", "other",      "parameter-shard", "shape",     "rebuilt"};
inline constexpr std::array<std::string_view, 17> kKernelKindNames{
    "forward",       "backward",      "input-grad", "weight-grad",    "zero-grad", "collect-tied",
    "merge-tied",    "unscale-check", "norm-sums",  "optimizer-step", "skip-step", "speculative-step",
    "validate-step", "other",         "unshard",    "reshard",        "recompute"};
inline constexpr std::array<std::string_view, 7> kEndpointKindNames{
    "send", "recv", "all-reduce", "reduce", "broadcast", "all-gather", "reduce-scatter"};
inline constexpr std::array<std::string_view, 16> kItemOpNames{
    "launch", "op",   "wait",   "record", "wait-event", "sync-event", "sync-stream", "sync-device",
    "free",   "read", "decide", "mark",   "wait-slot",  "comm",       "graph",       "fail"};
inline constexpr std::array<std::string_view, 11> kCommCallKindNames{
    "init", "split", "shrink", "finalize", "destroy", "abort", "ready", "sync", "revoke", "grow", "turn"};
inline constexpr std::array<std::string_view, 8> kItemFlagNames{
    "more", "after-compute", "compute-waits", "host-waits", "handle", "if-yes", "if-no", "uncaptured"};
inline constexpr std::array<std::string_view, 4> kPeerFormNames{"none", "shift", "coordinate", "rank"};
inline constexpr std::array<std::string_view, 5> kReduceOpNames{"sum", "max", "min", "prod", "avg"};

// Position of `word` in a name table, as an enumeration value.
template <typename Enum, std::size_t N>
constexpr std::optional<Enum> enum_of(const std::array<std::string_view, N>& names, std::string_view word) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == word) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace plumbline
