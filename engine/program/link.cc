#include "engine/program/link.h"

#include <algorithm>
#include <span>
#include <string>

#include <fmt/format.h>

namespace plumbline {
namespace {

class Linker {
 public:
  explicit Linker(const Program& program) : program_(program), marks_(program.endpoints.size()) {
    linked_.program = &program;
  }

  Result<LinkedProgram> run() {
    communicators();
    linked_.windows.resize(program_.threads.size());
    linked_.comm_calls.resize(program_.threads.size());
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      PL_TRY(thread(t));
      PL_TRY(comm_calls(t));
    }
    return std::move(linked_);
  }

 private:
  struct Place {
    std::int32_t communicator;
    std::int32_t position;
  };
  struct Places {
    std::vector<std::uint32_t> begin;  // by rank, one more at the end
    std::vector<Place> rows;
  };

  static std::string instance_name(const CommFamily& family, std::size_t index) {
    if (family.pairs)
      return family.name + '{' + std::to_string(family.instances[index][0]) + ',' +
             std::to_string(family.instances[index][1]) + '}';
    if (family.instances.size() == 1) return family.name;
    return family.name + '[' + std::to_string(index) + ']';
  }

  void communicators() {
    const auto world = static_cast<std::size_t>(program_.grid.world());
    std::size_t count = 0;
    for (const CommFamily& family : program_.families) count += family.instances.size();
    linked_.communicators.reserve(count);
    by_rank_.resize(program_.families.size());
    for (std::size_t f = 0; f < program_.families.size(); ++f) {
      const CommFamily& family = program_.families[f];
      Places& places = by_rank_[f];
      places.begin.assign(world + 1, 0);
      for (const auto& instance : family.instances) {
        for (const Rank rank : instance) ++places.begin[static_cast<std::size_t>(rank) + 1];
      }
      for (std::size_t rank = 0; rank < world; ++rank) places.begin[rank + 1] += places.begin[rank];
      places.rows.resize(places.begin[world]);
      std::vector<std::uint32_t> next(places.begin.begin(), places.begin.end() - 1);
      for (std::size_t i = 0; i < family.instances.size(); ++i) {
        const auto number = static_cast<std::int32_t>(linked_.communicators.size());
        linked_.communicators.push_back(
            {instance_name(family, i), static_cast<std::uint16_t>(f), family.instances[i]});
        for (std::size_t position = 0; position < family.instances[i].size(); ++position) {
          const auto rank = static_cast<std::size_t>(family.instances[i][position]);
          places.rows[next[rank]++] = {number, static_cast<std::int32_t>(position)};
        }
      }
    }
  }

  // A rank's places in the communicators of a family.
  std::span<const Place> places_of(std::uint16_t family, Rank rank) const {
    const Places& places = by_rank_[family];
    const auto at = static_cast<std::size_t>(rank);
    return {places.rows.data() + places.begin[at], places.rows.data() + places.begin[at + 1]};
  }

  std::int32_t position_of(std::int32_t communicator, Rank rank) const {
    const auto& members = linked_.communicators[static_cast<std::size_t>(communicator)].members;
    const auto at = std::find(members.begin(), members.end(), rank);
    return at == members.end() ? -1 : static_cast<std::int32_t>(at - members.begin());
  }

  Status resolve(std::size_t thread, unsigned index) {
    const Endpoint& endpoint = program_.endpoints[index];
    const Rank rank = program_.threads[thread].rank;
    LinkedEndpoint& out =
        linked_.endpoints[linked_.windows[thread].base + (index - linked_.windows[thread].first)];
    out.peer = endpoint_peer(program_.grid, endpoint, rank);
    for (const Place& place : places_of(endpoint.family, rank)) {
      const std::int32_t peer_position = out.peer < 0 ? -1 : position_of(place.communicator, out.peer);
      if (out.peer >= 0 && peer_position < 0) continue;
      out.communicator = place.communicator;
      out.position = place.position;
      out.peer_position = peer_position;
      return {};
    }
    return fail(ErrorCode::kConfig,
                fmt::format("rank {} uses {} but no communicator of family {} holds it{}", rank,
                            endpoint.name, program_.families[endpoint.family].name,
                            out.peer < 0 ? std::string() : fmt::format(" together with rank {}", out.peer)));
  }

  // The communicator of a family that holds the rank and, if one is named, the peer.
  Place place_of(std::uint16_t family, Rank rank, Rank peer) const {
    for (const Place& place : places_of(family, rank)) {
      if (peer < 0 || position_of(place.communicator, peer) >= 0) return place;
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
      const bool needs_parent = has_parent(call.kind) && parent.communicator < 0;
      const bool needs_own = !has_parent(call.kind) && own.communicator < 0;
      if (!needs_parent && !needs_own) continue;
      return fail(ErrorCode::kConfig,
                  fmt::format("rank {} calls {} but no communicator of family {} holds it", rank, call.name,
                              program_.families[needs_parent ? call.parent : call.family].name));
    }
    return {};
  }

  // The endpoint rows that a thread uses, in the order of their first use; kept while threads share a range.
  void find_used(const Thread& thread) {
    if (known_ && thread.begin == begin_ && thread.end == end_) return;
    known_ = true;
    begin_ = thread.begin;
    end_ = thread.end;
    used_.clear();
    ++mark_;
    for (std::uint32_t i = begin_; i < end_; ++i) {
      const Item item = program_.items[i];
      if (item_op(item) != ItemOp::kOp || marks_[item_ref(item)] == mark_) continue;
      marks_[item_ref(item)] = mark_;
      used_.push_back(item_ref(item));
    }
  }

  Status thread(std::size_t t) {
    find_used(program_.threads[t]);
    if (used_.empty()) return {};
    const auto [first, last] = std::minmax_element(used_.begin(), used_.end());
    const auto base = static_cast<std::uint32_t>(linked_.endpoints.size());
    linked_.windows[t] = {base, *first, *last - *first + 1};
    linked_.endpoints.resize(base + linked_.windows[t].count);
    for (const unsigned row : used_) PL_TRY(resolve(t, row));
    return {};
  }

  const Program& program_;
  LinkedProgram linked_;
  std::vector<Places> by_rank_;  // by family
  std::vector<unsigned> used_;
  std::vector<std::uint32_t> marks_;  // by endpoint row
  std::uint32_t mark_ = 0, begin_ = 0, end_ = 0;
  bool known_ = false;
};

}  // namespace

Result<LinkedProgram> link_program(const Program& program) { return Linker(program).run(); }

}  // namespace plumbline
