// Every optimizer of the stack through a file and back: random parameters, groups without any, groups in another order,
// and files that lack a key, have one too many, or name a parameter twice.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/checkpoint/torch_file.h"
#include "engine/optim/chained_optimizer.h"
#include "engine/optim/param_overrides.h"
#include "engine/optim/setup.h"
#include "engine/storage/simulated_disk.h"
#include "tests/engine/checkpoint/any_state.h"
#include "tests/support/property.h"

namespace plumbline::test {
namespace {

struct Kind {
  const char* name;
  Precision precision = Precision::kFp32;
  bool distributed = false, offload = false, narrow = false;
  OptimizerRule rule = OptimizerRule::kAdam;
};

constexpr Kind kKinds[] = {
    {"fp32"},
    {"fp32, sgd", Precision::kFp32, false, false, false, OptimizerRule::kSgd},
    {"fp16", Precision::kFp16},
    {"fp16, sgd", Precision::kFp16, false, false, false, OptimizerRule::kSgd},
    {"bf16", Precision::kBf16},
    {"distributed fp32", Precision::kFp32, true},
    {"distributed fp16", Precision::kFp16, true},
    {"distributed bf16, offloaded", Precision::kBf16, true, true},
    {"distributed bf16, narrow moments", Precision::kBf16, true, false, true},
    {"distributed fp16, sgd", Precision::kFp16, true, false, false, OptimizerRule::kSgd},
};

struct Piece {
  std::string name;
  std::vector<std::int64_t> shape;
  bool embedding = false;
};

struct Machine {
  std::vector<std::vector<ParameterPtr>> chunks;
  OptimizerAndScheduler made;

