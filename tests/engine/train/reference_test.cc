// The promise of DESIGN 5.6: what the simulated pipeline computes equals the sequential reference, bit for
// bit. And the reference is close to LibTorch's autograd of the model written in one piece.
#include "engine/train/reference.h"

#include <cmath>
#include <cstring>
#include <map>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/model/init.h"
#include "engine/program/lower.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

using test::Layout;

SequentialReference make_reference(const RunConfig& config, const BatchSource& batches) {
  Result<SequentialReference> reference = SequentialReference::create(
      config, **find_model(config.model.name), batches, backward_order_of(*schedule_of(config)));
  EXPECT_TRUE(reference) << (reference ? "" : reference.error().text());
  return std::move(*reference);
}

// Gradients as an update will use them, by parameter and use; each part where it begins.
struct SeenGradient {
  std::int64_t begin = 0;
  std::vector<float> values;
};
using SeenGradients = std::map<std::pair<int, bool>, std::vector<SeenGradient>>;  // by (global, counted)

SeenGradients gradients_of(const RankModel& model) {
  SeenGradients out;
  for (const RankModel::OwnPart& part : model.own_parts()) {
    const at::Tensor dense = part.gradient.contiguous();
    out[{part.slice->global, part.slice->counted}].push_back(
        {part.begin, {dense.data_ptr<float>(), dense.data_ptr<float>() + dense.numel()}});
  }
  return out;
}

void expect_same_gradients(const SequentialReference& reference, const SeenGradients& got, Rank rank) {
  const SeenGradients expected = gradients_of(reference.model());
  for (const auto& [parameter, parts] : got) {
    const std::vector<float>& whole = expected.at(parameter).front().values;
    for (const SeenGradient& part : parts) {
      ASSERT_EQ(
          std::memcmp(whole.data() + part.begin, part.values.data(), part.values.size() * sizeof(float)), 0)
          << "parameter " << parameter.first << " from element " << part.begin << " on rank " << rank;
    }
  }
}

// Three steps, so that parameters, moments and the scale have moved.
void compare(const Layout& layout, Precision precision) {
  SCOPED_TRACE(layout.name() + ", precision " + std::to_string(static_cast<int>(precision)));
  const std::unique_ptr<Trainer> trainer = test::make_trainer(test::small_config(layout, precision));
  ASSERT_NE(trainer, nullptr);
  const RunConfig& config = trainer->config();
  const Result<std::unique_ptr<BatchSource>> batches = text_batches(config, *trainer->text());
  ASSERT_TRUE(batches);
  SequentialReference reference = make_reference(config, **batches);
  std::map<Rank, SeenGradients> gradients;
  for (StageWorker* worker : trainer->workers()) {
    worker->observe_gradients(
        [&gradients](const StageWorker& by) { gradients[by.rank()] = gradients_of(by.model()); });
  }
  for (int step = 0; step < 3; ++step) {
    const Result<TrainOutcome> outcome = trainer->train_step();
    ASSERT_TRUE(outcome) << outcome.error().text();
    ASSERT_TRUE(outcome->completed);
    const SequentialReference::Step expected = reference.step(step * samples_per_step(config));
    const StepRow& row = trainer->record().steps.back();
    ASSERT_FALSE(expected.found_inf);
    EXPECT_EQ(row.loss, expected.loss);
    EXPECT_EQ(row.grad_norm, expected.norm);
    EXPECT_EQ(row.lr, expected.lr);
    ASSERT_EQ(gradients.size(), trainer->workers().size());
    for (const StageWorker* worker : trainer->workers())
      expect_same_gradients(reference, gradients[worker->rank()], worker->rank());
    EXPECT_EQ(row.params_digest, reference.params_digest());
    EXPECT_EQ(row.optimizer_digest, reference.optimizer_digest());
  }
}

const std::vector<Layout> kLayouts{
    {ScheduleKind::kOneFOneB, 1, 1, 3, 1},    {ScheduleKind::kGpipe, 2, 1, 4, 1},
    {ScheduleKind::kGpipe, 4, 1, 3, 2},       {ScheduleKind::kOneFOneB, 2, 1, 4, 1},
    {ScheduleKind::kOneFOneB, 4, 1, 6, 1},    {ScheduleKind::kOneFOneB, 8, 1, 8, 1},
    {ScheduleKind::kOneFOneB, 2, 1, 3, 3},    {ScheduleKind::kInterleaved, 4, 2, 8, 1},
    {ScheduleKind::kInterleaved, 4, 2, 4, 2}, {ScheduleKind::kInterleaved2022, 4, 2, 4, 1}};

TEST(Reference, SimulatedTrainingIsEqualInFp32) {
  for (const Layout& layout : kLayouts) compare(layout, Precision::kFp32);
}

TEST(Reference, SimulatedTrainingIsEqualInFp16) {
  for (const Layout& layout : {kLayouts[0], kLayouts[2], kLayouts[4], kLayouts[7], kLayouts[8]})
    compare(layout, Precision::kFp16);
}

TEST(Reference, SimulatedTrainingIsEqualInBf16) {
  for (const Layout& layout : {kLayouts[1], kLayouts[6], kLayouts[7]}) compare(layout, Precision::kBf16);
}

