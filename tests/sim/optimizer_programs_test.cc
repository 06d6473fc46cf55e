// The training step's end, in all its variants, simulated: no mode hangs, the checker certifies each Program, and
// the bytes are right - reduce-scatter and all-gather work in place on padded buckets, the tied embedding is added
// up shard by shard, and overlapped gathers are there when a forward reads.
#include "tests/engine/program/optimizer_programs.h"

#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include <gtest/gtest.h>

#include "engine/program/param_layout.h"
#include "engine/program/run_plan.h"
#include "sim/simulator.h"
#include "sim/verify/check.h"

namespace plumbline {
namespace {

Result<Program> lowered(const RunConfig& config) { return program_of(config, default_sizes(config)); }

std::vector<NcclModel> all_modes() {
  std::vector<NcclModel> out;
  for (const SendCompletion send : {SendCompletion::kRendezvous, SendCompletion::kAlwaysEager}) {
    for (const CrossComm cross : {CrossComm::kFree, CrossComm::kStrict}) {
      for (const Connect connect : {Connect::kWarm, Connect::kCold}) {
        for (const bool blocking : {false, true}) {
          NcclModel model;
          model.send = send;
          model.cross = cross;
          model.connect = connect;
          model.launch_blocking = blocking;
          out.push_back(model);
        }
      }
    }
  }
  return out;
}

TEST(OptimizerPrograms, CompleteInEveryModeAndAreCertified) {
  for (const RunConfig& config : test::all_optimizer_variants()) {
    SCOPED_TRACE(test::describe(config));
    const auto program = lowered(config);
    ASSERT_TRUE(program) << program.error().text();
    const auto linked = link_program(*program);
    ASSERT_TRUE(linked) << linked.error().text();
    for (const NcclModel& model : all_modes()) {
      for (const double found : {0.0, 1.0}) {
        SimOptions options;
        options.model = model;
        options.time = TimeModel(config);
        options.read_value = found;
        RunRecord record = record_for(*program);
        const auto step = Simulator(*linked, options).run_step(0, record);
        ASSERT_TRUE(step) << step.error().text();
        EXPECT_TRUE(step->completed) << model.name();
        EXPECT_TRUE(step->findings.empty()) << model.name() << " " << step->findings.front().why;
      }
    }
    const auto verdict = check_program(*linked);
    ASSERT_TRUE(verdict) << verdict.error().text();
    EXPECT_TRUE(verdict->holds()) << (verdict->findings.empty() ? "a mode hangs"
                                                                : verdict->findings.front().why);
  }
}

// An overlapped reduction runs beside other chunks' backwards, a gather beside the first forwards.
TEST(OptimizerPrograms, OverlapTakesTimeOffTheStep) {
  RunConfig config = test::config_of(ScheduleKind::kInterleaved, 4, 2, 8, 0, 4);
  config.optimizer.distributed = true;
  config.time.link = {1'000, 1e9};
  const auto makespan = [](const RunConfig& c) {
    const auto program = lowered(c);
    const auto linked = link_program(*program);
    return simulate(*linked, NcclModel{}, TimeModel(c)).value().makespan;
  };
  const Nanoseconds plain = makespan(config);
  config.optimizer.overlap_grad_reduce = true;
  const Nanoseconds reduced = makespan(config);
  config.optimizer.overlap_param_gather = true;
  const Nanoseconds gathered = makespan(config);
  EXPECT_LT(reduced, plain);
  EXPECT_LT(gathered, reduced);
}

TEST(RunPlan, EveryProgramIsCertifiedAndSharesItsPersistentSlots) {
  RunConfig config = test::config_of(ScheduleKind::kInterleaved, 3, 2, 6, 0, 2);
  config.schedule.batch_steps = "0:6 12:12";
  config.train.iterations = 6;
  config.train.precision = Precision::kFp16;
  config.optimizer.distributed = config.optimizer.overlap_grad_reduce =
      config.optimizer.overlap_param_gather = true;
  RunPlanOptions wanted;
  wanted.evaluation = true;
  const auto plan = plan_run(config, default_sizes(config), wanted);
  ASSERT_TRUE(plan) << plan.error().text();
  ASSERT_TRUE(plan->evaluation && plan->param_sync);
  ASSERT_EQ(plan->programs().size(), 4U);
  std::map<std::string, Bytes> persistent;
  for (const Program* program : plan->programs()) {
    const auto linked = link_program(*program);
    ASSERT_TRUE(linked) << linked.error().text();
    const auto verdict = check_program(*linked);
    ASSERT_TRUE(verdict);
    EXPECT_TRUE(verdict->holds()) << program->name;
    for (const SlotClass& slot : program->slots) {
      if (!slot.persistent) continue;
      EXPECT_EQ(persistent.try_emplace(slot.name, slot.bytes).first->second, slot.bytes) << slot.name;
    }
  }
}

// --- bytes

// What every rank's buffers must hold: small whole numbers, whose fp32 sums are exact.
struct Expectation {
  explicit Expectation(const RunConfig& c) : config(c), sizes(default_sizes(c)) {
    for (int stage = 0; stage < config.stages(); ++stage) {
      layouts.push_back(
          ParamLayout::create(sizes.tensors[static_cast<std::size_t>(stage)],
                              param_layout_options(config.optimizer, config.parallel.dp,
                                                   stage % config.parallel.pp, stage / config.parallel.pp))
              .value());
    }
  }

  // Contribution of one backward to element `i` of the stage's buffer.
  static float gradient(int stage, std::int64_t i, int replica, int microbatch) {
    return static_cast<float>(i % 97 + 1 + 100 * stage + 1000 * replica + 7 * microbatch);
  }
  // Summed over microbatches and replicas.
  float sum(int stage, std::int64_t i) const {
    float total = 0.0f;
    for (int replica = 0; replica < config.parallel.dp; ++replica) {
      for (int m = 0; m < config.schedule.microbatches; ++m) total += gradient(stage, i, replica, m);
    }
    return total;
  }
  // Place of the stage's k-th tied parameter, if it has one.
  std::vector<ParamPlace> tied(int stage) const {
    std::vector<ParamPlace> out;
    const auto& tensors = sizes.tensors[static_cast<std::size_t>(stage)];
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].shared_embedding)
        out.push_back(layouts[static_cast<std::size_t>(stage)].place(static_cast<int>(i)));
    }
    return out;
  }
  // With both uses of the tied embedding added up.
  float reduced(int stage, std::int64_t i) const {
    const int last = config.stages() - 1;
    const auto within = [&](const ParamPlace& place) { return i >= place.begin && i < place.end; };
    for (const ParamPlace& place : tied(stage)) {
      if (!within(place)) continue;
      const std::int64_t element = i - place.begin;
      return sum(0, tied(0).front().begin + element) + sum(last, tied(last).back().begin + element);
    }
    return sum(stage, i);
  }
  bool owns(int stage, std::int64_t i, int replica) const {
    const ParamLayout& layout = layouts[static_cast<std::size_t>(stage)];
    if (!config.optimizer.distributed) return true;
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      const std::int64_t shard = layout.shard_numel(static_cast<int>(b));
      const std::int64_t begin = layout.buckets()[b].begin + replica * shard;
      if (i >= begin && i < begin + shard) return true;
    }
    return false;
  }

  RunConfig config;
  ModelSizes sizes;
  std::vector<ParamLayout> layouts;
};

