#include "engine/train/model_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/model/precision.h"
#include "engine/model/tensors.h"

namespace plumbline {
namespace {

std::size_t size_of_stage(const std::vector<ParameterSlice>& slices) {
  return slices.empty() ? 0 : slices.back().offset + slices.back().size;
}

Status check_sizes(const ModelTable& table, const ModelSizes& announced) {
  if (announced.parameters != table.parameters) {
    return fail(ErrorCode::kConfig,
                fmt::format("the model's sizes() announce {} parameter tensors, its stages have {}",
                            announced.parameters, table.parameters));
  }
  for (std::size_t stage = 0; stage < table.stages.size(); ++stage) {
    const Bytes bytes = static_cast<Bytes>(4 * size_of_stage(table.stages[stage]));
    if (stage < announced.grads.size() && announced.grads[stage] == bytes) continue;
    return fail(ErrorCode::kConfig,
                fmt::format("the model's sizes() do not announce the {} bytes of gradients of stage {}",
                            bytes, stage));
  }
  return {};
}

}  // namespace

std::vector<ParameterSlice> ModelTable::slices(const std::vector<int>& held) const {
  std::vector<ParameterSlice> out;
  std::size_t base = 0;
  for (const int stage : held) {
    const std::vector<ParameterSlice>& part = stages[static_cast<std::size_t>(stage)];
    for (ParameterSlice slice : part) {
      slice.offset += base;
      out.push_back(std::move(slice));
    }
    base += size_of_stage(part);
  }
  return out;
}

Result<ModelTable> describe_model(const std::vector<Stage*>& stages, const ModelSizes& announced) {
  ModelTable table;
  int tied_global = -1;
  int tied = 0;
  const int last = static_cast<int>(stages.size()) - 1;
  for (int stage = 0; stage <= last; ++stage) {
    std::vector<ParameterSlice> slices;
    std::size_t offset = 0;
    int index = 0;
    for (const StageParameter& parameter : stages[static_cast<std::size_t>(stage)]->parameters()) {
      ParameterSlice slice;
      slice.name = parameter.name;
      slice.stage = stage;
      slice.index = index++;
      slice.tied = parameter.tied;
      slice.counted = !(parameter.tied && tied_global >= 0);
      slice.decayed = parameter.value.dim() >= 2;
      slice.offset = offset;
      slice.size = static_cast<std::size_t>(parameter.value.numel());
      slice.global = slice.counted ? table.parameters++ : tied_global;
      if (parameter.tied) {
        const bool placed = tied == 0 ? stage == 0 : stage == last;
        if (!placed)
          return fail(ErrorCode::kConfig,
                      fmt::format("tied parameter {} on stage {}", parameter.name, stage));
        tied_global = slice.global;
        ++tied;
      }
      offset += slice.size;
      slices.push_back(std::move(slice));
    }
    table.stages.push_back(std::move(slices));
  }
  if (tied != 0 && tied != 2) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("{} tied parameters; there must be one on the first stage and one on the last", tied));
  }
  PL_TRY(check_sizes(table, announced));
  return table;
}

std::vector<float> flat_values(const std::vector<ParameterSlice>& slices, const std::vector<Stage*>& stages) {
  std::vector<float> values;
  for (const ParameterSlice& slice : slices) {
    const at::Tensor& tensor = stages[static_cast<std::size_t>(slice.stage)]
                                   ->parameters()[static_cast<std::size_t>(slice.index)]
                                   .value;
    values.resize(slice.offset + slice.size);
    widen(tensor.data_ptr(), dtype_of(tensor.scalar_type()), values.data() + slice.offset, slice.size);
  }
  return values;
}

}  // namespace plumbline
