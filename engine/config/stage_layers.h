// Which layers each stage holds, the one rule for models, estimates and imports. Stage s lies on rank s mod pp.
//
//   evenly          earlier stages one more where the number does not divide (a run refuses that)
//   first, last     model.first_layers of the first rank, model.last_layers of the last, the rest dealt out evenly
//                   over the other ranks; a rank's chunks have equal shares (--decoder-first-pipeline-num-layers)
//   ends as layers  the embedding, the loss or both take a layer's place in the first and the last stage
//                   (--account-for-embedding-in-pipeline-split)
//   layout          each stage as written (pipeline_layout.h)
//
// As Megatron's get_num_layers_to_build (megatron/core/transformer/transformer_block.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/pipeline_layout.h"
#include "engine/config/run_config.h"

namespace plumbline {

// What is wrong, for messages: "OPTION RULE — FIX".
struct LayerRule {
  std::string option, rule, fix;
};

struct LayerSplit {
  std::vector<StageLayers> stages;  // as many as the configuration has; empty if a rule is broken
  std::optional<LayerRule> broken;
};
LayerSplit split_layers(const RunConfig& config);

// Whether some option says more than "evenly".
bool has_layer_split(const ModelConfig& model);

// Of a valid configuration.
std::vector<StageLayers> stage_layers(const RunConfig& config);

// Decoder layers of a stage as numbers of the whole model, [begin, end).
struct LayerRange {
  int begin = 0;
  int end = 0;
};
LayerRange layer_range(const std::vector<StageLayers>& stages, int stage);

}  // namespace plumbline
