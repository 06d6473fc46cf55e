// Megatron's --pipeline-model-parallel-layout (megatron/core/transformer/pipeline_parallel_layer_layout.py): which
// layers each stage holds, in the order in which a microbatch passes them.
//
//   Et*3|(tt|)*29,m|L      61 decoder layers: embedding and 3 of them, 29 stages of 2, a multi-token-prediction
//   layer, the
//                          loss
//
// E embedding, t decoder layer, m multi-token prediction, L loss; '|' ends a stage, and a stage may be empty; x*N
// repeats a letter or a bar, (...)*N a part; commas mean nothing. Stage s lies on rank s mod P.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

struct StageLayers {
  int layers = 0;  // decoder layers
  int mtp = 0;
  bool embedding = false;
  bool loss = false;

  bool operator==(const StageLayers&) const = default;
};

// Errors name the column: letters that stand for nothing, an open parenthesis, a count that is none or makes more
// than a million letters; and, with the rule: a number of stages that `ranks` does not divide, an embedding
// anywhere but in the first stage, a loss anywhere but in the last.
Result<std::vector<StageLayers>> parse_pipeline_layout(std::string_view text, int ranks);

// Decoder layers of all stages.
int layers_of(const std::vector<StageLayers>& stages);

}  // namespace plumbline
