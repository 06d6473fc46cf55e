#include "engine/checkpoint/async_save.h"

#include <utility>

#include <ATen/ATen.h>

namespace plumbline {
namespace {

ShardedStateDict snapshot(const ShardedStateDict& state) {
  ShardedStateDict copy = state;
  for (ShardedTensor& tensor : copy.tensors) {
    if (tensor.data.defined())
      tensor.data = tensor.data.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true).contiguous();
  }
  for (ShardedObject& object : copy.objects) object.value = clone(object.value);
  return copy;
}

}  // namespace

AsyncSaver::AsyncSaver(FileLayer& files, std::unique_ptr<ControlChannel> channel, std::string directory)
    : files_(files), channel_(std::move(channel)), directory_(std::move(directory)) {}

AsyncSaver::~AsyncSaver() {
  if (thread_.joinable()) thread_.join();
}

Status AsyncSaver::start(std::int64_t iteration, const ShardedStateDict& state, const AliasTable& aliases,
                         SaveOptions options, const std::string& directory) {
  if (const Result<std::optional<Saved>> before = wait(); !before) return tl::unexpected(before.error());
  done_ = 0;
  total_ = 0;
  options.progress = [this, given = std::move(options.progress)](std::uint64_t done, std::uint64_t total,
                                                                 std::string_view what) {
    total_ = total;
    done_ = done;
    if (given) given(done, total, what);
  };
  running_ = true;
  thread_ = std::thread([this, iteration, copy = snapshot(state), aliases, options = std::move(options),
                         into = directory.empty() ? directory_ : directory] {
    outcome_ = save_sharded(files_, *channel_, into, iteration, copy, aliases, options);
    running_ = false;
  });
  return {};
}

Result<std::optional<Saved>> AsyncSaver::wait() {
  if (thread_.joinable()) thread_.join();
  if (!outcome_) return std::optional<Saved>{};
  Result<Saved> outcome = std::move(*outcome_);
  outcome_.reset();
  if (!outcome) return tl::unexpected(outcome.error());
  return std::optional<Saved>(std::move(*outcome));
}

}  // namespace plumbline
