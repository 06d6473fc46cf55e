// Flags for activation recomputation, spelled as Megatron spells them, of the commands that estimate: runs keep
// everything.
#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"
#include "engine/program/model_shape.h"

namespace CLI {
class App;
}

namespace plumbline::cli {

struct RecomputeOptions {
  std::string granularity;  // empty: none
  std::string method = "uniform";
  int layers = 1;
};

std::shared_ptr<RecomputeOptions> add_recompute_options(CLI::App& app);
// Into a shape; what is wrong with a flag is a usage error.
Status apply_recompute(const RecomputeOptions& options, ModelShape& shape);

}  // namespace plumbline::cli