// One rank. Parameters are 16-bit patterns: the step's number and the element's.
class Rankful : public Worker {
 public:
  Rankful(const Expectation& expected, Rank rank) : expected_(expected), rank_(rank) {}

  int step = 0;
  int checked_gradients = 0, checked_parameters = 0;

  Status bind(const SlotClass& slot, const SlotMemory& memory) override {
    EXPECT_TRUE(bound_.emplace(slot.name, memory.data).second) << slot.name << " is bound twice";
    EXPECT_EQ(memory.bytes, slot.bytes);
    if (slot.kind == SlotKind::kParameters) {
      for (std::int64_t i = 0; i < memory.bytes / 2; ++i) shorts(memory)[i] = pattern(0, i);
    }
    return {};
  }

  Status launch(const KernelCall& call, SlotStore& slots) override {
    call_ = &call;
    slots_ = &slots;
    const Kernel& kernel = call.program->kernels[call.kernel];
    switch (kernel.kind) {
      case KernelKind::kForward:
        check_parameters(kernel);
        break;
      case KernelKind::kBackward:
        check_parameters(kernel);
        for_slots(kernel, SlotKind::kMainGrads, [&](int stage, const SlotMemory& memory) {
          for (std::int64_t i = 0; i < memory.bytes / 4; ++i)
            floats(memory)[i] += Expectation::gradient(stage, i, replica(), call.microbatch);
        });
        break;
      case KernelKind::kZeroGrad:
        for_slots(kernel, SlotKind::kMainGrads, [](int, const SlotMemory& memory) {
          std::memset(memory.data, 0, static_cast<std::size_t>(memory.bytes));
        });
        break;
      case KernelKind::kCollectTied:
      case KernelKind::kMergeTied:
        tied(kernel);
        break;
      case KernelKind::kNormSums:
        check_gradients(kernel);
        break;
      case KernelKind::kOptimizerStep:
      case KernelKind::kValidateStep:
        for_slots(kernel, SlotKind::kParameters, [&](int stage, const SlotMemory& memory) {
          for (std::int64_t i = 0; i < memory.bytes / 2; ++i) {
            // What is not one's own is spoilt, so that only the gather can make it right.
            shorts(memory)[i] =
                expected_.owns(stage, i, replica()) ? pattern(step, i) : std::uint16_t{0xDEAD};
          }
        });
        break;
      default:
        break;
    }
    return {};
  }

