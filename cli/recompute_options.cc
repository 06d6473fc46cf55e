#include "cli/recompute_options.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace plumbline::cli {

std::shared_ptr<RecomputeOptions> add_recompute_options(CLI::App& app) {
  auto options = std::make_shared<RecomputeOptions>();
  app.add_option("--recompute-granularity", options->granularity,
                 "selective (attention's scores) or full (whole layers)");
  app.add_option("--recompute-method", options->method,
                 "uniform: all layers, kept in groups; block: the first layers of a stage");
  app.add_option("--recompute-num-layers", options->layers, "of a group, or of a stage's block");
  return options;
}

Status apply_recompute(const RecomputeOptions& options, ModelShape& shape) {
  const auto refuse = [](const char* flag, const std::string& value, const char* known) {
    return fail(ErrorCode::kUsage, fmt::format("{} '{}' is not one of {}", flag, value, known));
  };
  if (options.granularity.empty()) return {};
  if (options.granularity != "selective" && options.granularity != "full")
    return refuse("--recompute-granularity", options.granularity, "selective, full");
  if (options.method != "uniform" && options.method != "block")
    return refuse("--recompute-method", options.method, "uniform, block");
  if (options.layers < 1)
    return fail(ErrorCode::kUsage, fmt::format("--recompute-num-layers {} is below 1", options.layers));
  shape.recompute = options.granularity == "full" ? Recompute::kFull : Recompute::kSelective;
  shape.method = options.method == "block" ? RecomputeMethod::kBlock : RecomputeMethod::kUniform;
  shape.recompute_layers = options.layers;
  return {};
}

}  // namespace plumbline::cli
