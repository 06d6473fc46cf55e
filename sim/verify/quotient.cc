#include "sim/verify/quotient.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/base/workers.h"
#include "sim/verify/ahead.h"
#include "sim/verify/reduced.h"

namespace plumbline {
namespace {

tl::unexpected<Error> refused(const std::string& why) {
  return fail(ErrorCode::kUnsupported, "no proof by quotient: " + why);
}

class Quotient {
 public:
  Quotient(const Program& program, const CheckOptions& options)
      : program_(program), options_(options), grid_(program.grid) {}

  Result<Verdict> run() {
    PL_TRY(threads());
    PL_TRY(families());
    PL_TRY(endpoints());
    PL_TRY(decisions());
    const Program one = reduced();
    sizes_.replicas = grid_.dp();
    const Result<LinkedProgram> linked = link_program(one);
    if (!linked) return tl::unexpected(linked.error());
    if (!is_provable(*linked)) return refused("the Program is examined by simulation (is_provable)");
    Result<Verdict> verdict = verify::check_reduced(*linked, options_, sizes_);
    if (!verdict || !verdict->holds()) return whole();
    expand(*verdict);
    return verdict;
  }

 private:
  Rank first_of(Rank rank) const { return grid_.moved(rank, Axis::kDp, 0); }

  Status threads() {
    if (!is_plain(program_)) return refused("the Program is examined by simulation (is_plain)");
    if (!options_.time.is_uniform())
      return refused("ranks or links have times of their own, or ranks share cores");
    for (Rank rank = 0; rank < grid_.world(); ++rank) {
      const Rank first = first_of(rank);
      if (first == rank) {
        firsts_.push_back(rank);
        continue;
      }
      const Thread& own = program_.threads[static_cast<std::size_t>(rank)];
      const Thread& model = program_.threads[static_cast<std::size_t>(first)];
      if (own.begin != model.begin || own.end != model.end)
        return refused(fmt::format("ranks {} and {} do not share their items", first, rank));
    }
    place_of_.assign(static_cast<std::size_t>(grid_.world()), -1);
    for (std::size_t i = 0; i < firsts_.size(); ++i)
      place_of_[static_cast<std::size_t>(firsts_[i])] = static_cast<Rank>(i);
    return {};
  }

  // The members of an instance that have coordinate 0, under their names in the Program of one replica. Sets `replica`
  // to the one it lies in, or to -1.
  std::vector<Rank> translated(const std::vector<Rank>& members, int& replica) const {
    replica = members.empty() ? 0 : grid_.coordinate(members.front(), Axis::kDp);
    std::vector<Rank> out;
    for (const Rank member : members) {
      if (grid_.coordinate(member, Axis::kDp) != replica) replica = -1;
      out.push_back(place_of_[static_cast<std::size_t>(first_of(member))]);
    }
    return out;
  }

  Status families() {
    const auto replicas = static_cast<std::size_t>(grid_.dp());
    for (const CommFamily& family : program_.families) {
      CommFamily& out = families_.emplace_back(CommFamily{family.name, family.pairs, {}});
      std::vector<std::vector<std::vector<Rank>>> by_replica(replicas);
      std::size_t within = 0;
      for (const std::vector<Rank>& members : family.instances) {
        int replica = -1;
        std::vector<Rank> places = translated(members, replica);
        if (replica >= 0) {
          ++within;
          by_replica[static_cast<std::size_t>(replica)].push_back(std::move(places));
          continue;
        }
        std::vector<std::size_t> count(firsts_.size());
        std::vector<Rank> kept;
        for (std::size_t i = 0; i < members.size(); ++i) {
          ++count[static_cast<std::size_t>(places[i])];
          if (members[i] == first_of(members[i])) kept.push_back(places[i]);
        }
        const bool all =
            std::all_of(count.begin(), count.end(), [&](std::size_t c) { return c == 0 || c == replicas; });
        if (!all)
          return refused(fmt::format("a communicator of family {} holds some replicas only", family.name));
        out.instances.push_back(std::move(kept));
        sizes_.members.push_back(static_cast<int>(members.size()));
      }
      over_replicas_.push_back(!out.instances.empty());
      if (within == 0) continue;
      if (over_replicas_.back())
        return refused(fmt::format("family {} has communicators within replicas and over them", family.name));
      for (const auto& instances : by_replica) {
        if (instances != by_replica.front())
          return refused(fmt::format("replicas have different communicators of family {}", family.name));
      }
      for (std::vector<Rank>& instance : by_replica.front()) {
        sizes_.members.push_back(static_cast<int>(instance.size()));
        out.instances.push_back(std::move(instance));
      }
    }
    return {};
  }

