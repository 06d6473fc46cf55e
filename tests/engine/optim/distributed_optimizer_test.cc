// One step of the distributed optimizer is one step of the replicated one, bit for bit.
#include "engine/optim/distributed_optimizer.h"

#include <thread>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "engine/optim/chained_optimizer.h"
#include "tests/engine/optim/distributed_support.h"
#include "tests/support/property.h"

namespace plumbline::test::distributed {
namespace {

Case draw_case() {
  Case c;
  c.type = *rc::gen::element(at::kFloat, at::kHalf, at::kBFloat16).as("precision");
  c.dp = *rc::gen::inRange(1, 9).as("dp");
  c.sizes = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int64_t>>(
                                   rc::gen::resize(60, rc::gen::inRange<std::int64_t>(0, 90))))
                 .as("sizes");
  if (c.sizes.size() > 4) c.sizes.resize(4);
  c.bucket_size = *rc::gen::oneOf(rc::gen::just<std::int64_t>(0), rc::gen::inRange<std::int64_t>(1, 200))
                       .as("bucket size");
  const int count = static_cast<int>(c.sizes.size());
  c.shared_embedding = *rc::gen::inRange(-1, count).as("shared embedding");
  c.groups = *rc::gen::inRange(1, 4).as("groups");
  c.clip = *rc::gen::element(0.0, 1.0, 1e6).as("clip");
  c.grad_reduce_in_fp32 = c.type == at::kFloat || *rc::gen::arbitrary<bool>().as("main gradients in fp32");
  if (*rc::gen::inRange(0, 4).as("rule") == 0) {
    c.rule.rule = BaseOptimizerOptions::Rule::kSgd;
    c.momentum = *rc::gen::element(0.0, 0.9).as("momentum");
  }
  if (c.momentum == 0.0 && c.rule.rule == BaseOptimizerOptions::Rule::kAdam && c.grad_reduce_in_fp32) {
    c.rule.precision_aware = *rc::gen::arbitrary<bool>().as("precision-aware states");
    c.rule.exp_avg_type = draw_type("first moment", {"f32", "bf16"});
    c.rule.exp_avg_sq_type = draw_type("second moment", {"f32", "f16"});
  }
  if (c.type == at::kHalf || (c.type == at::kBFloat16 && *rc::gen::arbitrary<bool>().as("scaler"))) {
    c.loss_scale = 4.0;
  }
  c.offload_fraction = *rc::gen::element(-1.0, -1.0, 0.4).as("offload fraction");
  if (*rc::gen::arbitrary<bool>().as("overflow")) {
    Injection injection;
    injection.step = *rc::gen::inRange(0, 2).as("  in step");
    injection.rank = *rc::gen::inRange(0, c.dp).as("  on rank");
    injection.param = *rc::gen::inRange(0, count).as("  parameter");
    injection.element = *rc::gen::inRange(0, 90).as("  element");
    const float inf = std::numeric_limits<float>::infinity();
    injection.value = *rc::gen::element(inf, -inf, std::numeric_limits<float>::quiet_NaN()).as("  value");
    c.injections.push_back(injection);
  }
  return c;
}

TEST(DistributedOptimizerProperty, AStepIsTheReplicatedStep) {
  check_cases(10'000, [] {
    const Case c = draw_case();
    Cluster cluster(c);
    Case plain = c;
    plain.offload_fraction = -1.0;
    plain.rule.precision_aware = false;  // the same moments, fed by fp32 gradients
    Replicated reference(plain);
    for (int step = 0; step < 2; ++step) {
      const StepOutcome outcome = cluster.train(step), expected = reference.train(step);
      RC_ASSERT(outcome.found_inf == expected.found_inf);
      RC_ASSERT(outcome.success == expected.success);
      if (expected.success && !std::isnan(*expected.grad_norm)) {
        RC_ASSERT(*outcome.grad_norm == *expected.grad_norm);
      }
      for (Rank& rank : cluster.ranks) RC_ASSERT(difference(rank, reference) == "");
    }
  });
}

