#include "engine/train/model_table.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace plumbline {
namespace {

Bytes gradients_of(const std::vector<ParameterSlice>& slices) {
  Bytes bytes = 0;
  for (const ParameterSlice& slice : slices) bytes += 4 * slice.size;
  return bytes;
}

// The lowering lays out buffers by the announced tensors, the worker by the stage's own.
Status check_tensors(const std::vector<ParameterSlice>& slices, const std::vector<ParamSize>& announced,
                     std::size_t stage) {
  bool equal = slices.size() == announced.size();
  for (std::size_t i = 0; equal && i < slices.size(); ++i)
    equal = slices[i].size == announced[i].numel && slices[i].tied == announced[i].shared_embedding;
  if (equal) return {};
  return fail(
      ErrorCode::kConfig,
      fmt::format("the model's sizes() do not list the {} parameter tensors of stage {} in their order",
                  slices.size(), stage));
}

Status check_sizes(const ModelTable& table, const ModelSizes& announced) {
  if (announced.parameters != table.parameters) {
    return fail(ErrorCode::kConfig,
                fmt::format("the model's sizes() announce {} parameter tensors, its stages have {}",
                            announced.parameters, table.parameters));
  }
  for (std::size_t stage = 0; stage < table.stages.size(); ++stage) {
    const Bytes bytes = gradients_of(table.stages[stage]);
    if (stage >= announced.grads.size() || announced.grads[stage] != bytes) {
      return fail(ErrorCode::kConfig,
                  fmt::format("the model's sizes() do not announce the {} bytes of gradients of stage {}",
                              bytes, stage));
    }
    if (stage >= announced.tensors.size())
      return fail(ErrorCode::kConfig, fmt::format("the model's sizes() list no tensors of stage {}", stage));
    PL_TRY(check_tensors(table.stages[stage], announced.tensors[stage], stage));
  }
  return {};
}

}  // namespace

std::vector<ParameterSlice> ModelTable::slices(const std::vector<int>& held) const {
  std::vector<ParameterSlice> out;
  for (const int stage : held) {
    const std::vector<ParameterSlice>& part = stages[static_cast<std::size_t>(stage)];
    out.insert(out.end(), part.begin(), part.end());
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
    int index = 0;
    for (const StageParameter& parameter : stages[static_cast<std::size_t>(stage)]->parameters()) {
      ParameterSlice slice;
      slice.name = parameter.name;
      slice.stage = stage;
      slice.index = index++;
      slice.tied = parameter.tied;
      slice.counted = !(parameter.tied && tied_global >= 0);
      slice.size = parameter.value.numel();
      slice.global = slice.counted ? table.parameters++ : tied_global;
      if (parameter.tied) {
        const bool placed = tied == 0 ? stage == 0 : stage == last;
        if (!placed)
          return fail(ErrorCode::kConfig,
                      fmt::format("tied parameter {} on stage {}", parameter.name, stage));
        tied_global = slice.global;
        ++tied;
      }
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

}  // namespace plumbline
