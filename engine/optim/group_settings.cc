// A parameter group's settings as a dictionary and back.
#include <optional>
#include <string>
#include <string_view>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/optim/base_optimizer.h"

namespace plumbline {
namespace {

template <typename T>
StateValue or_none(const std::optional<T>& value) {
  return value ? StateValue(*value) : StateValue();
}

// torch's switches, and the value that says what is done here anyway; without one any value is.
struct Switch {
  std::string_view name;
  std::optional<double> wanted;
};
constexpr Switch kSwitches[] = {{"amsgrad", 0.0},
                                {"maximize", 0.0},
                                {"nesterov", 0.0},
                                {"dampening", 0.0},
                                {"bias_correction", 1.0},
                                {"foreach", std::nullopt},
                                {"fused", std::nullopt},
                                {"capturable", std::nullopt},
                                {"differentiable", std::nullopt},
                                {"params", std::nullopt}};

std::optional<double> as_number(const StateValue& value) {
  if (const auto* real = value.get<double>()) return *real;
  if (const auto* integer = value.get<std::int64_t>()) return static_cast<double>(*integer);
  return std::nullopt;
}

tl::unexpected<Error> wrong(std::string_view key, const StateValue& value, std::string_view wanted) {
  return fail(ErrorCode::kState, fmt::format("{}: is {}; it must be {}", key, describe(value), wanted));
}

Status read(std::string_view key, const StateValue& value, double& out) {
  const std::optional<double> number = as_number(value);
  if (!number) return wrong(key, value, "a number");
  out = *number;
  return {};
}

Status read(std::string_view key, const StateValue& value, std::optional<double>& out) {
  out = as_number(value);
  if (!out && !value.none()) return wrong(key, value, "a number or None");
  return {};
}

template <typename T>
Status read_optional(std::string_view key, const StateValue& value, std::optional<T>& out,
                     std::string_view wanted) {
  const T* found = value.get<T>();
  if (found == nullptr && !value.none()) return wrong(key, value, wanted);
  out = found == nullptr ? std::nullopt : std::optional<T>(*found);
  return {};
}

Status read_betas(const StateValue& value, ParamGroup& group) {
  const auto* list = value.get<StateList>();
  if (list == nullptr || list->size() != 2) return wrong("betas", value, "a list of two numbers");
  PL_TRY(read("betas[0]", list->front(), group.beta1));
  return read("betas[1]", list->back(), group.beta2);
}

// torch keeps a step as a tensor too.
Status read_step(const StateValue& value, ParamGroup& group) {
  if (const auto* tensor = value.get<at::Tensor>(); tensor != nullptr && tensor->numel() == 1) {
    group.step = static_cast<std::int64_t>(tensor->item<double>());
    return {};
  }
  return read_optional(std::string_view("step"), value, group.step,
                       "an integer, a one-element tensor or None");
}

Status read_switch(std::string_view key, const StateValue& value) {
  for (const Switch& entry : kSwitches) {
    if (entry.name != key) continue;
    if (!entry.wanted || value.none()) return {};
    std::optional<double> number = as_number(value);
    if (const bool* flag = value.get<bool>()) number = *flag ? 1.0 : 0.0;
    if (number == entry.wanted) return {};
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: is set to something else than {}, which plumbline's optimizers do not do",
                            key, *entry.wanted));
  }
  return fail(ErrorCode::kState, fmt::format("{}: not a setting of a parameter group", key));
}

}  // namespace

StateDict group_settings(const ParamGroup& group) {
  return {{"lr", group.lr},
          {"betas", StateList{group.beta1, group.beta2}},
          {"eps", group.eps},
          {"weight_decay", group.weight_decay},
          {"momentum", group.momentum},
          {"wd_mult", or_none(group.wd_mult)},
          {"lr_mult", or_none(group.lr_mult)},
          {"is_expert_parallel", or_none(group.is_expert_parallel)},
          {"is_decoupled_lr", or_none(group.is_decoupled_lr)},
          {"max_lr", or_none(group.max_lr)},
          {"min_lr", or_none(group.min_lr)},
          {"start_wd", or_none(group.start_wd)},
          {"end_wd", or_none(group.end_wd)},
          {"optimizer", or_none(group.optimizer)},
          {"step", or_none(group.step)}};
}

Status apply_group_settings(const StateDict& settings, ParamGroup& group) {
  ParamGroup next = group;
  for (const auto& [key, value] : settings) {
    Status read_one;
    if (key == "lr") {
      read_one = read(key, value, next.lr);
    } else if (key == "betas") {
      read_one = read_betas(value, next);
    } else if (key == "eps") {
      read_one = read(key, value, next.eps);
    } else if (key == "weight_decay") {
      read_one = read(key, value, next.weight_decay);
    } else if (key == "momentum") {
      read_one = read(key, value, next.momentum);
    } else if (key == "wd_mult" || key == "pre_wd_mult") {
      read_one = read(key, value, next.wd_mult);
    } else if (key == "lr_mult" || key == "pre_lr_mult") {
      read_one = read(key, value, next.lr_mult);
    } else if (key == "is_expert_parallel") {
      read_one = read_optional(key, value, next.is_expert_parallel, "a bool or None");
    } else if (key == "is_decoupled_lr") {
      read_one = read_optional(key, value, next.is_decoupled_lr, "a bool or None");
    } else if (key == "max_lr") {
      read_one = read(key, value, next.max_lr);
    } else if (key == "min_lr") {
      read_one = read(key, value, next.min_lr);
    } else if (key == "start_wd") {
      read_one = read(key, value, next.start_wd);
    } else if (key == "end_wd") {
      read_one = read(key, value, next.end_wd);
    } else if (key == "optimizer") {
      read_one = read_optional(key, value, next.optimizer, "a text or None");
    } else if (key == "step") {
      read_one = read_step(value, next);
    } else {
      read_one = read_switch(key, value);
    }
    if (!read_one) return read_one;
  }
  group = std::move(next);
  return {};
}

}  // namespace plumbline