  // After a param-sync, or a step that gathers at its end.
  void expect_parameters_of(int number) {
    for (const auto& [name, data] : bound_) {
      if (name.rfind("params.", 0) != 0) continue;
      const int stage = std::stoi(name.substr(7));
      for (std::int64_t i = 0; i < expected_.layouts[static_cast<std::size_t>(stage)].numel(); ++i) {
        ASSERT_EQ(reinterpret_cast<const std::uint16_t*>(data)[i], pattern(number, i))
            << "rank " << rank_ << " " << name << " element " << i;
      }
    }
  }

 private:
  static std::uint16_t pattern(int number, std::int64_t i) {
    return static_cast<std::uint16_t>(i * 7 + number * 1000 + 1);
  }
  static float* floats(const SlotMemory& memory) { return reinterpret_cast<float*>(memory.data); }
  static std::uint16_t* shorts(const SlotMemory& memory) {
    return reinterpret_cast<std::uint16_t*>(memory.data);
  }
  int replica() const { return expected_.config.grid.coordinate(rank_, Axis::kDp); }

  template <typename Visit>
  void for_slots(const Kernel& kernel, SlotKind kind, Visit visit) {
    std::vector<std::uint16_t> seen;
    for (const auto* list : {&kernel.reads, &kernel.frees, &kernel.writes}) {
      for (const std::uint16_t row : *list) {
        const SlotClass& slot = call_->program->slots[row];
        if (slot.kind != kind || std::find(seen.begin(), seen.end(), row) != seen.end()) continue;
        seen.push_back(row);
        const SlotMemory memory = slots_->slot({row, kNoMicrobatch});
        ASSERT_NE(memory.data, nullptr) << slot.name;
        if (slot.persistent) EXPECT_EQ(memory.data, bound_.at(slot.name)) << slot.name << " has moved";
        visit(slot.stage, memory);
      }
    }
  }

