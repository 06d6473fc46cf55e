#include "engine/config/stage_layers.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

LayerSplit refuse(const char* option, std::string rule, std::string fix) {
  return {{}, LayerRule{option, std::move(rule), std::move(fix)}};
}

std::vector<StageLayers> bare_stages(int count) {
  std::vector<StageLayers> stages(static_cast<std::size_t>(std::max(count, 1)));
  stages.front().embedding = true;
  stages.back().loss = true;
  return stages;
}

LayerSplit of_layout(const RunConfig& config) {
  Result<std::vector<StageLayers>> stages = parse_pipeline_layout(config.model.layout, config.parallel.pp);
  if (!stages) return refuse("model.layout", "is refused: " + stages.error().message, "correct it");
  const int count = static_cast<int>(stages->size());
  if (count != config.stages()) {
    return refuse("model.layout",
                  fmt::format("has {} stages, parallel.pp={} * schedule.chunks={} are {}", count,
                              config.parallel.pp, config.schedule.chunks, config.stages()),
                  fmt::format("use --vp {}", count / config.parallel.pp));
  }
  if (layers_of(*stages) != config.model.layers) {
    return refuse("model.layout",
                  fmt::format("has {} layers, model.layers is {}", layers_of(*stages), config.model.layers),
                  "make them equal, or leave --num-layers out");
  }
  return {std::move(*stages), {}};
}

LayerSplit of_ends(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const int ranks = config.parallel.pp, chunks = config.schedule.chunks;
  const bool first = model.first_layers > 0, last = model.last_layers > 0;
  const char* option = first ? "model.first_layers" : "model.last_layers";
  const int left = model.layers - model.first_layers - model.last_layers;
  const int others = ranks - (first ? 1 : 0) - (last ? 1 : 0);
  const bool shares = others > 0 ? left % (others * chunks) == 0 : left == 0 && others == 0;
  if (left < 0 || !shares) {
    return refuse(
        option, fmt::format("leaves {} layers for {} ranks of {} chunks", left, std::max(others, 0), chunks),
        "leave a multiple of them");
  }
  for (const auto& [name, layers] : {std::pair{"model.first_layers", model.first_layers},
                                     std::pair{"model.last_layers", model.last_layers}}) {
    if (layers % chunks != 0)
      return refuse(name, fmt::format("is not a multiple of schedule.chunks={}", chunks), "use a multiple");
  }
  LayerSplit out{bare_stages(ranks * chunks), {}};
  for (int stage = 0; stage < ranks * chunks; ++stage) {
    const int rank = stage % ranks;
    int layers = others > 0 ? left / (others * chunks) : 0;
    if (rank == 0 && first) layers = model.first_layers / chunks;
    if (rank == ranks - 1 && last) layers = model.last_layers / chunks;
    out.stages[static_cast<std::size_t>(stage)].layers = layers;
  }
  return out;
}

LayerSplit of_counted_ends(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const int stages = config.stages();
  const int ends = (model.embedding_as_layer ? 1 : 0) + (model.loss_as_layer ? 1 : 0);
  const char* option = model.embedding_as_layer ? "model.embedding_as_layer" : "model.loss_as_layer";
  const int each = (model.layers + ends) / stages;
  if ((model.layers + ends) % stages != 0) {
    return refuse(option,
                  fmt::format("makes {} layers of {}, no multiple of the {} stages", model.layers + ends,
                              model.layers, stages),
                  fmt::format("use --num-layers {}", (each + 1) * stages - ends));
  }
  LayerSplit out{bare_stages(stages), {}};
  for (StageLayers& stage : out.stages) stage.layers = each;
  if (model.embedding_as_layer) --out.stages.front().layers;
  if (model.loss_as_layer) --out.stages.back().layers;
  if (out.stages.front().layers >= 0 && out.stages.back().layers >= 0) return out;
  return refuse(option, "takes the place of a layer that is not there", "use more layers");
}

LayerSplit evenly(const RunConfig& config) {
  const int stages = std::max(1, config.stages());
  LayerSplit out{bare_stages(stages), {}};
  for (int stage = 0; stage < stages; ++stage) {
    out.stages[static_cast<std::size_t>(stage)].layers =
        config.model.layers / stages + (stage < config.model.layers % stages ? 1 : 0);
  }
  return out;
}

}  // namespace

bool has_layer_split(const ModelConfig& model) {
  return model.first_layers > 0 || model.last_layers > 0 || model.embedding_as_layer || model.loss_as_layer ||
         !model.layout.empty();
}

LayerSplit split_layers(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const bool ends = model.first_layers > 0 || model.last_layers > 0;
  const bool counted = model.embedding_as_layer || model.loss_as_layer;
  if (!model.layout.empty() && (ends || counted))
    return refuse("model.layout",
                  "says what each stage holds, and so do first_layers, last_layers and *_as_layer",
                  "leave one of them out");
  if (ends && counted)
    return refuse(model.embedding_as_layer ? "model.embedding_as_layer" : "model.loss_as_layer",
                  "does not go with first_layers or last_layers", "leave one of them out");
  if (!model.layout.empty()) return of_layout(config);
  if (ends) return of_ends(config);
  return counted ? of_counted_ends(config) : evenly(config);
}

std::vector<StageLayers> stage_layers(const RunConfig& config) {
  LayerSplit split = split_layers(config);
  PL_ASSERT_MSG(!split.broken, split.broken ? split.broken->option + " " + split.broken->rule : "");
  return std::move(split.stages);
}

LayerRange layer_range(const std::vector<StageLayers>& stages, int stage) {
  LayerRange range;
  for (int before = 0; before < stage; ++before)
    range.begin += stages[static_cast<std::size_t>(before)].layers;
  range.end = range.begin + stages[static_cast<std::size_t>(stage)].layers;
  return range;
}

}  // namespace plumbline
