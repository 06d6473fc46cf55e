#include "engine/runtime/reduce.h"

#include <cstdint>

#include "engine/base/assert.h"
#include "engine/runtime/reduce_elements.h"

namespace plumbline {
namespace {

template <typename Element, typename Combine, typename Finish>
void combine(std::span<const std::byte* const> sources, std::byte* out, std::size_t count, Combine op,
             Finish finish) {
  using Stored = typename Element::Stored;
  for (std::size_t i = 0; i < count; ++i) {
    auto total = Element::widen(detail::load_element<Stored>(sources[0], i));
    for (std::size_t s = 1; s < sources.size(); ++s)
      total = op(total, Element::widen(detail::load_element<Stored>(sources[s], i)));
    detail::store_element<Stored>(out, i, Element::narrow(finish(total)));
  }
}

template <typename Element>
void reduce_elements(ReduceOp op, std::span<const std::byte* const> sources, std::byte* out,
                     std::size_t count) {
  using Wide = typename Element::Wide;
  const auto as_is = [](Wide total) { return total; };
  const auto add = [](Wide a, Wide b) { return detail::add(a, b); };
  switch (op) {
    case ReduceOp::kSum:
      return combine<Element>(sources, out, count, add, as_is);
    case ReduceOp::kMax:
      return combine<Element>(
          sources, out, count, [](Wide a, Wide b) { return detail::extreme<true, true>(a, b); }, as_is);
    case ReduceOp::kMin:
      return combine<Element>(
          sources, out, count, [](Wide a, Wide b) { return detail::extreme<false, true>(a, b); }, as_is);
    case ReduceOp::kProd:
      return combine<Element>(
          sources, out, count, [](Wide a, Wide b) { return detail::multiply(a, b); }, as_is);
    case ReduceOp::kAvg: {
      const auto members = static_cast<Wide>(sources.size());
      return combine<Element>(sources, out, count, add,
                              [members](Wide total) { return static_cast<Wide>(total / members); });
    }
  }
}

}  // namespace

void reduce_ordered(DType dtype, ReduceOp op, std::span<const std::byte* const> sources, std::byte* out,
                    std::size_t count) {
  PL_ASSERT(!sources.empty());
  detail::with_element(dtype,
                       [&](auto element) { reduce_elements<decltype(element)>(op, sources, out, count); });
}

double first_element(DType dtype, const std::byte* data) {
  double value = 0.0;
  detail::with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    value = static_cast<double>(Element::widen(detail::load_element<typename Element::Stored>(data, 0)));
  });
  return value;
}

}  // namespace plumbline
