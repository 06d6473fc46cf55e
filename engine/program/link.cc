#include "engine/program/link.h"

#include <algorithm>
#include <span>
#include <string>

#include <fmt/format.h>

namespace plumbline {
namespace {

class Linker {
 public:
  explicit Linker(const Program& program)
      : program_(program), world_(static_cast<std::size_t>(program.grid.world())) {
    linked_.program = &program;
  }

  Result<LinkedProgram> run() {
    communicators();
    marks_.resize(program_.endpoints.size());
    linked_.windows.resize(program_.threads.size());
    linked_.endpoints.resize(program_.endpoints.size());  // enough where ranks have rows of their own
    if (!program_.comm_calls.empty()) linked_.comm_calls.resize(program_.threads.size());
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      if (!thread(t)) return tl::unexpected(unresolved(t));
      PL_TRY(comm_calls(t));
    }
    linked_.endpoints.resize(linked_endpoints_);
    return std::move(linked_);
  }

 private:
  struct Place {
    std::int32_t communicator;
    std::int32_t position;
  };

  static std::string instance_name(const CommFamily& family, std::size_t index) {
    if (family.pairs)
      return family.name + '{' + std::to_string(family.instances[index][0]) + ',' +
             std::to_string(family.instances[index][1]) + '}';
    if (family.instances.size() == 1) return family.name;
    return family.name + '[' + std::to_string(index) + ']';
  }

  void communicators() {
    std::size_t count = 0;
    for (const CommFamily& family : program_.families) count += family.instances.size();
    linked_.communicators.reserve(count);
    count_places();
    for (std::size_t f = 0; f < program_.families.size(); ++f) {
      const CommFamily& family = program_.families[f];
      for (std::size_t i = 0; i < family.instances.size(); ++i) {
        const auto number = static_cast<std::int32_t>(linked_.communicators.size());
        linked_.communicators.push_back(
            {instance_name(family, i), static_cast<std::uint16_t>(f), family.instances[i]});
        std::int32_t position = 0;
        for (const Rank rank : family.instances[i])
          places_[first_place_[f * world_ + static_cast<std::size_t>(rank) + 1]++] = {number, position++};
      }
    }
  }

  // Room for the places of each family and rank, side by side. Until they are filled in, where those of one begin is in
  // the element after its own.
  void count_places() {
    first_place_.assign(program_.families.size() * world_ + 2, 0);
    std::size_t first = 2;
    for (const CommFamily& family : program_.families) {
      for (const auto& instance : family.instances) {
        for (const Rank rank : instance) ++first_place_[first + static_cast<std::size_t>(rank)];
      }
      first += world_;
    }
    for (std::size_t i = 1; i < first_place_.size(); ++i) first_place_[i] += first_place_[i - 1];
    places_.resize(first_place_.back());
  }

  // A rank's places in the communicators of a family.
  std::span<const Place> places_of(std::uint16_t family, Rank rank) const {
    const std::uint32_t* const at = first_place_.data() + family * world_ + static_cast<std::size_t>(rank);
    return {places_.data() + at[0], places_.data() + at[1]};
  }

  // Of a rank in a communicator of the family; -1 when it is not in it, or not in the world.
  std::int32_t position_of(std::uint16_t family, std::int32_t communicator, Rank rank) const {
    if (static_cast<std::size_t>(rank) >= world_) return -1;
    for (const Place& place : places_of(family, rank)) {
      if (place.communicator == communicator) return place.position;
    }
    return -1;
  }

  // False: no communicator holds the rank and its peer.
  bool resolve(const Endpoint& endpoint, Rank rank, LinkedEndpoint& out) const {
    if (endpoint.form != PeerForm::kNone)
      out.peer =
          endpoint.form == PeerForm::kRank ? endpoint.peer : endpoint_peer(program_.grid, endpoint, rank);
    for (const Place& place : places_of(endpoint.family, rank)) {
      if (out.peer >= 0) {
        out.peer_position = position_of(endpoint.family, place.communicator, out.peer);
        if (out.peer_position < 0) continue;
      }
      out.communicator = place.communicator;
      out.position = place.position;
      return true;
    }
    return false;
  }

  // The communicator of a family that holds the rank and, if one is named, the peer.
  Place place_of(std::uint16_t family, Rank rank, Rank peer) const {
    for (const Place& place : places_of(family, rank)) {
      if (peer < 0 || position_of(family, place.communicator, peer) >= 0) return place;
    }
    return {-1, -1};
  }

