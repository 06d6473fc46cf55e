#include "engine/train/run_arguments.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "engine/config/options.h"

namespace plumbline {
namespace {

constexpr const char* kData = "data_digest";
constexpr std::array<std::string_view, 6> kSections = {"parallel", "schedule",  "model",
                                                       "train",    "optimizer", "loss_scale"};

// Another value is another model.
constexpr std::array<std::string_view, 8> kModel = {"model.name",  "model.layers",     "model.hidden",
                                                    "model.heads", "model.ffn_hidden", "model.seq_length",
                                                    "model.vocab", "train.precision"};
// Another value changes what training does from here on.
constexpr std::array<std::string_view, 24> kTraining = {"train.seed",
                                                        "train.micro_batch_size",
                                                        "schedule.rampup",
                                                        "schedule.batch_steps",
                                                        "optimizer.lr",
                                                        "optimizer.min_lr",
                                                        "optimizer.decay",
                                                        "optimizer.beta1",
                                                        "optimizer.beta2",
                                                        "optimizer.eps",
                                                        "optimizer.momentum",
                                                        "optimizer.weight_decay",
                                                        "optimizer.clip_grad",
                                                        "optimizer.decoupled_weight_decay",
                                                        "optimizer.main_params",
                                                        "optimizer.exp_avg",
                                                        "optimizer.exp_avg_sq",
                                                        "loss_scale.constant",
                                                        "loss_scale.minimum",
                                                        "loss_scale.growth_factor",
                                                        "loss_scale.backoff_factor",
                                                        "loss_scale.window",
                                                        "loss_scale.hysteresis",
                                                        "loss_scale.rule"};

// "name is X here and was Y"; empty when both are the same or the checkpoint does not know the option.
std::string difference(const StateDict& saved, const StateDict& own, std::string_view name) {
  const StateValue *was = saved.find(name), *is = own.find(name);
  if (was == nullptr || is == nullptr || first_difference(*was, *is).empty()) return {};
  const auto* was_text = was->get<std::string>();
  const auto* is_text = is->get<std::string>();
  const auto text = [](const std::string* value) { return value == nullptr ? "?" : value->c_str(); };
  return fmt::format("{} is {} here and was {}", name, text(is_text), text(was_text));
}

}  // namespace

StateDict run_arguments(const RunConfig& config, const std::string& data_digest) {
  StateDict out;
  for (const Option& option : options()) {
    if (std::find(kSections.begin(), kSections.end(), option.section) != kSections.end())
      out[option.name()] = option.get(config);
  }
  out[kData] = data_digest;
  return out;
}

Status compare_arguments(const StateDict& saved, const RunConfig& config, const std::string& data_digest,
                         bool with_optim, std::vector<std::string>& notices) {
  const StateDict own = run_arguments(config, data_digest);
  std::vector<std::string> refused, changed;
  const auto look = [&](std::string_view name, std::vector<std::string>& out) {
    std::string text = difference(saved, own, name);
    if (!text.empty()) out.push_back(std::move(text));
  };
  for (const std::string_view name : kModel) look(name, refused);
  if (with_optim) look("optimizer.rule", refused);
  if (!refused.empty()) {
    return fail(ErrorCode::kState,
                fmt::format("this run and the checkpoint's do not fit: {} — give the same, or "
                            "load weights alone with --finetune",
                            fmt::join(refused, "; ")));
  }
  for (const std::string_view name : kTraining) look(name, changed);
  if (const StateValue* data = saved.find(kData);
      data != nullptr && !first_difference(*data, own.at(kData)).empty())
    changed.emplace_back("the training text is another one");
  if (!changed.empty())
    notices.push_back(fmt::format("not as in the run that was saved: {}", fmt::join(changed, "; ")));
  return {};
}

}  // namespace plumbline
