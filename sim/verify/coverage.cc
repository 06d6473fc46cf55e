#include "sim/verify/coverage.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace plumbline::verify {
namespace {

enum Work : std::size_t {
  kForwards,
  kBackwards,
  kInputs,
  kWeights,
  kWorks
};  // kInputs: the I among kBackwards
constexpr std::array<const char*, kWorks> kNames{"F", "B or I", "I", "W"};

using Tallies = std::array<std::uint64_t, kWorks>;

void add(Tallies& tallies, KernelKind kind, std::uint64_t tally) {
  switch (kind) {
    case KernelKind::kForward:
      tallies[kForwards] += tally;
      return;
    case KernelKind::kBackward:
      tallies[kBackwards] += tally;
      return;
    case KernelKind::kInputGrad:
      tallies[kBackwards] += tally;
      tallies[kInputs] += tally;
      return;
    case KernelKind::kWeightGrad:
      tallies[kWeights] += tally;
      return;
    default:
      return;
  }
}

bool is_of(Work work, KernelKind kind) {
  switch (work) {
    case kForwards:
      return kind == KernelKind::kForward;
    case kBackwards:
      return kind == KernelKind::kBackward || kind == KernelKind::kInputGrad;
    case kInputs:
      return kind == KernelKind::kInputGrad;
    default:
      return kind == KernelKind::kWeightGrad;
  }
}

class Coverage {
 public:
  Coverage(const CheckWorld& world, const ScratchVector<const RangeFacts*>& facts_of)
      : world_(world), program_(*world.program) {
    for (int m = 0; m < program_.microbatches; ++m) once_ += microbatch_tally(m);
    // A Program whose table knows no computation is about communication only.
    any_ = std::any_of(program_.kernels.begin(), program_.kernels.end(),
                       [](const Kernel& kernel) { return kernel.kind == KernelKind::kForward; });
    if (!any_) return;
    const auto stages = static_cast<std::size_t>(program_.stages);
    ScratchVector<std::uint32_t> number(world.threads(), kNone32);  // of the pipeline, by first rank
    const std::size_t pipelines = world.threads() / static_cast<std::size_t>(program_.grid.pp());
    firsts_.reserve(pipelines);
    tallies_.reserve(pipelines * stages);
    for (std::size_t t = 0; t < world.threads(); ++t) {
      // The first rank is the lowest, so that pipelines come in the order of their first ranks.
      const Rank first = program_.grid.moved(static_cast<Rank>(t), Axis::kPp, 0);
      std::uint32_t& pipeline = number[static_cast<std::size_t>(first)];
      if (pipeline == kNone32) {
        pipeline = static_cast<std::uint32_t>(firsts_.size());
        firsts_.push_back(first);
        tallies_.resize(tallies_.size() + stages);
      }
      for (const auto& [kernel, tally] : facts_of[t]->tallies) {
        const Kernel& row = program_.kernels[kernel];
        if (row.stage >= program_.stages) continue;
        add(tallies_[pipeline * stages + row.stage], row.kind, tally);
        backwards_ = backwards_ || row.kind != KernelKind::kForward;
      }
    }
  }

  std::vector<Finding> run() {
    if (!any_) return {};
    const auto stages = static_cast<std::size_t>(program_.stages);
    for (std::size_t p = 0; p < firsts_.size(); ++p) {
      for (std::size_t s = 0; s < stages && findings_.size() < 8; ++s)
        stage(firsts_[p], static_cast<int>(s), tallies_[p * stages + s]);
    }
    return std::move(findings_);
  }

 private:
  void stage(Rank pipeline, int stage, const Tallies& tallies) {
    if (tallies[kForwards] != once_) explain(pipeline, stage, kForwards, kWorks);
    if (backwards_ && tallies[kBackwards] != once_) explain(pipeline, stage, kBackwards, kWorks);
    if (tallies[kInputs] != tallies[kWeights]) explain(pipeline, stage, kWeights, kInputs);
  }

  // Items of one kind of work, by microbatch.
  std::map<int, std::vector<std::pair<std::size_t, std::uint32_t>>> items(Rank pipeline, int stage,
                                                                          Work work) const {
    std::map<int, std::vector<std::pair<std::size_t, std::uint32_t>>> out;
    for (std::size_t t = 0; t < world_.threads(); ++t) {
      if (program_.grid.moved(static_cast<Rank>(t), Axis::kPp, 0) != pipeline) continue;
      for (std::uint32_t i = program_.threads[t].begin; i < program_.threads[t].end; ++i) {
        const Item item = program_.items[i];
        if (item_op(item) != ItemOp::kLaunch) continue;
        const Kernel& kernel = program_.kernels[item_ref(item)];
        if (kernel.stage == stage && is_of(work, kernel.kind)) out[item_microbatch(item)].emplace_back(t, i);
      }
    }
    return out;
  }

  // `twin` says for which microbatches the work is due; kWorks: for all.
  void explain(Rank pipeline, int stage, Work work, Work twin) {
    const auto done = items(pipeline, stage, work);
    const auto due = twin == kWorks ? done : items(pipeline, stage, twin);
    for (int m = 0; m < program_.microbatches; ++m) {
      const auto at = done.find(m);
      const std::size_t times = at == done.end() ? 0 : at->second.size();
      const std::size_t wanted = twin == kWorks || due.find(m) != due.end() ? 1 : 0;
      if (times == wanted) continue;
      Finding finding;
      finding.kind = FindingKind::kStructure;
      for (std::size_t i = 0; i < times && i < 4; ++i) {
        finding.operations.push_back(world_.operation(at->second[i].first, at->second[i].second));
      }
      if (times == 0) {
        OperationRef nobody;
        nobody.rank =
            program_.grid.moved(pipeline, Axis::kPp, program_.rank_of_stage[static_cast<std::size_t>(stage)]);
        nobody.microbatch = m;
        nobody.text = fmt::format("{} of stage {}, microbatch {}", kNames[work], stage, m);
        finding.operations.push_back(std::move(nobody));
      }
      finding.why = fmt::format("{} of stage {} for microbatch {} is computed {} times instead of {}",
                                kNames[work], stage, m, times, wanted);
      findings_.push_back(std::move(finding));
      return;
    }
  }

  const CheckWorld& world_;
  const Program& program_;
  std::uint64_t once_ = 0;  // every microbatch once
  bool any_ = false;
  bool backwards_ = false;
  ScratchVector<Rank> firsts_;      // of each pipeline
  ScratchVector<Tallies> tallies_;  // by pipeline, then stage
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> check_coverage(const CheckWorld& world,
                                    const ScratchVector<const RangeFacts*>& facts_of) {
  if (world.program->fragment) return {};
  return Coverage(world, facts_of).run();
}

}  // namespace plumbline::verify
