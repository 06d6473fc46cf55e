#include "engine/train/model_support.h"

#include <fmt/format.h>

#include "engine/config/names.h"

namespace plumbline {
namespace {

Status check_slices(const RunConfig& config, const ModelFamily& family, int slices) {
  // The toy model's entries are slices as well as microbatches.
  if (slices == 1 || family.name == "toy") return {};
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kConfig, fmt::format("schedule.slices={}: {}", slices, why));
  };
  if (!family.slices) {
    return refuse(fmt::format(
        "model {} computes whole sequences and keeps nothing of one slice for the next; use --slices 1, "
        "or --model gpt or toy",
        family.name));
  }
  if (config.model.seq_length % slices != 0)
    return refuse(fmt::format("does not divide model.seq_length={}", config.model.seq_length));
  if (config.memory.recompute != Recompute::kNone)
    return refuse("a slice's keys and values are kept for later ones; leave out --recompute-granularity");
  return {};
}

}  // namespace

Status check_model_support(const RunConfig& config, const ModelFamily& family, int slices) {
  if (config.memory.recompute != Recompute::kNone && !family.recomputes) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("memory.recompute={}: model {} keeps all of its activations; use none, or a model that "
                    "recomputes (gpt)",
                    name(config.memory.recompute), family.name));
  }
  return check_slices(config, family, slices);
}

}  // namespace plumbline
