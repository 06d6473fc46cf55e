#include "engine/train/batches.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/base/rng.h"
#include "engine/model/precision.h"
#include "engine/model/toy_check.h"

namespace plumbline {
namespace {

Batch empty_batch(const RunConfig& config) {
  const auto options = at::TensorOptions().dtype(at::kLong);
  const std::int64_t rows = config.train.micro_batch_size, columns = config.model.seq_length;
  return {at::empty({rows, columns}, options), at::empty({rows, columns}, options)};
}

class TextBatches : public BatchSource {
 public:
  TextBatches(const RunConfig& config, const Text& text)
      : config_(&config), text_(&text), rng_(config.train.seed, "data") {}

  Batch training(std::int64_t consumed, int replica, int pass) const override {
    const int microbatch = pass / config_->schedule.slices;
    const std::string_view part = text_->training_part();
    const std::uint64_t places =
        static_cast<std::uint64_t>(part.size()) - static_cast<std::uint64_t>(config_->model.seq_length);
    Batch batch = empty_batch(*config_);
    for (int i = 0; i < config_->train.micro_batch_size; ++i) {
      const std::int64_t sample = consumed + first_sample(replica, microbatch) + i;
      fill(batch, i, part.substr(rng_.below(static_cast<std::uint64_t>(sample), places)));
    }
    return slice_of(batch, pass);
  }

  Batch evaluation(int step, int replica, int pass) const override {
    const int microbatch = pass / config_->schedule.slices;
    const std::string_view part = text_->held_out();
    const std::int64_t last = static_cast<std::int64_t>(part.size()) - config_->model.seq_length - 1;
    const std::int64_t all = samples_per_step(*config_) * config_->train.eval_iterations;
    Batch batch = empty_batch(*config_);
    for (int i = 0; i < config_->train.micro_batch_size; ++i) {
      const std::int64_t sample = step * samples_per_step(*config_) + first_sample(replica, microbatch) + i;
      fill(batch, i, part.substr(static_cast<std::size_t>(all > 1 ? last * sample / (all - 1) : 0)));
    }
    return slice_of(batch, pass);
  }

 private:
  Batch slice_of(const Batch& batch, int pass) const {
    const int slices = config_->schedule.slices;
    if (slices == 1) return batch;
    const std::int64_t length = config_->model.seq_length / slices, begin = pass % slices * length;
    return {batch.tokens.narrow(1, begin, length).contiguous(),
            batch.targets.narrow(1, begin, length).contiguous()};
  }

  std::int64_t first_sample(int replica, int microbatch) const {
    return (std::int64_t{microbatch} * config_->parallel.dp + replica) * config_->train.micro_batch_size;
  }

  void fill(Batch& batch, int row, std::string_view from) const {
    const std::int64_t length = config_->model.seq_length;
    std::int64_t* tokens = batch.tokens.data_ptr<std::int64_t>() + row * length;
    std::int64_t* targets = batch.targets.data_ptr<std::int64_t>() + row * length;
    for (std::int64_t i = 0; i < length; ++i) {
      tokens[i] = static_cast<unsigned char>(from[static_cast<std::size_t>(i)]);
      targets[i] = static_cast<unsigned char>(from[static_cast<std::size_t>(i + 1)]);
    }
  }

  const RunConfig* config_;
  const Text* text_;
  CounterRng rng_;
};

class ToyBatches : public BatchSource {
 public:
  explicit ToyBatches(const RunConfig& config) : config_(&config) {}
  Batch training(std::int64_t consumed, int replica, int microbatch) const override {
    return make(consumed / samples_per_step(*config_), replica, microbatch);
  }
  Batch evaluation(int step, int replica, int microbatch) const override {
    return make(step, replica, microbatch);
  }

 private:
  Batch make(std::int64_t step, int replica, int microbatch) const {
    Batch batch = empty_batch(*config_);
    const int entry = microbatch * config_->parallel.dp + replica;
    batch.tokens.fill_(entry);
    batch.targets.fill_(toy_weight(dtype_of(config_->train.precision), step, entry));
    return batch;
  }

  const RunConfig* config_;
};

}  // namespace

std::int64_t samples_per_step(const RunConfig& config) {
  return std::int64_t{config.schedule.microbatches} * config.parallel.dp * config.train.micro_batch_size;
}

Result<std::unique_ptr<BatchSource>> text_batches(const RunConfig& config, const Text& text) {
  const std::size_t needed = static_cast<std::size_t>(config.model.seq_length) + 2;
  if (text.held_out().size() < needed) {
    return fail(ErrorCode::kConfig,
                fmt::format("train.data: the held-out tenth of {} has {} bytes, model.seq_length={} needs {}",
                            text.source, text.held_out().size(), config.model.seq_length, needed));
  }
  if (config.model.vocab < 256) {
    return fail(ErrorCode::kConfig,
                fmt::format("model.vocab={} is below 256, and tokens are bytes", config.model.vocab));
  }
  return std::make_unique<TextBatches>(config, text);
}

Result<std::unique_ptr<BatchSource>> toy_batches(const RunConfig& config) {
  const int most = toy_max_entries(dtype_of(config.train.precision));
  const std::int64_t entries = std::int64_t{config.passes()} * config.parallel.dp;
  if (entries > most) {
    return fail(ErrorCode::kConfig,
                fmt::format("the toy model proves at most {} microbatches over all replicas in this "
                            "precision; schedule.microbatches * schedule.slices * parallel.dp is {}",
                            most, entries));
  }
  return std::make_unique<ToyBatches>(config);
}

}  // namespace plumbline
