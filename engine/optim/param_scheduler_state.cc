// Saving and loading of the parameter scheduler. Loading works on a copy of the options, which replaces
// them when every setting has been read and the whole is a legal schedule.
#include <initializer_list>
#include <type_traits>

#include <fmt/format.h>

#include "engine/optim/param_scheduler.h"
#include "engine/optim/scheduler_names.h"

namespace plumbline {
namespace {

// How a setting is read from a state and shown in a message.
Result<double> read(const StateDict& state, std::string_view key, double) { return state.number(key); }
Result<std::int64_t> read(const StateDict& state, std::string_view key, std::int64_t) {
  return state.integer(key);
}
template <typename Style>
Result<Style> read(const StateDict& state, std::string_view key, Style) {
  const Result<std::string> word = state.text(key);
  PL_TRY(word);
  if constexpr (std::is_same_v<Style, DecayStyle>) return decay_style_of_name(*word);
  if constexpr (std::is_same_v<Style, WsdStyle>) return wsd_style_of_name(*word);
  if constexpr (std::is_same_v<Style, WdStyle>) return wd_style_of_name(*word);
}

std::string show(double value) { return fmt::format("{}", value); }
std::string show(std::int64_t value) { return fmt::format("{}", value); }
template <typename Style>
std::string show(Style value) {
  return std::string(megatron_name(value));
}

// The first of some names that the state has, else the last one, for the message.
std::string_view present(const StateDict& state, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (state.contains(name)) return name;
  }
  return *(names.end() - 1);
}

class Loader {
 public:
  Loader(const StateDict& state, const ParamSchedulerOptions& options, std::vector<std::string>& notices)
      : state_(state), options_(options), notices_(notices) {}

  // `value` is this run's setting, and what it is to be afterwards.
  template <typename T>
  Status take(std::initializer_list<std::string_view> names, T& value) {
    const std::string_view key = present(state_, names);
    const Result<T> saved = read(state_, key, value);
    PL_TRY(saved);
    if (*saved == value) return {};
    if (!options_.use_checkpoint && !options_.override_checkpoint) {
      return fail(
          ErrorCode::kState,
          fmt::format("{} of the scheduler was saved as {}, this run has {}; make them equal, or choose with "
                      "use_checkpoint_opt_param_scheduler or override_opt_param_scheduler",
                      key, show(*saved), show(value)));
    }
    if (options_.use_checkpoint) {
      notices_.push_back(fmt::format("{} of the scheduler is {}: taken from the checkpoint (this run has {})",
                                     key, show(*saved), show(value)));
      value = *saved;
    } else {
      notices_.push_back(fmt::format("{} of the scheduler is {}: this run's (the checkpoint has {})", key,
                                     show(value), show(*saved)));
    }
    return {};
  }

  template <typename T>
  Status take_if_there(std::string_view name, T& value) {
    return state_.contains(name) ? take({name}, value) : Status{};
  }

 private:
  const StateDict& state_;
  const ParamSchedulerOptions& options_;
  std::vector<std::string>& notices_;
};

}  // namespace

StateDict OptimizerParamScheduler::state_dict() const {
  const ParamSchedulerOptions& o = options_;
  return {{"max_lr", o.max_lr},
          {"lr_warmup_steps", o.lr_warmup_steps},
          {"num_steps", num_steps_},
          {"lr_decay_style", show(o.lr_decay_style)},
          {"lr_decay_steps", o.lr_decay_steps},
          {"min_lr", o.min_lr},
          {"start_wd", o.start_wd},
          {"end_wd", o.end_wd},
          {"wd_incr_style", show(o.wd_incr_style)},
          {"wd_incr_steps", o.wd_incr_steps},
          {"init_lr", o.init_lr},
          {"wsd_decay_steps", o.wsd_decay_steps},
          {"lr_wsd_decay_style", show(o.wsd_decay_style)}};
}

Status OptimizerParamScheduler::load_state_dict(const StateDict& state, std::vector<std::string>* notices) {
  ParamSchedulerOptions next = options_;
  std::vector<std::string> said;
  Loader loader(state, options_, said);
  PL_TRY(loader.take({"start_lr", "max_lr"}, next.max_lr));
  PL_TRY(loader.take({"min_lr"}, next.min_lr));
  PL_TRY(loader.take_if_there("init_lr", next.init_lr));
  PL_TRY(loader.take({"warmup_iter", "warmup_steps", "lr_warmup_steps"}, next.lr_warmup_steps));
  PL_TRY(loader.take({"end_iter", "decay_steps", "lr_decay_steps"}, next.lr_decay_steps));
  PL_TRY(loader.take({"decay_style", "lr_decay_style"}, next.lr_decay_style));
  if (next.lr_decay_style == DecayStyle::kWsd) {
    PL_TRY(loader.take_if_there("wsd_decay_steps", next.wsd_decay_steps));
    PL_TRY(loader.take_if_there("lr_wsd_decay_style", next.wsd_decay_style));
  }
  if (state.contains("start_wd")) {
    PL_TRY(loader.take({"start_wd"}, next.start_wd));
    PL_TRY(loader.take({"end_wd"}, next.end_wd));
    PL_TRY(loader.take({"wd_incr_steps"}, next.wd_incr_steps));
    PL_TRY(loader.take({"wd_incr_style"}, next.wd_incr_style));
  }
  const Result<std::int64_t> steps = state.integer(present(state, {"num_iters", "num_steps"}));
  PL_TRY(steps);
  if (*steps < 0) {
    return fail(ErrorCode::kState,
                fmt::format("the scheduler was saved after {} steps; the count cannot be negative", *steps));
  }
  PL_TRY(check(next));
  PL_TRY(check_groups(next, groups_));
  options_ = next;
  num_steps_ = *steps;
  step(0);
  if (notices != nullptr) notices->insert(notices->end(), said.begin(), said.end());
  return {};
}

}  // namespace plumbline
