#include "props/generators.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/rng.h"
#include "engine/config/validate.h"

namespace plumbline::props {
namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : rng_(seed, "config") {}
  int between(int low, int high) {
    return low + static_cast<int>(rng_.below(index_++, static_cast<std::uint64_t>(high - low + 1)));
  }
  bool coin() { return between(0, 1) == 1; }

 private:
  CounterRng rng_;
  std::uint64_t index_ = 0;
};

void draw_schedule(Draw& draw, const ConfigLimits& limits, RunConfig& config) {
  constexpr ScheduleKind kKinds[] = {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB,
                                     ScheduleKind::kInterleaved, ScheduleKind::kInterleaved2022,
                                     ScheduleKind::kForwardOnly};
  ScheduleConfig& schedule = config.schedule;
  schedule.kind = kKinds[draw.between(0, 4)];
  const bool interleaved =
      schedule.kind == ScheduleKind::kInterleaved || schedule.kind == ScheduleKind::kInterleaved2022;
  const int pp = draw.between(interleaved ? 2 : 1, std::max(limits.ranks, 2));
  config.parallel.pp = pp;
  config.parallel.dp = draw.between(1, limits.replicas);
  schedule.chunks = interleaved ? draw.between(2, std::max(limits.chunks, 2)) : 1;
  schedule.microbatches = draw.between(1, limits.microbatches);
  if (interleaved) schedule.microbatches = pp * draw.between(1, std::max(limits.microbatches / pp, 1));
  schedule.p2p = draw.coin() ? P2pStyle::kBatched : P2pStyle::kSeparate;
  constexpr CommMap kMaps[] = {CommMap::kOne, CommMap::kPair, CommMap::kDirection, CommMap::kMegatron};
  schedule.comm_map = kMaps[draw.between(0, 3)];
  schedule.deallocate_outputs = draw.coin();
}

}  // namespace

RunConfig random_config(std::uint64_t seed, const ConfigLimits& limits) {
  Draw draw(seed);
  RunConfig config;
  draw_schedule(draw, limits, config);
  config.model.layers = config.stages();
  config.train.precision = draw.coin() ? Precision::kFp16 : Precision::kFp32;
  for (auto* costs :
       {&config.time.forward, &config.time.backward, &config.time.input_grad, &config.time.weight_grad}) {
    *costs = {draw.between(1, 4) * Nanoseconds{100'000}};
  }
  const Validation checked = validate_all(config, {}, Purpose::kCheck);
  PL_ASSERT_MSG(checked.ok(), checked.errors.front().text());
  return checked.config;
}

std::string config_words(const RunConfig& config) {
  constexpr const char* kKinds[] = {"gpipe",        "1f1b", "interleaved", "interleaved-2022",
                                    "forward-only", "csv"};
  constexpr const char* kMaps[] = {"one", "pair", "direction", "megatron"};
  return fmt::format("{} pp={} vp={} m={} dp={} p2p={} map={} {}",
                     kKinds[static_cast<int>(config.schedule.kind)], config.parallel.pp,
                     config.schedule.chunks, config.schedule.microbatches, config.parallel.dp,
                     config.schedule.p2p == P2pStyle::kBatched ? "batched" : "separate",
                     kMaps[static_cast<int>(config.schedule.comm_map)],
                     config.train.precision == Precision::kFp16 ? "fp16" : "fp32");
}

}  // namespace plumbline::props