  ChainedOptimizer& optimizer() const { return *made.optimizer; }
  // The same gradients for the same `seed`.
  void train(int seed) const {
    const double scale = optimizer().get_loss_scale().item<double>();
    for (const ParameterPtr& parameter : chunks[0]) {
      const at::Tensor gradient =
          at::sin(at::arange(parameter->numel(), at::kFloat) * (seed + 1)).view(parameter->value.sizes()) *
          scale;
      if (parameter->main_grad.defined()) {
        parameter->main_grad.copy_(gradient);
      } else {
        parameter->main_grad = gradient;
      }
    }
    const Result<StepOutcome> outcome = optimizer().step();
    RC_ASSERT(outcome.has_value());
    made.scheduler->step(3);
  }
  StateValue state() const {
    StateDict all{{"optimizer", optimizer().state_dict()}, {"scheduler", made.scheduler->state_dict()}};
    if (optimizer().has_parameter_state()) {
      Result<StateDict> shards = optimizer().save_parameter_state();
      RC_ASSERT(shards.has_value());
      all["shards"] = std::move(*shards);
    }
    return clone(StateValue(std::move(all)));
  }
  Status load(const StateDict& state) const {
    const Result<const StateDict*> own = state.dict("optimizer"), scheduler = state.dict("scheduler");
    if (!own) return tl::unexpected(own.error());
    PL_TRY(optimizer().load_state_dict(**own));
    if (const auto* shards = state.find("shards"))
      PL_TRY(optimizer().load_parameter_state(*shards->get<StateDict>()));
    return made.scheduler->load_state_dict(**scheduler);
  }
};

std::vector<ParameterPtr> parameters_of(const std::vector<Piece>& pieces, Precision precision) {
  const at::ScalarType type = precision == Precision::kFp16   ? at::kHalf
                              : precision == Precision::kBf16 ? at::kBFloat16
                                                              : at::kFloat;
  std::vector<ParameterPtr> out;
  for (const Piece& piece : pieces) {
    auto parameter = std::make_shared<Parameter>();
    parameter->name = piece.name;
    parameter->value =
        at::cos(at::arange(*element_count(piece.shape), at::kFloat)).view(piece.shape).to(type);
    parameter->embedding_or_output = piece.embedding;
    out.push_back(std::move(parameter));
  }
  return out;
}

// Matrices and vectors with and without a learning rate of their own are four groups; those that no parameter of this
// model is in are there all the same.
Machine machine_of(const Kind& kind, const std::vector<Piece>& pieces) {
  RunConfig config;
  config.train.precision = kind.precision;
  config.train.iterations = 100;
  config.optimizer.rule = kind.rule;
  config.optimizer.distributed = kind.distributed;
  config.optimizer.cpu_offload = kind.offload;
  config.optimizer.offload_fraction = 0.5;
  config.optimizer.precision_aware = kind.narrow;
  if (kind.narrow) config.optimizer.exp_avg = config.optimizer.exp_avg_sq = Precision::kBf16;
  config.optimizer.decoupled_lr = 5e-3;
  config.optimizer.decay = DecayStyle::kCosine;
  config.loss_scale.initial = 64.0;
  config.loss_scale.window = 2;
  Machine machine;
  machine.chunks = {parameters_of(pieces, kind.precision)};
  OptimizerInputs inputs;
  inputs.optimizer = OptimizerSettings::of(config);
  const auto scheduler = SchedulerSettings::of(config);
  RC_ASSERT(scheduler.has_value());
  inputs.scheduler = *scheduler;
  inputs.chunks = machine.chunks;
  inputs.use_gloo_process_groups = true;
  const std::vector<Piece> every{{"a", {2, 2}}, {"b", {2}}, {"c", {2, 2}, true}, {"d", {2}, true}};
  const auto keys = group_keys({parameters_of(every, kind.precision)}, config.optimizer, {});
  RC_ASSERT(keys.has_value());
  inputs.known_keys = *keys;
  auto made = setup_optimizer(std::move(inputs));
  if (!made) RC_FAIL(made.error().text());
  machine.made = std::move(*made);
  return machine;
}

std::vector<Piece> any_pieces() {
  std::vector<Piece> pieces;
  for (int i = 1 + below(4); i > 0; --i) {
    std::vector<std::int64_t> shape{1 + below(4)};
    if (below(2) == 1) shape.push_back(1 + below(4));
    pieces.push_back({"p" + std::to_string(i), shape, below(3) == 0});
  }
  return pieces;
}

StateDict through_a_file(const StateValue& state) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  RC_ASSERT(write_torch_file(files, "/f", state).has_value());
  const auto read = read_torch_file(files, "/f");
  if (!read) RC_FAIL(read.error().message);
  return *read->get<StateDict>();
}

StateDict& optimizer_of(StateDict& state) {
  return *state.find("optimizer")->get<StateDict>()->find("optimizer")->get<StateDict>();
}
StateList& groups_of(StateDict& state) { return *optimizer_of(state).find("param_groups")->get<StateList>(); }

// FP32Optimizer's dictionary is the base optimizer's own.
void wrap(StateDict& state) {
  auto& outer = *state.find("optimizer")->get<StateDict>();
  if (outer.contains("optimizer")) return;
  StateDict inner = outer;
  outer = StateDict{{"optimizer", std::move(inner)}};
}
void unwrap(StateDict& state, bool was_bare) {
  if (!was_bare) return;
  StateDict inner = optimizer_of(state);
  *state.find("optimizer")->get<StateDict>() = std::move(inner);
}

template <typename T>
std::vector<T> permuted(const std::vector<T>& list, const std::vector<std::size_t>& order) {
  std::vector<T> out;
  for (const std::size_t i : order) out.push_back(list[i]);
  return out;
}

void permute_groups(StateDict& state) {
  StateList& groups = groups_of(state);
  std::vector<std::size_t> order(groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(below(static_cast<int>(i)))]);
  groups = permuted(groups, order);
  StateDict& outer = *state.find("optimizer")->get<StateDict>();
  if (StateValue* mains = outer.find("fp32_from_fp16_params"))
    *mains = permuted(*mains->get<StateList>(), order);
}

TEST(OptimizerFilesProperty, EveryOptimizerGoesOnFromItsFile) {
  check_cases(300, [] {
    const Kind& kind = kKinds[static_cast<std::size_t>(below(static_cast<int>(std::size(kKinds))))];
    RC_LOG() << kind.name;
    const std::vector<Piece> pieces = any_pieces();
    const Machine one = machine_of(kind, pieces), two = machine_of(kind, pieces);
    const int steps = below(4);
    for (int i = 0; i < steps; ++i) one.train(i);
    const StateValue saved = one.state();
    StateDict file = through_a_file(saved);
    const bool bare = !file.find("optimizer")->get<StateDict>()->contains("optimizer");
    wrap(file);
    permute_groups(file);
    unwrap(file, bare);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < pieces.size(); ++i) two.chunks[0][i]->value.copy_(one.chunks[0][i]->value);
    const Status loaded = two.load(file);
    if (!loaded) RC_FAIL(loaded.error().text());
    RC_ASSERT(first_difference(saved, two.state()) == "");
    for (int i = 0; i < 2; ++i) {
      one.train(10 + i);
      two.train(10 + i);
      RC_ASSERT(first_difference(one.state(), two.state()) == "");
      for (std::size_t p = 0; p < pieces.size(); ++p)
        RC_ASSERT(
            first_difference(StateValue(one.chunks[0][p]->value), StateValue(two.chunks[0][p]->value)) == "");
    }
  });
}

