#include "engine/program/link.h"

#include <algorithm>
#include <span>
#include <string>

#include <fmt/format.h>

namespace plumbline {
namespace {

class Linker {
 public:
  explicit Linker(const Program& program) : program_(program), marks_(program.endpoints.size() + 1) {
    linked_.program = &program;
    // Of a Program that is met for the first time, rows are fetched side by side rather than one after the other.
    if (program.endpoints.size() > 1024) return;
    for (const Endpoint& row : program.endpoints) __builtin_prefetch(&row.kind);
    for (const Kernel& row : program.kernels) __builtin_prefetch(&row.reads);
  }

  Result<LinkedProgram> run() {
    communicators();
    linked_.windows.resize(program_.threads.size());
    linked_.comm_calls.resize(program_.threads.size());
    linked_.endpoints.reserve(program_.endpoints.size());  // enough where ranks have rows of their own
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
    count_places(world);
    for (std::size_t f = 0; f < program_.families.size(); ++f) {
      const CommFamily& family = program_.families[f];
      for (std::size_t i = 0; i < family.instances.size(); ++i) {
        const auto number = static_cast<std::int32_t>(linked_.communicators.size());
        linked_.communicators.push_back(
            {instance_name(family, i), static_cast<std::uint16_t>(f), family.instances[i]});
        for (std::size_t position = 0; position < family.instances[i].size(); ++position) {
          const auto rank = static_cast<std::size_t>(family.instances[i][position]);
          places_[first_place_[f * world + rank + 1]++] = {number, static_cast<std::int32_t>(position)};
        }
      }
    }
  }

  // Room for the places of each family and rank, side by side. Until they are filled in, where those of one begin is in
  // the element after its own.
  void count_places(std::size_t world) {
    first_place_.assign(program_.families.size() * world + 2, 0);
    std::size_t first = 2;
    for (const CommFamily& family : program_.families) {
      for (const auto& instance : family.instances) {
        for (const Rank rank : instance) ++first_place_[first + static_cast<std::size_t>(rank)];
      }
      first += world;
    }
    for (std::size_t i = 1; i < first_place_.size(); ++i) first_place_[i] += first_place_[i - 1];
    places_.resize(first_place_.back());
  }

  // A rank's places in the communicators of a family.
  std::span<const Place> places_of(std::uint16_t family, Rank rank) const {
    const std::size_t at =
        family * static_cast<std::size_t>(program_.grid.world()) + static_cast<std::size_t>(rank);
    return {places_.data() + first_place_[at], places_.data() + first_place_[at + 1]};
  }

  // Of a rank in a communicator of the family; -1 when it is not in it, or not in the world.
  std::int32_t position_of(std::uint16_t family, std::int32_t communicator, Rank rank) const {
    if (rank < 0 || rank >= program_.grid.world()) return -1;
    for (const Place& place : places_of(family, rank)) {
      if (place.communicator == communicator) return place.position;
    }
    return -1;
  }

  Status resolve(std::size_t thread, unsigned index) {
    const Endpoint& endpoint = program_.endpoints[index];
    const Rank rank = program_.threads[thread].rank;
    LinkedEndpoint& out =
        linked_.endpoints[linked_.windows[thread].base + (index - linked_.windows[thread].first)];
    out.peer = endpoint_peer(program_.grid, endpoint, rank);
    for (const Place& place : places_of(endpoint.family, rank)) {
      const std::int32_t peer_position = position_of(endpoint.family, place.communicator, out.peer);
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

  // Marks the endpoint rows that a thread uses, from first_ to last_; they stay while threads share a range. The one
  // walk of linking over the items: no branch depends on what an item is.
  void find_used(const Thread& thread) {
    if (known_ && thread.begin == begin_ && thread.end == end_) return;
    known_ = true;
    begin_ = thread.begin;
    end_ = thread.end;
    const std::uint32_t mark = ++mark_;
    const auto nobody = static_cast<unsigned>(program_.endpoints.size());
    std::uint32_t* const marks = marks_.data();
    unsigned first = nobody, last = 0;
    for (std::uint32_t i = begin_; i < end_; ++i) {
      const Item item = program_.items[i];
      const bool is_operation = item_op(item) == ItemOp::kOp;
      const unsigned row = is_operation ? item_ref(item) : nobody;
      marks[row] = mark;
      first = std::min(first, row);
      last = std::max(last, is_operation ? row : 0);
    }
    first_ = first;
    last_ = last;
  }

  Status thread(std::size_t t) {
    find_used(program_.threads[t]);
    if (first_ == program_.endpoints.size()) return {};
    const auto base = static_cast<std::uint32_t>(linked_.endpoints.size());
    linked_.windows[t] = {base, first_, last_ - first_ + 1};
    linked_.endpoints.resize(base + linked_.windows[t].count);
    for (unsigned row = first_; row <= last_; ++row) {
      if (marks_[row] == mark_ && !resolve(t, row)) return first_error(t);
    }
    return {};
  }

  // Of several rows that cannot be resolved, the one that the thread uses first is told.
  Status first_error(std::size_t t) {
    for (const Item item : program_.thread_items(t)) {
      if (item_op(item) == ItemOp::kOp) PL_TRY(resolve(t, item_ref(item)));
    }
    return {};
  }

  const Program& program_;
  LinkedProgram linked_;
  std::vector<std::uint32_t> first_place_;  // into places_, by family and rank; one more at the end
  std::vector<Place> places_;
  std::vector<std::uint32_t> marks_;  // by endpoint row; one more for items that are no operations
  std::uint32_t mark_ = 0, begin_ = 0, end_ = 0;
  unsigned first_ = 0, last_ = 0;  // rows marked
  bool known_ = false;
};

}  // namespace

Result<LinkedProgram> link_program(const Program& program) { return Linker(program).run(); }

}  // namespace plumbline