  Status comm_calls(std::size_t t) {
    if (program_.comm_calls.empty()) return {};
    const Rank rank = program_.threads[t].rank;
    std::vector<LinkedCommCall>& rows = linked_.comm_calls[t];
    for (const Item item : program_.thread_items(t)) {
      if (item_op(item) != ItemOp::kComm) continue;
      rows.resize(program_.comm_calls.size());
      const CommCall& call = program_.comm_calls[item_ref(item)];
      const Place own = place_of(call.family, rank, peer_of(program_.grid, call.form, call.peer, rank));
      const Place parent = has_parent(call.kind) ? place_of(call.parent, rank, -1) : Place{-1, -1};
      rows[item_ref(item)] = {own.communicator, own.position, parent.communicator, parent.position};
      // Who joins by a grow has no parent, and is in what it makes.
      const bool grows = call.kind == CommCallKind::kGrow;
      const bool needs_parent = has_parent(call.kind) && !grows && parent.communicator < 0;
      const bool needs_own = (!has_parent(call.kind) || grows) && own.communicator < 0;
      if (!needs_parent && !needs_own) continue;
      return fail(ErrorCode::kConfig,
                  fmt::format("rank {} calls {} but no communicator of family {} holds it", rank, call.name,
                              program_.families[needs_parent ? call.parent : call.family].name));
    }
    return {};
  }

  // Marks the endpoint rows that a thread uses, from first_ up to last_; they stay while threads share a range. The one
  // walk of linking over the items.
  void find_used(const Thread& thread) {
    if (mark_ != 0 && thread.begin == begin_ && thread.end == end_) return;
    begin_ = thread.begin;
    end_ = thread.end;
    const std::uint32_t mark = ++mark_;
    std::uint32_t* const marks = marks_.data();
    unsigned first = kMaxTableRows, last = 0;
    constexpr auto kOpBits = static_cast<std::uint32_t>(make_item(ItemOp{kItemOps - 1}, 0, 0, 0, 0));
    constexpr auto kIsOperation = static_cast<std::uint32_t>(make_item(ItemOp::kOp, 0, 0, 0, 0));
    for (const Item& item : std::span(program_.items).subspan(begin_, end_ - begin_)) {
      if ((static_cast<std::uint32_t>(item) & kOpBits) != kIsOperation) continue;
      const unsigned row = item_ref(item);
      marks[row] = mark;
      first = std::min(first, row);
      last = std::max(last, row);
    }
    first_ = first;
    last_ = last;
  }

  // False: some row cannot be resolved.
  bool thread(std::size_t t) {
    find_used(program_.threads[t]);
    if (first_ > last_) return true;
    const Rank rank = program_.threads[t].rank;
    const std::uint32_t count = last_ - first_ + 1;
    linked_.windows[t] = {linked_endpoints_, first_, count};
    if (linked_endpoints_ + count > linked_.endpoints.size())
      linked_.endpoints.resize(std::max<std::size_t>(linked_endpoints_ + count, linked_endpoints_ * 2));
    LinkedEndpoint* out = linked_.endpoints.data() + linked_endpoints_;
    for (unsigned row = first_; row <= last_; ++row, ++out) {
      if (marks_[row] != mark_) continue;
      const Endpoint& endpoint = program_.endpoints[row];
      if (!resolve(endpoint, rank, *out)) return false;
      linked_.own_messages |= out->peer == rank && is_p2p(endpoint.kind);
    }
    linked_endpoints_ += count;
    return true;
  }

  // Of several rows that cannot be resolved, the one that the thread uses first is told.
  Error unresolved(std::size_t t) const {
    const Rank rank = program_.threads[t].rank;
    for (const Item item : program_.thread_items(t)) {
      if (item_op(item) != ItemOp::kOp) continue;
      const Endpoint& endpoint = program_.endpoints[item_ref(item)];
      LinkedEndpoint out;
      if (resolve(endpoint, rank, out)) continue;
      const std::string together = out.peer < 0 ? "" : fmt::format(" together with rank {}", out.peer);
      return {ErrorCode::kConfig,
              fmt::format("rank {} uses {} but no communicator of family {} holds it{}", rank, endpoint.name,
                          program_.families[endpoint.family].name, together),
              {}};
    }
    return {};
  }

  const Program& program_;
  const std::size_t world_;
  LinkedProgram linked_;
  std::vector<std::uint32_t> first_place_;  // into places_, by family and rank; one more at the end
  std::vector<Place> places_;
  std::vector<std::uint32_t> marks_;  // by endpoint row
  std::uint32_t linked_endpoints_ = 0;
  std::uint32_t mark_ = 0, begin_ = 0, end_ = 0;
  unsigned first_ = 0, last_ = 0;  // rows marked; none where the first is behind the last
};

}  // namespace

Result<LinkedProgram> link_program(const Program& program) { return Linker(program).run(); }

}  // namespace plumbline