// The same through step() and Collectives, every rank a thread.
void run_threads(const Case& c, int steps) {
  Replicated reference(c);
  std::vector<StepOutcome> expected;
  for (int step = 0; step < steps; ++step) expected.push_back(reference.train(step));
  const auto group = thread_group(c.dp);
  std::vector<Rank> ranks(static_cast<std::size_t>(c.dp));
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < c.dp; ++r) {
    threads.emplace_back([&, r] {
      const auto index = static_cast<std::size_t>(r);
      try {
        ranks[index] = make_rank(c, r, group[index]);
        for (int step = 0; step < steps; ++step) {
          ranks[index].zero();
          ranks[index].backward(c, step, r);
          // Overlap: one bucket may have been reduced during the backward.
          if (step % 2 == 1 && ranks[index].optimizer->buckets() > 0) {
            must(ranks[index].optimizer->reduce_scatter_bucket(0));
          }
          const StepOutcome got = must(ranks[index].optimizer->step());
          const StepOutcome& want = expected[static_cast<std::size_t>(step)];
          if (got.success != want.success || got.found_inf != want.found_inf ||
              got.grad_norm != want.grad_norm || got.num_zeros != want.num_zeros) {
            errors[index] += "outcome of step " + std::to_string(step) + "; ";
          }
        }
      } catch (const std::exception& error) {
        errors[index] += error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ASSERT_EQ(errors[r], "") << "rank " << r;
    EXPECT_EQ(difference(ranks[r], reference), "") << "rank " << r;
  }
}

TEST(DistributedOptimizer, StepsOverThreadsEqualTheReplicatedSteps) {
  Case c;
  c.loss_scale = 8.0;
  c.dp = 3;
  c.bucket_size = 100;
  c.log_num_zeros = true;
  c.injections = {{1, 2, 1, 17, std::numeric_limits<float>::infinity()}};
  run_threads(c, 4);
  c.type = at::kFloat;
  c.loss_scale = 0.0;
  c.injections.clear();
  run_threads(c, 3);
  c.type = at::kBFloat16;
  c.grad_reduce_in_fp32 = false;
  c.dp = 4;
  c.groups = 2;
  run_threads(c, 3);
}

// A chain takes its members through the whole step: gradients reduced, one norm, parameters gathered.
TEST(DistributedOptimizer, AChainOfTwoEqualsOneReplicatedOptimizer) {
  Case c;
  c.loss_scale = 8.0;
  c.dp = 3;
  c.sizes = {37, 130};
  c.injections = {{1, 2, 1, 17, std::numeric_limits<float>::infinity()}};
  Replicated reference(c);
  for (int step = 0; step < 3; ++step) reference.train(step);
  const auto group = thread_group(c.dp);
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < c.dp; ++r) {
    threads.emplace_back([&, r] {
      const auto& own = group[static_cast<std::size_t>(r)];
      std::vector<ParameterPtr> params = model_of(c);
      std::vector<std::shared_ptr<GradBuffer>> buffers;
      std::vector<std::unique_ptr<MegatronOptimizer>> members;
      MegatronOptimizerOptions options = options_of(c, r);
      options.grad_stats = own;
      for (const ParameterPtr& parameter : params) {
        GradBufferOptions buffer;
        buffer.layout.shards = c.dp;
        buffer.shard = r;
        buffers.push_back(must(GradBuffer::create({parameter}, buffer)));
        members.push_back(must(DistributedOptimizer::create(base_of(c, {parameter}), options, scaler_of(c),
                                                            {{buffers.back()}, own, 1.0f / 3.0f})));
      }
      const auto chain = must(ChainedOptimizer::create(options, std::move(members)));
      for (int step = 0; step < 3; ++step) {
        chain->zero_grad();
        for (int p = 0; p < 2; ++p) {
          buffers[static_cast<std::size_t>(p)]->zero();
          must(accumulate_main_grad(*params[static_cast<std::size_t>(p)], gradient_of(c, step, r, p)));
        }
        must(chain->step());
      }
      for (std::size_t p = 0; p < params.size(); ++p) {
        if (!same(params[p]->value, reference.params[p]->value))
          errors[static_cast<std::size_t>(r)] = "differs";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, (std::vector<std::string>{"", "", ""}));
}

TEST(DistributedOptimizer, RanksWithPaddingOnlyStepToo) {
  Case c;
  c.sizes = {3, 1};
  c.dp = 8;
  c.loss_scale = 2.0;
  c.groups = 3;  // and a group without any parameter
  run_threads(c, 2);
  Cluster cluster(c);
  EXPECT_FALSE(cluster.ranks[0].optimizer->is_stub());
  EXPECT_TRUE(cluster.ranks[7].optimizer->is_stub());
  EXPECT_EQ(cluster.ranks[7].optimizer->param_groups().size(), 3u);
}

TEST(DistributedOptimizer, ARankWithoutParametersTakesPart) {
  Case c;
  c.sizes = {};
  c.dp = 2;
  run_threads(c, 1);
}

TEST(DistributedOptimizer, ASharedEmbeddingLiesAtTheSamePlaceWhateverElseAStageHas) {
  Case first, last;
  first.dp = last.dp = 4;
  first.sizes = {300, 70, 64};  // the embedding comes first on one stage, last on the other
  first.loss_scale = last.loss_scale = 1.0;
  first.shared_embedding = 0;
  last.sizes = {65, 300};
  last.shared_embedding = 1;
  Cluster a(first), b(last);
  for (int r = 0; r < 4; ++r) {
    const auto range_of = [&](Cluster& cluster) {
      std::vector<std::int64_t> found;
      for (const DistributedOptimizer::Shard& shard :
           cluster.ranks[static_cast<std::size_t>(r)].optimizer->shards()) {
        if (shard.model->shared_embedding) found = {shard.range.param_begin, shard.range.param_end};
      }
      return found;
    };
    EXPECT_EQ(range_of(a), range_of(b)) << "rank " << r;
    EXPECT_EQ(range_of(a), (std::vector<std::int64_t>{r * 96, std::min<std::int64_t>(300, (r + 1) * 96)}));
  }
}

// Bytes of distinct storages.
class Counted {
 public:
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    for (const void* seen : seen_) {
      if (seen == tensor.storage().unsafeGetStorageImpl()) return;
    }
    seen_.push_back(tensor.storage().unsafeGetStorageImpl());
    bytes_ += static_cast<std::int64_t>(tensor.storage().nbytes());
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::vector<const void*> seen_;
  std::int64_t bytes_ = 0;
};

TEST(DistributedOptimizer, StateBytesAreTwoAndTwelveOverDp) {
  for (const int dp : {1, 2, 4, 8}) {
    Case c;
    c.dp = dp;
    c.sizes = {4096, 8192, 2048};  // multiples of every shard: no padding
    c.loss_scale = 2.0;
    Cluster cluster(c);
    cluster.train(0);
    for (Rank& rank : cluster.ranks) {
      Counted model, state;
      for (const ParameterPtr& parameter : rank.params) model.add(parameter->value);
      for (const DistributedOptimizer::Shard& shard : rank.optimizer->shards()) {
        model.add(shard.target->value);  // a view of the model: nothing more
        state.add(shard.main->value);
        const ParamState* own = rank.optimizer->find_state(*shard.main);
        state.add(own->exp_avg);
        state.add(own->exp_avg_sq);
      }
      const std::int64_t numel = 4096 + 8192 + 2048;
      EXPECT_EQ(model.bytes(), 2 * numel) << "dp " << dp;
      EXPECT_EQ(state.bytes(), 12 * numel / dp) << "dp " << dp;
    }
  }
}

TEST(DistributedOptimizer, MainCopiesOfFp32ParametersAreViewsOfTheModel) {
  Case c;
  c.type = at::kFloat;
  Cluster cluster(c);
  for (const DistributedOptimizer::Shard& shard : cluster.ranks[1].optimizer->shards()) {
    EXPECT_EQ(shard.target, nullptr);
    EXPECT_EQ(shard.main->value.data_ptr<float>(),
              shard.model->value.data_ptr<float>() + shard.range.param_begin);
  }
}

TEST(DistributedOptimizer, ABadGradientNamesTheRankThatMadeIt) {
  Case c;
  c.type = at::kBFloat16;
  c.dp = 2;
  c.injections = {{0, 1, 1, 3, std::numeric_limits<float>::quiet_NaN()}};
  const auto group = thread_group(c.dp);
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < c.dp; ++r) {
    threads.emplace_back([&, r] {
      Rank rank = make_rank(c, r);
      MegatronOptimizerOptions options = options_of(c, r);
      options.check_for_nan = true;
      options.grad_stats = group[static_cast<std::size_t>(r)];
      rank.params = model_of(c);
      GradBufferOptions buffer = rank.buffers.front()->options();
      rank.buffers = must(make_grad_buffers(rank.params, buffer, buffer));
      rank.optimizer = must(DistributedOptimizer::create(base_of(c, rank.params), options, {},
                                                         {rank.buffers, options.grad_stats, 0.5f}));
      rank.backward(c, 0, r);
      const Result<StepOutcome> outcome = rank.optimizer->step();
      messages[static_cast<std::size_t>(r)] = outcome ? "stepped" : outcome.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(messages[1].find("rank 1, bucket 0: the gradient of layers.1.w is NaN at element 3"),
            std::string::npos)
      << messages[1];
  EXPECT_NE(messages[0].find("another rank"), std::string::npos) << messages[0];
}

TEST(DistributedOptimizer, OffloadAndRestoreInBetweenChangesNothing) {
  Case c;
  c.loss_scale = 4.0;
  Cluster plain(c), moved(c);
  Replicated reference(c);
  for (int step = 0; step < 3; ++step) {
    reference.train(step);
    plain.train(step);
    for (Rank& rank : moved.ranks) {
      must(rank.optimizer->offload_to_cpu());
      rank.optimizer->copy_model_grads_to_main_grads();
      EXPECT_FALSE(rank.optimizer->unscale_local());
      must(rank.optimizer->restore_from_cpu());
    }
    moved.train(step);
    for (Rank& rank : moved.ranks) EXPECT_EQ(difference(rank, reference), "");
  }
}

TEST(DistributedOptimizer, Refusals) {
  const Case c;
  const auto error = [&](const auto& change, LossScaler scaler = *LossScaler::constant(1.0)) {
    Rank rank = make_rank(
        [] {
          Case with_scaler;
          with_scaler.loss_scale = 1.0;
          return with_scaler;
        }(),
        0);
    rank.params = model_of(c);
    GradBufferOptions buffer = rank.buffers.front()->options();
    rank.buffers = must(make_grad_buffers(rank.params, buffer, buffer));
    DistributedOptimizer::Placement placement{rank.buffers, nullptr, 1.0f};
    std::vector<ParamGroup> groups = groups_of(c, rank.params);
    change(groups, placement, rank);
    const auto made = DistributedOptimizer::create(std::make_unique<BaseOptimizer>(groups, c.rule),
                                                   options_of(c), scaler, placement);
    return made ? std::string("made") : made.error().message;
  };
  using Groups = std::vector<ParamGroup>;
  using Placement = DistributedOptimizer::Placement;
  EXPECT_EQ(error([](Groups&, Placement&, Rank&) {}), "made");
  EXPECT_NE(
      error([](Groups&, Placement& p, Rank&) { p.main_params_type = DType::kBF16; }).find("precision-aware"),
      std::string::npos);
  EXPECT_NE(error([](Groups&, Placement&, Rank&) {}, LossScaler()).find("fp16"), std::string::npos);
  EXPECT_NE(error([](Groups&, Placement& p, Rank&) { p.buffers.clear(); }).find("lies in 0 gradient buffers"),
            std::string::npos);
  EXPECT_NE(
      error([](Groups&, Placement& p, Rank&) { p.buffers.push_back(p.buffers[0]); }).find("in 2 gradient"),
      std::string::npos);
  EXPECT_NE(error([](Groups& g, Placement&, Rank&) { g[0].params.pop_back(); }).find("in no parameter group"),
            std::string::npos);
  EXPECT_NE(error([](Groups&, Placement& p, Rank&) { p.dp = alone(); }).find("shard 0 of 2"),
            std::string::npos);
  EXPECT_NE(error([](Groups&, Placement& p, Rank& rank) {
              GradBufferOptions whole = rank.buffers.front()->options();
              whole.layout.distributed = false;
              p.buffers = must(make_grad_buffers(rank.params, whole, whole));
            }).find("without shards"),
            std::string::npos);
}

}  // namespace
}  // namespace plumbline::test::distributed