  void tied(const Kernel& kernel) {
    SlotMemory travelling;
    for_slots(kernel, SlotKind::kTiedGrad, [&](int, const SlotMemory& memory) { travelling = memory; });
    std::vector<float*> parts;
    std::int64_t count = 0;
    for_slots(kernel, SlotKind::kMainGrads, [&](int stage, const SlotMemory& memory) {
      for (const ParamPlace& place : expected_.tied(stage)) {
        const ParamLayout& layout = expected_.layouts[static_cast<std::size_t>(stage)];
        count = place.end - place.begin;
        std::int64_t begin = place.begin;
        if (expected_.config.optimizer.distributed) {
          count = layout.shard_numel(place.bucket);
          begin = layout.buckets()[static_cast<std::size_t>(place.bucket)].begin + replica() * count;
        }
        parts.push_back(floats(memory) + begin);
      }
    });
    for (std::int64_t i = 0; i < count; ++i) {
      if (kernel.kind == KernelKind::kCollectTied) {
        floats(travelling)[i] = parts.front()[i];
      } else if (travelling.data != nullptr) {
        for (float* part : parts) part[i] = floats(travelling)[i];
      } else {
        parts[0][i] = parts[1][i] = parts[0][i] + parts[1][i];
      }
    }
  }

  void check_gradients(const Kernel& kernel) {
    for_slots(kernel, SlotKind::kMainGrads, [&](int stage, const SlotMemory& memory) {
      for (std::int64_t i = 0; i < memory.bytes / 4; ++i) {
        if (!expected_.owns(stage, i, replica())) continue;
        const bool padding_of_tied = is_padding(stage, i);
        if (padding_of_tied) continue;
        ASSERT_EQ(floats(memory)[i], expected_.reduced(stage, i))
            << "rank " << rank_ << " stage " << stage << " element " << i;
        ++checked_gradients;
      }
    });
  }

  bool is_padding(int stage, std::int64_t i) const {
    for (const ParamPlace& place : expected_.layouts[static_cast<std::size_t>(stage)].places()) {
      if (i >= place.begin && i < place.end) return false;
    }
    return true;
  }

  // Those of the step before, whole.
  void check_parameters(const Kernel& kernel) {
    for_slots(kernel, SlotKind::kParameters, [&](int stage, const SlotMemory& memory) {
      for (std::int64_t i = 0; i < memory.bytes / 2; ++i) {
        ASSERT_EQ(shorts(memory)[i], pattern(step - 1, i))
            << "rank " << rank_ << " stage " << stage << " element " << i << " in step " << step;
      }
      ++checked_parameters;
    });
  }

  const Expectation& expected_;
  Rank rank_;
  std::map<std::string, std::byte*> bound_;
  const KernelCall* call_ = nullptr;
  SlotStore* slots_ = nullptr;
};

void run_three_steps(const RunConfig& config) {
  const Expectation expected(config);
  const auto train = lowered(config);
  ASSERT_TRUE(train) << train.error().text();
  const auto linked = link_program(*train);
  ASSERT_TRUE(linked);
  std::vector<std::unique_ptr<Rankful>> ranks;
  std::vector<Worker*> workers;
  for (Rank rank = 0; rank < config.grid.world(); ++rank) {
    ranks.push_back(std::make_unique<Rankful>(expected, rank));
    workers.push_back(ranks.back().get());
  }
  SimOptions options;
  options.time = TimeModel(config);
  Simulator simulator(*linked, options, workers);
  RunRecord record = record_for(*train);
  const auto run = [&](int number) {
    for (const auto& rank : ranks) rank->step = number;
    const auto step = simulator.run_step(number, record);
    ASSERT_TRUE(step) << step.error().text();
    EXPECT_TRUE(step->completed);
    EXPECT_TRUE(step->findings.empty()) << step->findings.front().why;
  };
  for (int number = 1; number <= 3; ++number) run(number);
  // Evaluation sees the parameters of the last step, and leaves them.
  const auto forward = evaluation_schedule_of(config);
  ASSERT_TRUE(forward);
  const auto evaluation = lower(config, *forward, default_sizes(config), {StepTail::kEvaluate});
  ASSERT_TRUE(evaluation) << evaluation.error().text();
  const auto linked_evaluation = link_program(*evaluation);
  simulator.set_program(*linked_evaluation);
  run(4);
  const auto sync = lower_param_sync(config, *schedule_of(config), default_sizes(config));
  ASSERT_TRUE(sync) << sync.error().text();
  const auto linked_sync = link_program(*sync);
  simulator.set_program(*linked_sync);
  run(4);
  int checked_gradients = 0;  // a rank may own padding only
  for (const auto& rank : ranks) {
    checked_gradients += rank->checked_gradients;
    if (config.optimizer.distributed) {
      EXPECT_GT(rank->checked_parameters, 0);
      rank->expect_parameters_of(3);
    }
  }
  EXPECT_GT(checked_gradients, 0);
}