// The model in plain ATen, one piece, one batch of everything, no stage and no operation of ours.
class PlainGpt {
 public:
  explicit PlainGpt(const SequentialReference& reference, const RunConfig& config) : config_(&config) {
    for (const RankModel::OwnPart& part : reference.model().own_parts()) {
      if (part.slice->counted) values_[part.slice->name] = part.main.clone().requires_grad_(true);
    }
  }

  at::Tensor loss(const Batch& batch) {
    const std::int64_t h = config_->model.hidden, t = config_->model.seq_length;
    const at::Tensor table = at("embedding.tokens", {-1, h});
    at::Tensor x = at::embedding(table, batch.tokens) + at("embedding.positions", {t, h});
    for (int layer = 0; layer < config_->model.layers; ++layer)
      x = block(x, "layers." + std::to_string(layer) + ".");
    x = at::layer_norm(x, {h}, at("final.norm.weight", {h}), at("final.norm.bias", {h}), 1e-5);
    return at::cross_entropy_loss(at::matmul(x, table.t()).view({-1, config_->model.vocab}),
                                  batch.targets.view({-1}));
  }

  at::Tensor gradient(const std::string& name) { return values_.at(name).grad(); }

 private:
  at::Tensor at(const std::string& name, at::IntArrayRef shape) { return values_.at(name).view(shape); }

  at::Tensor block(const at::Tensor& x, const std::string& p) {
    const std::int64_t h = config_->model.hidden, f = config_->model.ffn_hidden, heads = config_->model.heads;
    const std::int64_t b = x.size(0), t = x.size(1);
    at::Tensor y = at::layer_norm(x, {h}, at(p + "attention.norm.weight", {h}),
                                  at(p + "attention.norm.bias", {h}), 1e-5);
    y = at::linear(y, at(p + "attention.qkv.weight", {3 * h, h}), at(p + "attention.qkv.bias", {3 * h}));
    const std::vector<at::Tensor> parts =
        y.view({b, t, 3, heads, h / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    at::Tensor scores =
        at::matmul(parts[0], parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(h / heads));
    scores = scores.masked_fill(at::ones({t, t}, at::kBool).triu(1), -INFINITY);
    y = at::matmul(at::softmax(scores, -1), parts[2]).transpose(1, 2).reshape({b, t, h});
    const at::Tensor z =
        x + at::linear(y, at(p + "attention.out.weight", {h, h}), at(p + "attention.out.bias", {h}));
    y = at::layer_norm(z, {h}, at(p + "mlp.norm.weight", {h}), at(p + "mlp.norm.bias", {h}), 1e-5);
    y = at::gelu(at::linear(y, at(p + "mlp.in.weight", {f, h}), at(p + "mlp.in.bias", {f})), "tanh");
    return z + at::linear(y, at(p + "mlp.out.weight", {h, f}), at(p + "mlp.out.bias", {h}));
  }

  const RunConfig* config_;
  std::map<std::string, at::Tensor> values_;
};

// Largest difference of a parameter's gradient over its largest entry. fp32: sums of at most vocab = 256
// terms through about 30 operations, each good for half an ulp a term if errors add up at random: 30 *
// sqrt(256) * 2^-24 = 3e-5, times 4. The 16-bit bounds are the same argument with one rounding to 11 or 8
// bits in each of the 60 tensors on the way and back.
double largest_distance(Precision precision) {
  Result<RunConfig> config =
      validate(test::small_config({ScheduleKind::kInterleaved, 4, 2, 4, 2}, precision), {}, Purpose::kRun);
  EXPECT_TRUE(config);
  const Result<Text> text = load_text(config->train.data);
  const Result<std::unique_ptr<BatchSource>> batches = text_batches(*config, *text);
  SequentialReference reference = make_reference(*config, **batches);
  PlainGpt plain(reference, *config);
  const int all = config->schedule.microbatches * config->parallel.dp;
  double loss = 0.0;
  for (int replica = 0; replica < config->parallel.dp; ++replica) {
    for (int m = 0; m < config->schedule.microbatches; ++m) {
      const at::Tensor one = plain.loss((*batches)->training(0, replica, m)) / static_cast<double>(all);
      loss += one.item<double>();
      torch::autograd::backward({one}, {at::ones({})});
    }
  }
  const SequentialReference::Step step = reference.step(0);
  EXPECT_NEAR(step.loss, loss, precision == Precision::kFp32 ? 1e-5 : 2e-2);
  double largest = 0.0;
  double squares = 0.0;  // of every parameter once, the tied one too
  for (const RankModel::OwnPart& part : reference.model().own_parts()) {
    const at::Tensor expected = plain.gradient(part.slice->name);
    const double size = expected.abs().max().item<double>();
    if (part.slice->counted) squares += expected.square().sum().item<double>();
    const double difference = (part.gradient - expected.view({-1})).abs().max().item<double>();
    // Keys share one bias that softmax cancels: its exact gradient is 0, so compare with the whole tensor's
    // size.
    largest = std::max(largest, difference / size);
  }
  EXPECT_NEAR(step.norm / std::sqrt(squares), 1.0, precision == Precision::kFp32 ? 1e-5 : 2e-2);
  return largest;
}

TEST(Reference, IsCloseToPlainAutogradOfTheWholeModel) {
  EXPECT_LE(largest_distance(Precision::kFp32), 1.2e-4);
  EXPECT_LE(largest_distance(Precision::kFp16), 60 * 0x1p-11);
  EXPECT_LE(largest_distance(Precision::kBf16), 60 * 0x1p-8);
}

}  // namespace
}  // namespace plumbline
