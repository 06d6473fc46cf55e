#include "engine/train/model_groups.h"

#include <memory>
#include <utility>

#include <ATen/ATen.h>

#include "engine/optim/parameter.h"

namespace plumbline {

Result<std::vector<GroupKey>> group_keys_of_model(const ModelFamily& family, const RunConfig& config) {
  std::vector<ParameterPtr> all;
  for (int stage = 0; stage < config.stages(); ++stage) {
    const std::unique_ptr<Stage> made = family.make_stage({stage, config.stages(), &config});
    for (const StageParameter& given : made->parameters()) {
      auto parameter = std::make_shared<Parameter>();
      parameter->name = given.name;
      parameter->value = given.value;
      parameter->embedding_or_output = given.tied || given.embedding_or_output;
      all.push_back(std::move(parameter));
    }
  }
  return group_keys({all}, config.optimizer, {});
}

}  // namespace plumbline