  Status endpoints() const {
    for (const Endpoint& endpoint : program_.endpoints) {
      if (endpoint.form == PeerForm::kNone) continue;
      if (endpoint.form == PeerForm::kRank && grid_.dp() > 1)
        return refused(fmt::format("{} names a rank, not a neighbour within its replica", endpoint.name));
      if (over_replicas_[endpoint.family])
        return refused(
            fmt::format("{} is not a collective without a root, but its family {} is over replicas",
                        endpoint.name, program_.families[endpoint.family].name));
    }
    return {};
  }

  Status decisions() const {
    bool over = false;
    for (const Item item : program_.items) {
      over = over || (item_op(item) == ItemOp::kOp && (item_flags(item) & (kArmYes | kArmNo)) != 0 &&
                      over_replicas_[program_.endpoints[item_ref(item)].family]);
    }
    for (const Endpoint& endpoint : program_.endpoints) {
      const bool decides =
          std::any_of(program_.variables.begin(), program_.variables.end(),
                      [&](const HostVariable& variable) { return variable.slot == endpoint.slot; });
      if (over && decides && !over_replicas_[endpoint.family])
        return refused(
            fmt::format("{} decides within replicas what operations over them depend on", endpoint.name));
    }
    return {};
  }

  // Everything but the families and threads as it was.
  Program reduced() {
    Program one;
    one.name = program_.name;
    RankGrid::Sizes sizes;
    sizes.tp = grid_.size(Axis::kTp);
    sizes.cp = grid_.size(Axis::kCp);
    sizes.ep = grid_.size(Axis::kEp);
    sizes.pp = grid_.pp();
    one.grid = RankGrid::create(sizes, grid_.order()).value();
    one.stages = program_.stages;
    one.microbatches = program_.microbatches;
    one.fragment = program_.fragment;
    one.rank_of_stage = program_.rank_of_stage;
    one.slots = program_.slots;
    one.kernels = program_.kernels;
    one.endpoints = program_.endpoints;
    one.families = std::move(families_);
    one.variables = program_.variables;
    one.streams = program_.streams;
    one.events = program_.events;
    one.marks = program_.marks;
    one.items = program_.items;
    for (std::size_t i = 0; i < firsts_.size(); ++i) {
      one.threads.push_back(program_.threads[static_cast<std::size_t>(firsts_[i])]);
      one.threads.back().rank = static_cast<Rank>(i);
    }
    return one;
  }

  void expand(Verdict& verdict) const {
    verdict.operations *= grid_.dp();
    std::vector<RankMemory> memory = std::move(verdict.memory);
    // The words of a range are those of the first rank that has it.
    std::map<std::uint32_t, Rank> first_with;
    for (std::size_t place = 0; place < memory.size(); ++place) {
      const std::uint32_t begin = program_.threads[static_cast<std::size_t>(firsts_[place])].begin;
      const Rank rank = first_with.try_emplace(begin, firsts_[place]).first->second;
      if (memory[place].peak_item < 0) continue;
      const Item item = program_.items[static_cast<std::size_t>(memory[place].peak_item)];
      memory[place].peak_text = describe_item(program_, rank, item);
    }
    verdict.memory.clear();
    verdict.memory.reserve(static_cast<std::size_t>(grid_.world()));
    Hasher trace;
    for (Rank rank = 0; rank < grid_.world(); ++rank) {
      const auto place = static_cast<std::size_t>(place_of_[static_cast<std::size_t>(first_of(rank))]);
      verdict.memory.push_back(memory[place]);
      trace.i64(rank);
      trace.u64(sizes_.hashes[place]);
    }
    verdict.trace_hash = trace.digest();
  }

  Result<Verdict> whole() const {
    const Result<LinkedProgram> linked = link_program(program_);
    if (!linked) return tl::unexpected(linked.error());
    return check_program(*linked, options_);
  }

  const Program& program_;
  const CheckOptions& options_;
  const RankGrid& grid_;
  std::vector<Rank> firsts_;    // ranks of the first replica
  std::vector<Rank> place_of_;  // their places in it
  std::vector<CommFamily> families_;
  std::vector<bool> over_replicas_;  // by family
  verify::Reduced sizes_;
};

}  // namespace

Result<Verdict> check_quotient(const Program& program, const CheckOptions& options) {
  return Quotient(program, options).run();
}

std::vector<Result<Verdict>> check_programs(const std::vector<Program>& programs, const CheckOptions& options,
                                            unsigned workers) {
  std::vector<Result<Verdict>> out(programs.size(), Verdict{});
  if (workers == 0) workers = static_cast<unsigned>(usable_cores());
  share_out(programs.size(), workers, [&](std::size_t i) {
    // What this worker takes next, or another: they share the last cache.
    const std::size_t next = i + workers;
    verify::Ahead ahead = next < programs.size() ? verify::Ahead(programs[next]) : verify::Ahead();
    const Result<LinkedProgram> linked = link_program(programs[i]);
    out[i] = linked ? verify::check_ahead(*linked, options, ahead)
                    : Result<Verdict>(tl::unexpected(linked.error()));
  });
  return out;
}

}  // namespace plumbline