TEST(OptimizerPrograms, BytesAreRight) {
  for (RunConfig config : test::all_optimizer_variants()) {
    SCOPED_TRACE(test::describe(config));
    config.model.hidden = 8;
    config.model.heads = 2;
    config.model.seq_length = 4;
    config.model.vocab = 16;
    if (config.optimizer.bucket_size > 0) config.optimizer.bucket_size = 300;
    run_three_steps(config);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(OptimizerPrograms, BytesAreRightWithMorePadding) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 2, 1, 2, 0, 6);
  config.model.hidden = 8;
  config.model.heads = 2;
  config.model.seq_length = 4;
  config.model.vocab = 5;  // 40 elements over 6 shards of 64: most own padding only
  config.train.precision = Precision::kBf16;
  config.optimizer.distributed = true;
  config.optimizer.bucket_size = 100;
  run_three_steps(config);
}

// A bucket's all-gather on one member against its neighbour's on the other.
TEST(OptimizerPrograms, ASwappedBucketIsFound) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 1, 1, 1, 0, 2);
  config.optimizer.distributed = true;
  config.optimizer.bucket_size = 20'000;
  Program program = lowered(config).value();
  // Thread 1 gets items of its own, in which two equal buckets change places.
  const Thread first = program.threads[0];
  const auto begin = static_cast<std::uint32_t>(program.items.size());
  const std::vector<Item> copy(program.items.begin() + first.begin, program.items.begin() + first.end);
  program.items.insert(program.items.end(), copy.begin(), copy.end());
  program.threads[1] = {1, begin, static_cast<std::uint32_t>(program.items.size())};
  const auto bucket = [&](Item item) -> const Endpoint* {
    if (item_op(item) != ItemOp::kOp) return nullptr;
    const Endpoint& endpoint = program.endpoints[item_ref(item)];
    return endpoint.kind == EndpointKind::kReduceScatter ? &endpoint : nullptr;
  };
  std::optional<std::uint32_t> swapped;
  for (std::uint32_t i = begin; i < program.threads[1].end && !swapped; ++i) {
    for (std::uint32_t j = i + 1; j < program.threads[1].end && !swapped; ++j) {
      const Endpoint* a = bucket(program.items[i]);
      const Endpoint* b = bucket(program.items[j]);
      if (a == nullptr || b == nullptr || a->bytes != b->bytes) continue;
      std::swap(program.items[i], program.items[j]);
      swapped = i;
    }
  }
  ASSERT_TRUE(swapped) << "no two equal buckets";
  const auto linked = link_program(program);
  const auto verdict = check_program(*linked);
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(verdict->holds());
  ASSERT_FALSE(verdict->findings.empty());
  EXPECT_EQ(verdict->findings.front().kind, FindingKind::kCollectiveMismatch);
  RunRecord record = record_for(program);
  const auto step = Simulator(*linked, {}).run_step(0, record);
  ASSERT_TRUE(step);
  ASSERT_FALSE(step->findings.empty());
  EXPECT_NE(step->findings.front().why.find("of the slot against"), std::string::npos)
      << step->findings.front().why;
}

}  // namespace
}  // namespace plumbline
