#include "engine/runtime/reduce_nccl.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "engine/base/assert.h"
#include "engine/runtime/reduce.h"
#include "engine/runtime/reduce_elements.h"

namespace plumbline {
namespace {

using Sources = std::span<const std::byte* const>;

struct Reduction {
  ReduceOp op;
  Sources sources;
  std::span<const double> factors;  // by member, or none
};

// Values of one element type, rounded to it after every operation.
template <typename Element>
class InType {
 public:
  using Stored = typename Element::Stored;
  using Wide = typename Element::Wide;

  explicit InType(const Reduction& reduction) : op_(reduction.op), members_(reduction.sources.size()) {
    for (const double factor : reduction.factors)
      scales_.push_back(Element::widen(Element::narrow(static_cast<Wide>(factor))));
    if constexpr (std::is_floating_point_v<Wide>) {
      if (op_ == ReduceOp::kAvg)
        scales_.assign(members_,
                       Element::widen(Element::narrow(static_cast<Wide>(1) / static_cast<Wide>(members_))));
    }
  }

  // A member's contribution as it enters the sum.
  Wide enter(Sources sources, std::size_t member, std::size_t index) const {
    const Wide value = Element::widen(detail::load_element<Stored>(sources[member], index));
    return scales_.empty() ? value : round(detail::multiply(value, scales_[member]));
  }
  Wide combine(Wide a, Wide b) const { return round(wide(a, b)); }
  // Into a sum that is rounded to the type at its end alone.
  Wide accumulate(Wide a, Wide b) const { return Element::accumulated(wide(a, b)); }
  // The same without rounding.
  Wide wide(Wide a, Wide b) const {
    switch (op_) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        return detail::add(a, b);
      case ReduceOp::kProd:
        return detail::multiply(a, b);
      case ReduceOp::kMax:
        return detail::extreme<true, false>(a, b);
      case ReduceOp::kMin:
        return detail::extreme<false, false>(a, b);
    }
    return a;
  }
  void leave(std::byte* out, std::size_t index, Wide total) const {
    if constexpr (!std::is_floating_point_v<Wide>) {
      if (op_ == ReduceOp::kAvg) total = static_cast<Wide>(total / static_cast<Wide>(members_));
    }
    detail::store_element<Stored>(out, index, Element::narrow(total));
  }

 private:
  static Wide round(Wide value) { return Element::widen(Element::narrow(value)); }

  ReduceOp op_;
  std::size_t members_;
  std::vector<Wide> scales_;  // by member; empty: contributions enter as they are
};

// Element by element: from the member that `first(index)` gives once around the ring.
template <typename Element, typename First>
void chain(const Reduction& reduction, std::byte* out, std::size_t count, First first) {
  const InType<Element> in(reduction);
  const Sources sources = reduction.sources;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t start = first(i);
    auto total = in.enter(sources, start, i);
    for (std::size_t step = 1; step < sources.size(); ++step)
      total = in.combine(total, in.enter(sources, (start + step) % sources.size(), i));
    in.leave(out, i, total);
  }
}

template <typename Element>
void nvls(const Reduction& reduction, std::byte* out, std::size_t count) {
  const InType<Element> in(reduction);
  const Sources sources = reduction.sources;
  for (std::size_t i = 0; i < count; ++i) {
    auto total = in.enter(sources, 0, i);
    for (std::size_t s = 1; s < sources.size(); ++s) total = in.accumulate(total, in.enter(sources, s, i));
    in.leave(out, i, total);
  }
}

// Where an element lies: its channel, and the member at which its part of the loop ends.
struct Place {
  std::size_t channel = 0;
  std::size_t part = 0;
};

class Loops {
 public:
  Loops(const CollectiveNumerics& numerics, std::size_t count, std::size_t element_bytes, std::size_t members)
      : parts_(static_cast<std::size_t>(std::max(1, numerics.channels)) * members),
        members_(members),
        count_(count),
        chunk_(std::max<std::size_t>(1, numerics.chunk_bytes / element_bytes)) {}

  // The last loop is divided among all parts alike, in smaller chunks.
  Place at(std::size_t index) const {
    const std::size_t loop = parts_ * chunk_;
    const std::size_t start = index / loop * loop;
    const std::size_t left = count_ - start;
    const std::size_t chunk = left >= loop ? chunk_ : (left + parts_ - 1) / parts_;
    const std::size_t number = (index - start) / chunk;
    return {number / members_, number % members_};
  }

 private:
  std::size_t parts_;
  std::size_t members_;
  std::size_t count_;
  std::size_t chunk_;
};

// The sum of a node's members, from the last of its chain up to the first.
template <typename Element>
typename Element::Wide node_sum(const InType<Element>& in, Sources sources, std::size_t first,
                                std::size_t last, std::size_t index) {
  auto total = in.enter(sources, last - 1, index);
  for (std::size_t m = last - 1; m-- > first;) total = in.combine(in.enter(sources, m, index), total);
  return total;
}

