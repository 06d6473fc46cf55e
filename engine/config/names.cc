#include "engine/config/names.h"

#include <algorithm>
#include <array>

namespace plumbline {
namespace {

template <typename Enum>
struct Names;

template <>
struct Names<ScheduleKind> {
  static constexpr std::array<std::string_view, 7> kWords{
      "gpipe", "1f1b", "interleaved", "interleaved-2022", "forward-only", "csv", "generator"};
};
template <>
struct Names<P2pStyle> {
  static constexpr std::array<std::string_view, 5> kWords{"batched", "separate", "flush", "overlap",
                                                          "deferred"};
};
template <>
struct Names<CommMap> {
  static constexpr std::array<std::string_view, 4> kWords{"one", "pair", "direction", "megatron"};
};
template <>
struct Names<Precision> {
  static constexpr std::array<std::string_view, 3> kWords{"fp32", "fp16", "bf16"};
};
template <>
struct Names<DecayStyle> {
  static constexpr std::array<std::string_view, 5> kWords{"constant", "linear", "cosine",
                                                          "inverse-square-root", "WSD"};
};
template <>
struct Names<WsdStyle> {
  static constexpr std::array<std::string_view, 4> kWords{"linear", "cosine", "exponential", "minus_sqrt"};
};
template <>
struct Names<WdStyle> {
  static constexpr std::array<std::string_view, 3> kWords{"constant", "linear", "cosine"};
};
template <>
struct Names<OptimizerRule> {
  static constexpr std::array<std::string_view, 2> kWords{"adam", "sgd"};
};
template <>
struct Names<NonPersistent> {
  static constexpr std::array<std::string_view, 4> kWords{"none", "global", "local", "in_memory"};
};
template <>
struct Names<CheckpointFormat> {
  static constexpr std::array<std::string_view, 2> kWords{"plumbline", "torch"};
};
template <>
struct Names<LocalAlgorithm> {
  static constexpr std::array<std::string_view, 2> kWords{"atomic", "fully_parallel"};
};
template <>
struct Names<ScalerRule> {
  static constexpr std::array<std::string_view, 3> kWords{"megatron", "deepspeed", "torch"};
};
template <>
struct Names<SendCompletion> {
  static constexpr std::array<std::string_view, 3> kWords{"rendezvous", "eager", "always-eager"};
};
template <>
struct Names<EagerLinks> {
  static constexpr std::array<std::string_view, 5> kWords{"same", "h100", "a100", "pcie", "ib"};
};
template <>
struct Names<CrossComm> {
  static constexpr std::array<std::string_view, 3> kWords{"free", "strict", "launch-order"};
};
template <>
struct Names<CollectiveConnect> {
  static constexpr std::array<std::string_view, 3> kWords{"auto", "warm", "cold"};
};
template <>
struct Names<GroupOrder> {
  static constexpr std::array<std::string_view, 3> kWords{"auto", "same", "call"};
};
template <>
struct Names<Mismatch> {
  static constexpr std::array<std::string_view, 2> kWords{"report", "emulate"};
};
template <>
struct Names<Numerics> {
  static constexpr std::array<std::string_view, 4> kWords{"ordered", "ring", "tree", "nvls"};
};
template <>
struct Names<NcclVersion> {
  static constexpr std::array<std::string_view, 8> kWords{"none",   "2.18",   "2.22",   "2.26",
                                                          "2.28.9", "2.29.2", "2.29.7", "2.30"};
};
template <>
struct Names<Recompute> {
  static constexpr std::array<std::string_view, 3> kWords{"none", "selective", "full"};
};
template <>
struct Names<RecomputeMethod> {
  static constexpr std::array<std::string_view, 2> kWords{"uniform", "block"};
};
template <>
struct Names<Connect> {
  static constexpr std::array<std::string_view, 2> kWords{"warm", "cold"};
};

template <typename Enum>
std::string_view word(Enum value) {
  return Names<Enum>::kWords[static_cast<std::size_t>(value)];
}

char fold(char c) {
  if (c == '_') return '-';
  return (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::string_view name(ScheduleKind value) { return word(value); }
std::string_view name(P2pStyle value) { return word(value); }
std::string_view name(CommMap value) { return word(value); }
std::string_view name(Precision value) { return word(value); }
std::string_view name(DecayStyle value) { return word(value); }
std::string_view name(WsdStyle value) { return word(value); }
std::string_view name(WdStyle value) { return word(value); }
std::string_view name(OptimizerRule value) { return word(value); }
std::string_view name(NonPersistent value) { return word(value); }
std::string_view name(LocalAlgorithm value) { return word(value); }
std::string_view name(CheckpointFormat value) { return word(value); }
std::string_view name(ScalerRule value) { return word(value); }
std::string_view name(SendCompletion value) { return word(value); }
std::string_view name(CrossComm value) { return word(value); }
std::string_view name(Connect value) { return word(value); }
std::string_view name(EagerLinks value) { return word(value); }
std::string_view name(CollectiveConnect value) { return word(value); }
std::string_view name(GroupOrder value) { return word(value); }
std::string_view name(Mismatch value) { return word(value); }
std::string_view name(NcclVersion value) { return word(value); }
std::string_view name(Numerics value) { return word(value); }
std::string_view name(Recompute value) { return word(value); }
std::string_view name(RecomputeMethod value) { return word(value); }

template <typename Enum>
std::vector<std::string> names_of() {
  return {Names<Enum>::kWords.begin(), Names<Enum>::kWords.end()};
}

template <typename Enum>
std::optional<Enum> enum_from_name(std::string_view text) {
  const auto same = [](char a, char b) { return fold(a) == fold(b); };
  const auto& words = Names<Enum>::kWords;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (std::equal(text.begin(), text.end(), words[i].begin(), words[i].end(), same))
      return static_cast<Enum>(i);
  }
  return std::nullopt;
}

template std::vector<std::string> names_of<ScheduleKind>();
template std::vector<std::string> names_of<P2pStyle>();
template std::vector<std::string> names_of<CommMap>();
template std::vector<std::string> names_of<Precision>();
template std::vector<std::string> names_of<DecayStyle>();
template std::vector<std::string> names_of<WsdStyle>();
template std::vector<std::string> names_of<WdStyle>();
template std::vector<std::string> names_of<OptimizerRule>();
template std::vector<std::string> names_of<NonPersistent>();
template std::vector<std::string> names_of<LocalAlgorithm>();
template std::vector<std::string> names_of<CheckpointFormat>();
template std::vector<std::string> names_of<ScalerRule>();
template std::vector<std::string> names_of<SendCompletion>();
template std::vector<std::string> names_of<CrossComm>();
template std::vector<std::string> names_of<Connect>();
template std::vector<std::string> names_of<EagerLinks>();
template std::vector<std::string> names_of<CollectiveConnect>();
template std::vector<std::string> names_of<GroupOrder>();
template std::vector<std::string> names_of<Mismatch>();
template std::vector<std::string> names_of<NcclVersion>();
template std::vector<std::string> names_of<Numerics>();
template std::vector<std::string> names_of<Recompute>();
template std::vector<std::string> names_of<RecomputeMethod>();
template std::optional<ScheduleKind> enum_from_name<ScheduleKind>(std::string_view);
template std::optional<P2pStyle> enum_from_name<P2pStyle>(std::string_view);
template std::optional<CommMap> enum_from_name<CommMap>(std::string_view);
template std::optional<Precision> enum_from_name<Precision>(std::string_view);
template std::optional<DecayStyle> enum_from_name<DecayStyle>(std::string_view);
template std::optional<WsdStyle> enum_from_name<WsdStyle>(std::string_view);
template std::optional<WdStyle> enum_from_name<WdStyle>(std::string_view);
template std::optional<OptimizerRule> enum_from_name<OptimizerRule>(std::string_view);
template std::optional<NonPersistent> enum_from_name<NonPersistent>(std::string_view);
template std::optional<LocalAlgorithm> enum_from_name<LocalAlgorithm>(std::string_view);
template std::optional<CheckpointFormat> enum_from_name<CheckpointFormat>(std::string_view);
template std::optional<ScalerRule> enum_from_name<ScalerRule>(std::string_view);
template std::optional<SendCompletion> enum_from_name<SendCompletion>(std::string_view);
template std::optional<CrossComm> enum_from_name<CrossComm>(std::string_view);
template std::optional<Connect> enum_from_name<Connect>(std::string_view);
template std::optional<EagerLinks> enum_from_name<EagerLinks>(std::string_view);
template std::optional<CollectiveConnect> enum_from_name<CollectiveConnect>(std::string_view);
template std::optional<GroupOrder> enum_from_name<GroupOrder>(std::string_view);
template std::optional<Mismatch> enum_from_name<Mismatch>(std::string_view);
template std::optional<NcclVersion> enum_from_name<NcclVersion>(std::string_view);
template std::optional<Numerics> enum_from_name<Numerics>(std::string_view);
template std::optional<Recompute> enum_from_name<Recompute>(std::string_view);
template std::optional<RecomputeMethod> enum_from_name<RecomputeMethod>(std::string_view);

}  // namespace plumbline