// What is done to a file, and what the refusal must name.
struct Damage {
  const char* name;
  std::string (*make)(StateDict& state);  // returns the word; empty: not possible in this file
};

// Null: the distributed optimizer's are in its shards.
StateDict* states_of(StateDict& state) {
  StateValue* states = optimizer_of(state).find("state");
  return states == nullptr ? nullptr : states->get<StateDict>();
}

std::string lose_a_moment(StateDict& state) {
  StateDict* states = states_of(state);
  if (states == nullptr) return "";
  for (auto& [id, value] : *states) {
    if (value.get<StateDict>()->erase("exp_avg_sq")) return "exp_avg_sq";
  }
  return "";
}

std::string add_a_state(StateDict& state) {
  StateDict* states = states_of(state);
  if (states == nullptr || states->empty()) return "";
  (*states->begin()->second.get<StateDict>())["surplus"] = at::ones({1});
  return "surplus";
}

std::string add_a_setting(StateDict& state) {
  (*groups_of(state)[0].get<StateDict>())["surplus"] = 1;
  return "surplus";
}

std::string lose_the_ids(StateDict& state) {
  return groups_of(state)[0].get<StateDict>()->erase("params") ? "params" : "";
}

std::string name_one_twice(StateDict& state) {
  std::int64_t first = -1;
  for (StateValue& group : groups_of(state)) {
    StateValue* ids = group.get<StateDict>()->find("params");
    if (ids == nullptr) return "";
    for (StateValue& id : *ids->get<StateList>()) {
      if (first >= 0) {
        id = first;
        return "twice";
      }
      first = *id.get<std::int64_t>();
    }
  }
  return "";
}

std::string repeat_a_group(StateDict& state) {
  groups_of(state).push_back(groups_of(state)[0]);
  return "groups were saved";
}

std::string same_group_again(StateDict& state) {
  StateList& groups = groups_of(state);
  if (groups.size() < 2) return "";
  groups[1] = groups[0];
  return "param";
}

std::string lose_the_mains(StateDict& state) {
  return state.find("optimizer")->get<StateDict>()->erase("fp32_from_fp16_params") ? "fp32_from_fp16" : "";
}

std::string lose_a_shard(StateDict& state) {
  StateValue* shards = state.find("shards");
  if (shards == nullptr) return "";
  StateList& pieces = *shards->get<StateDict>()->find("pieces")->get<StateList>();
  if (pieces.empty()) return "";
  const std::string name = *pieces.back().get<StateDict>()->text("param");
  pieces.pop_back();
  return name;
}

constexpr Damage kDamages[] = {
    {"a moment is missing", lose_a_moment},      {"a state too many", add_a_state},
    {"a setting too many", add_a_setting},       {"a group without parameters' ids", lose_the_ids},
    {"a parameter named twice", name_one_twice}, {"a group too many", repeat_a_group},
    {"a group twice", same_group_again},         {"no main copies", lose_the_mains},
    {"a shard is missing", lose_a_shard}};

TEST(OptimizerFilesProperty, DamagedFilesAreRefusedByName) {
  std::vector<int> made(std::size(kDamages), 0);
  check_cases(400, [&made] {
    const Kind& kind = kKinds[static_cast<std::size_t>(below(static_cast<int>(std::size(kKinds))))];
    const auto which = static_cast<std::size_t>(below(static_cast<int>(std::size(kDamages))));
    RC_LOG() << kind.name << ": " << kDamages[which].name;
    const std::vector<Piece> pieces = any_pieces();
    const Machine one = machine_of(kind, pieces), two = machine_of(kind, pieces);
    for (int i = 0; i < 2; ++i) one.train(i);
    StateDict file = through_a_file(one.state());
    const bool bare = !file.find("optimizer")->get<StateDict>()->contains("optimizer");
    wrap(file);
    const std::string word = kDamages[which].make(file);
    unwrap(file, bare);
    if (word.empty()) return;
    ++made[which];
    const StateValue before = two.state();
    const Status loaded = two.load(file);
    RC_ASSERT(!loaded.has_value());
    RC_LOG() << loaded.error().text();
    RC_ASSERT(loaded.error().text().find(word) != std::string::npos);
    // The optimizer's own dictionary is checked before anything changes; shards come in a file of their own.
    if (which != std::size(kDamages) - 1) RC_ASSERT(first_difference(before, two.state()) == "");
  });
  for (std::size_t i = 0; i < made.size(); ++i) EXPECT_GT(made[i], 0) << kDamages[i].name;
}

}  // namespace
}  // namespace plumbline::test