template <typename Element>
void tree(const CollectiveNumerics& numerics, const Reduction& reduction, std::byte* out, std::size_t count) {
  const InType<Element> in(reduction);
  const Sources sources = reduction.sources;
  const auto per_node = static_cast<std::size_t>(std::max(1, numerics.ranks_per_node));
  const std::size_t nodes = (sources.size() + per_node - 1) / per_node;
  const std::array<std::vector<TreeNode>, 2> trees{reduction_tree(static_cast<int>(nodes), false),
                                                   reduction_tree(static_cast<int>(nodes), true)};
  const Loops loops(numerics, count, sizeof(typename Element::Stored), sources.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<TreeNode>& chosen = trees[loops.at(i).channel % 2];
    const auto sum = [&](const auto& self, std::size_t node) -> typename Element::Wide {
      const std::size_t first = node * per_node;
      auto total = node_sum<Element>(in, sources, first, std::min(first + per_node, sources.size()), i);
      for (const int child : chosen[node].children)
        total = in.combine(total, self(self, static_cast<std::size_t>(child)));
      return total;
    };
    const auto root =
        std::find_if(chosen.begin(), chosen.end(), [](const TreeNode& node) { return node.parent < 0; });
    in.leave(out, i, sum(sum, static_cast<std::size_t>(root - chosen.begin())));
  }
}

}  // namespace

std::vector<std::size_t> ring_order(const CollectiveNumerics& numerics, std::size_t index, std::size_t count,
                                    std::size_t element_bytes, std::size_t members) {
  PL_ASSERT(members > 0 && index < count);
  const std::size_t last = Loops(numerics, count, element_bytes, members).at(index).part;
  std::vector<std::size_t> order;
  for (std::size_t step = 1; step <= members; ++step) order.push_back((last + step) % members);
  return order;
}

// Node 0 is the root. A node that is an odd multiple of 2^k has the one of its two neighbours at distance 2^k as
// its parent that is an odd multiple of 2^(k+1), or where that is beyond the end, the other.
std::vector<TreeNode> reduction_tree(int nodes, bool mirrored) {
  std::vector<TreeNode> tree(static_cast<std::size_t>(nodes));
  for (int node = 1; node < nodes; ++node) {
    int step = 1;
    while (node / step % 2 == 0) step *= 2;
    const bool down = node / step % 4 == 3;
    const int parent = down || node + step >= nodes ? node - step : node + step;
    tree[static_cast<std::size_t>(node)].parent = parent;
  }
  for (int node = 1; node < nodes; ++node) {
    const int parent = tree[static_cast<std::size_t>(node)].parent;
    tree[static_cast<std::size_t>(parent)].children.push_back(node);
  }
  if (!mirrored) return tree;
  // The second tree: the first with its nodes in reverse, or shifted by one where their number is odd.
  const auto place = [nodes](int node) { return nodes % 2 == 0 ? nodes - 1 - node : (node + 1) % nodes; };
  std::vector<TreeNode> second(static_cast<std::size_t>(nodes));
  for (int node = 0; node < nodes; ++node) {
    TreeNode& to = second[static_cast<std::size_t>(place(node))];
    const TreeNode& from = tree[static_cast<std::size_t>(node)];
    if (from.parent >= 0) to.parent = place(from.parent);
    for (const int child : from.children) to.children.push_back(place(child));
  }
  return second;
}

void all_reduce_as(const CollectiveNumerics& numerics, DType dtype, ReduceOp op, Sources sources,
                   std::byte* out, std::size_t count, std::span<const double> factors) {
  PL_ASSERT(!sources.empty());
  PL_ASSERT(factors.empty() || (op == ReduceOp::kSum && factors.size() == sources.size()));
  const bool ordered = numerics.kind == Numerics::kOrdered;
  if (ordered && factors.empty()) return reduce_ordered(dtype, op, sources, out, count);
  const Reduction reduction{op, sources, factors};
  detail::with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    if (numerics.kind == Numerics::kTree) return tree<Element>(numerics, reduction, out, count);
    if (ordered || numerics.kind == Numerics::kNvls) return nvls<Element>(reduction, out, count);
    const Loops loops(numerics, count, sizeof(typename Element::Stored), sources.size());
    chain<Element>(reduction, out, count,
                   [&](std::size_t i) { return (loops.at(i).part + 1) % sources.size(); });
  });
}

void reduce_as(const CollectiveNumerics& numerics, DType dtype, ReduceOp op, std::size_t root,
               Sources sources, std::byte* out, std::size_t count, std::span<const double> factors) {
  PL_ASSERT(root < sources.size());
  PL_ASSERT(factors.empty() || (op == ReduceOp::kSum && factors.size() == sources.size()));
  const bool ordered = numerics.kind == Numerics::kOrdered;
  if (ordered && factors.empty()) return reduce_ordered(dtype, op, sources, out, count);
  const Reduction reduction{op, sources, factors};
  detail::with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    if (ordered || numerics.kind == Numerics::kNvls) return nvls<Element>(reduction, out, count);
    // Rings and trees alike bring a rooted reduction home along the ring: NCCL has no tree for it.
    chain<Element>(reduction, out, count, [&](std::size_t) { return (root + 1) % sources.size(); });
  });
}

}  // namespace plumbline
