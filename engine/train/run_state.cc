#include "engine/train/run_state.h"

#include <algorithm>
#include <utility>

namespace plumbline {

Status load_scheduler(const RankState& rank, const StateDict& saved, std::vector<std::string>& notices) {
  std::vector<std::string> said;
  PL_TRY(rank.model->scheduler().load_state_dict(saved, &said));
  const std::vector<std::string> more = rank.model->optimizer().load_notices();
  said.insert(said.end(), more.begin(), more.end());
  for (std::string& text : said) {
    if (std::find(notices.begin(), notices.end(), text) == notices.end()) notices.push_back(std::move(text));
  }
  return {};
}

Status load_random(const RankState& rank, const StateDict& saved) {
  const Result<const StateDict*> tracker = saved.dict("rng_tracker_states");
  if (!tracker) return tl::unexpected(tracker.error());
  PL_TRY(rank.random->load_state_dict(**tracker));
  const Result<at::Tensor> generator = saved.tensor("torch_rng_state");
  if (!generator) return tl::unexpected(generator.error());
  return set_cpu_rng_state(*generator);
}

}  // namespace plumbline
