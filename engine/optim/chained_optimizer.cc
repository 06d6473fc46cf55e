#include "engine/optim/chained_optimizer.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

bool same_group(const Collective& a, const Collective& b) {
  return &a == &b || (a.size() == 1 && b.size() == 1);
}

// Whether a member may be driven with the chain's options.
Status check_member(const MegatronOptimizerOptions& chain, const MegatronOptimizerOptions& member,
                    std::size_t index) {
  const auto differ = [&](const char* what, double one, double other) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("{} of member {} is {}, of the chain {}; a chain has one setting for all its members",
                    what, index, one, other));
  };
  if (member.clip_grad != chain.clip_grad) return differ("clip_grad", member.clip_grad, chain.clip_grad);
  if (member.norm_type != chain.norm_type) return differ("norm_type", member.norm_type, chain.norm_type);
  if (member.log_norm != chain.log_norm) return differ("log_norm", member.log_norm, chain.log_norm);
  if (member.log_num_zeros != chain.log_num_zeros) {
    return differ("log_num_zeros", member.log_num_zeros, chain.log_num_zeros);
  }
  if (member.check_for_nan != chain.check_for_nan) {
    return differ("check_for_nan", member.check_for_nan, chain.check_for_nan);
  }
  if (member.grad_norm_skip_threshold != chain.grad_norm_skip_threshold) {
    return differ("grad_norm_skip_threshold", member.grad_norm_skip_threshold,
                  chain.grad_norm_skip_threshold);
  }
  return {};
}

bool equal_scalers(const LossScaler* a, const LossScaler* b) {
  return a == nullptr || b == nullptr ? a == b : *a == *b;
}

}  // namespace

Result<std::unique_ptr<ChainedOptimizer>> ChainedOptimizer::create(
    MegatronOptimizerOptions options, std::vector<std::unique_ptr<MegatronOptimizer>> members) {
  PL_TRY(check_megatron_options(options));
  for (std::size_t i = 0; i < members.size(); ++i) {
    PL_TRY(check_member(options, members[i]->options(), i));
    if (equal_scalers(members[i]->scaler(), members[0]->scaler())) continue;
    return fail(
        ErrorCode::kConfig,
        fmt::format("the loss scaler of member {} is not that of member 0; the loss is scaled once, so all "
                    "members begin with the same scaler",
                    i));
  }
  const bool decision_given = options.grad_stats != nullptr;
  std::unique_ptr<ChainedOptimizer> chain(new ChainedOptimizer(std::move(options), std::move(members)));
  if (decision_given || chain->members_.empty()) return chain;
  if (!chain->grads_states_parallel_group_is_shared()) {
    return fail(ErrorCode::kConfig,
                "the members of a chain have different grad-stats groups and none was given that agrees on "
                "overflow; give the group of all ranks that share the decision");
  }
  chain->options_.grad_stats = chain->get_grad_stats_parallel_group();
  return chain;
}

ChainedOptimizer::ChainedOptimizer(MegatronOptimizerOptions options,
                                   std::vector<std::unique_ptr<MegatronOptimizer>> members)
    : MegatronOptimizer(std::move(options)), members_(std::move(members)) {}

Result<MegatronOptimizer*> ChainedOptimizer::optimizer() const {
  if (members_.size() == 1) return members_.front().get();
  return fail(
      ErrorCode::kState,
      fmt::format("the chain has {} members; `optimizer` is the member of a chain of one", members_.size()));
}

bool ChainedOptimizer::grads_states_parallel_group_is_shared() const {
  for (const auto& member : members_) {
    const auto* nested = dynamic_cast<const ChainedOptimizer*>(member.get());
    if (nested != nullptr && !nested->grads_states_parallel_group_is_shared()) return false;
  }
  for (const auto& member : members_) {
    if (!same_group(*member->get_grad_stats_parallel_group(),
                    *members_[0]->get_grad_stats_parallel_group())) {
      return false;
    }
  }
  return true;
}

const std::shared_ptr<Collective>& ChainedOptimizer::get_grad_stats_parallel_group() const {
  if (members_.empty()) return options_.grad_stats;
  PL_ASSERT_MSG(grads_states_parallel_group_is_shared(),
                "members of the chain have different grad-stats groups");
  return members_[0]->get_grad_stats_parallel_group();
}

