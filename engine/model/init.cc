#include "engine/model/init.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "engine/base/rng.h"
#include "engine/model/precision.h"
#include "engine/model/tensors.h"

namespace plumbline {
namespace {

StageParameter fill(const StageSpec& spec, std::string name, at::IntArrayRef shape,
                    const std::function<double(std::uint64_t)>& value) {
  const DType dtype = dtype_of(spec.config->train.precision);
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(scalar_type_of(dtype)));
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(value(i));
  narrow(values.data(), dtype, tensor.data_ptr(), values.size());
  tensor.requires_grad_(true);
  StageParameter parameter;
  parameter.name = std::move(name);
  parameter.value = std::move(tensor);
  return parameter;
}

}  // namespace

StageParameter normal_parameter(const StageSpec& spec, std::string name, at::IntArrayRef shape, double std) {
  const CounterRng rng(spec.config->train.seed, name);
  return fill(spec, std::move(name), shape,
              [&](std::uint64_t i) { return std == 0.0 ? 0.0 : std * rng.normal(i); });
}

StageParameter constant_parameter(const StageSpec& spec, std::string name, at::IntArrayRef shape,
                                  double value) {
  return fill(spec, std::move(name), shape, [value](std::uint64_t) { return value; });
}

ModelSizes activation_sizes(const RunConfig& config) {
  ModelSizes sizes;
  sizes.activation_dtype = dtype_of(config.train.precision);
  sizes.activation = Bytes{config.train.micro_batch_size} * config.model.seq_length * config.model.hidden *
                     dtype_bytes(sizes.activation_dtype);
  return sizes;
}

void add_stage_sizes(const std::vector<StageParameter>& parameters, ModelSizes& sizes) {
  Bytes grads = 0;
  std::vector<ParamSize> tensors;
  for (const StageParameter& parameter : parameters) {
    grads += 4 * parameter.value.numel();
    tensors.push_back({parameter.value.numel(), parameter.tied});
    const bool copy = parameter.tied && sizes.tied_grad > 0;
    if (!copy) ++sizes.parameters;
    if (parameter.tied) sizes.tied_grad = 4 * parameter.value.numel();
  }
  sizes.grads.push_back(grads);
  sizes.tensors.push_back(std::move(tensors));
  sizes.stash.push_back(static_cast<Bytes>(parameters.size()) * sizes.activation);
}

}  // namespace plumbline
