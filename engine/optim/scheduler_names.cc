#include "engine/optim/scheduler_names.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

template <typename Style, std::size_t N>
using Table = std::array<std::pair<Style, std::string_view>, N>;

constexpr Table<DecayStyle, 5> kDecay{{{DecayStyle::kConstant, "constant"},
                                       {DecayStyle::kLinear, "linear"},
                                       {DecayStyle::kCosine, "cosine"},
                                       {DecayStyle::kInverseSquareRoot, "inverse-square-root"},
                                       {DecayStyle::kWsd, "WSD"}}};
constexpr Table<WsdStyle, 4> kWsd{{{WsdStyle::kLinear, "linear"},
                                   {WsdStyle::kCosine, "cosine"},
                                   {WsdStyle::kExponential, "exponential"},
                                   {WsdStyle::kMinusSqrt, "minus_sqrt"}}};
constexpr Table<WdStyle, 3> kWd{
    {{WdStyle::kConstant, "constant"}, {WdStyle::kLinear, "linear"}, {WdStyle::kCosine, "cosine"}}};

template <typename Style, std::size_t N>
std::string_view name_in(const Table<Style, N>& table, Style style) {
  for (const auto& [value, name] : table) {
    if (value == style) return name;
  }
  PL_ASSERT_MSG(false, "a style without a name");
}

template <typename Style, std::size_t N>
Result<Style> find_in(const Table<Style, N>& table, std::string_view name, std::string_view what) {
  std::string known;
  for (const auto& [value, word] : table) {
    if (word == name) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", word);
  }
  return fail(ErrorCode::kState, fmt::format("\"{}\" is no {} style; known are {}", name, what, known));
}

}  // namespace

std::string_view megatron_name(DecayStyle style) { return name_in(kDecay, style); }
std::string_view megatron_name(WsdStyle style) { return name_in(kWsd, style); }
std::string_view megatron_name(WdStyle style) { return name_in(kWd, style); }

Result<DecayStyle> decay_style_of_name(std::string_view name) {
  return find_in(kDecay, name, "learning-rate decay");
}
Result<WsdStyle> wsd_style_of_name(std::string_view name) { return find_in(kWsd, name, "WSD decay"); }
Result<WdStyle> wd_style_of_name(std::string_view name) {
  return find_in(kWd, name, "weight-decay increase");
}

}  // namespace plumbline