std::vector<ParameterPtr> ChainedOptimizer::get_parameters() const {
  std::vector<ParameterPtr> all;
  for (const auto& member : members_) {
    const std::vector<ParameterPtr> own = member->get_parameters();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<at::Tensor> ChainedOptimizer::get_main_grads_for_grad_norm() const {
  std::vector<at::Tensor> all;
  for (const auto& member : members_) {
    const std::vector<at::Tensor> own = member->get_main_grads_for_grad_norm();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<at::Tensor> ChainedOptimizer::main_gradients() const {
  std::vector<at::Tensor> all;
  for (const auto& member : members_) {
    const std::vector<at::Tensor> own = member->main_gradients();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<ParamGroup*> ChainedOptimizer::param_groups() {
  std::vector<ParamGroup*> all;
  for (const auto& member : members_) {
    const std::vector<ParamGroup*> own = member->param_groups();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

ParamState* ChainedOptimizer::find_state(const Parameter& parameter) {
  for (const auto& member : members_) {
    if (ParamState* state = member->find_state(parameter)) return state;
  }
  return nullptr;
}

bool ChainedOptimizer::is_stub() const {
  for (const auto& member : members_) {
    if (!member->is_stub()) return false;
  }
  return true;
}

void ChainedOptimizer::copy_model_grads_to_main_grads() {
  for (const auto& member : members_) member->copy_model_grads_to_main_grads();
}

Result<bool> ChainedOptimizer::unscale_local_with_norm(LocalNorm& norm) {
  PL_ASSERT(has_local_norm());
  norm = LocalNorm{};
  norm.p = options_.norm_type;
  return unscale(&norm);
}

Result<bool> ChainedOptimizer::unscale(LocalNorm* norm) {
  for (const auto& member : members_) {
    if (equal_scalers(member->scaler(), scaler())) continue;
    return fail(
        ErrorCode::kState,
        fmt::format("rank {}: the members' loss scalers differ (scale {} and {}); their states were changed "
                    "apart from each other, load the chain's",
                    options_.rank, scaler() == nullptr ? 1.0f : scaler()->scale(),
                    member->scaler() == nullptr ? 1.0f : member->scaler()->scale()));
  }
  PL_TRY(check_recorded_scale());
  forget_recorded_scale();
  bool found = false;
  for (const auto& member : members_) {  // all of them, also after one was found
    LocalNorm part;
    const Result<bool> own =
        norm == nullptr ? member->unscale_local() : member->unscale_local_with_norm(part);
    if (!own) return own;
    if (norm != nullptr) add_norm(*norm, part);
    found = found || *own;
  }
  return found;
}

Status ChainedOptimizer::check_for_nan_local() const {
  for (const auto& member : members_) PL_TRY(member->check_for_nan_local());
  return {};
}

LocalNorm ChainedOptimizer::norm_local() const {
  PL_ASSERT_MSG(
      grads_states_parallel_group_is_shared(),
      "with separate grad-stats groups there is no one local norm; reduced_norm() adds the parts up");
  LocalNorm sum;
  sum.p = options_.norm_type;
  for (const auto& member : members_) add_norm(sum, member->norm_local());
  return sum;
}

std::int64_t ChainedOptimizer::count_zeros_local() const {
  PL_ASSERT_MSG(grads_states_parallel_group_is_shared(),
                "with separate grad-stats groups there is no one local count; use count_zeros()");
  std::int64_t zeros = 0;
  for (const auto& member : members_) zeros += member->count_zeros_local();
  return zeros;
}

Status ChainedOptimizer::finish_step(double norm) {
  for (const auto& member : members_) PL_TRY(member->finish_step(norm));
  return {};
}

void ChainedOptimizer::update_scaler(bool found_inf) {
  for (const auto& member : members_) member->update_scaler(found_inf);
}

Status ChainedOptimizer::step_with_ready_grads() {
  for (const auto& member : members_) PL_TRY(member->step_with_ready_grads());
  return {};
}

Status ChainedOptimizer::sync_gradients() {
  for (const auto& member : members_) PL_TRY(member->sync_gradients());
  return {};
}

Status ChainedOptimizer::sync_params() {
  for (const auto& member : members_) PL_TRY(member->sync_params());
  return {};
}

Result<LocalNorm> ChainedOptimizer::reduced_norm() {
  if (grads_states_parallel_group_is_shared()) return MegatronOptimizer::reduced_norm();
  LocalNorm sum;
  sum.p = options_.norm_type;
  for (const auto& member : members_) {
    const Result<LocalNorm> own = member->reduced_norm();
    if (!own) return own;
    add_norm(sum, *own);
  }
  return sum;
}

Result<std::int64_t> ChainedOptimizer::count_zeros() {
  if (grads_states_parallel_group_is_shared()) return MegatronOptimizer::count_zeros();
  std::int64_t zeros = 0;
  for (const auto& member : members_) {
    const Result<std::int64_t> own = member->count_zeros();
    if (!own) return own;
    zeros += *own;
  }
  return zeros;
}

void ChainedOptimizer::zero_grad(bool set_to_none) {
  forget_recorded_scale();
  for (const auto& member : members_) member->zero_grad(set_to_none);
}

at::Tensor ChainedOptimizer::get_loss_scale() const {
  return members_.empty() ? loss_scale_tensor(1.0f) : members_[0]->get_loss_scale();
}

const LossScaler* ChainedOptimizer::scaler() const {
  return members_.empty() ? nullptr : members_[0]->scaler();
}

void ChainedOptimizer::set_scaler(const LossScaler& scaler) {
  for (const auto& member : members_) member->set_scaler(scaler);
}

void ChainedOptimizer::init_state() {
  for (const auto& member : members_) member->init_state();
}

Status ChainedOptimizer::offload_to_cpu() {
  for (const auto& member : members_) PL_TRY(member->offload_to_cpu());
  return {};
}

Status ChainedOptimizer::restore_from_cpu() {
  for (const auto& member : members_) PL_TRY(member->restore_from_cpu());
  return {};
}

}  // namespace plumbline
