// RngTracker: named random states of one rank, as Megatron's model-parallel code keeps them: inside
// fork("name") LibTorch's CPU generator draws from that state, and goes on from there the next time; outside
// it is what it was. States are the generator's own bytes, so they round trip bit for bit; those of CUDA generators
// (seed and offset, 16 bytes) are kept and saved as they are, and drawn from by whoever has the device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "engine/base/result.h"
#include "engine/optim/state_dict.h"

namespace plumbline {

class RngTracker {
 public:
  // Refuses (kState) a name or a seed that is there already: two streams would be one.
  Status add(const std::string& name, std::uint64_t seed);
  // Refuses a name it does not know, and a state of a CUDA generator.
  Status fork(const std::string& name, const std::function<void()>& draw);

  // {"model-parallel-rng": bytes as a tensor, ...}
  StateDict state_dict() const;
  // Refused: an empty dictionary - dropout of model-parallel ranks would lose its seeds - and whatever is no
  // state of a generator. Nothing has changed then.
  Status load_state_dict(const StateDict& state);

 private:
  std::map<std::string, at::Tensor> states_;
  std::set<std::uint64_t> seeds_;
};

// The state of LibTorch's CPU generator, for "torch_rng_state".
at::Tensor cpu_rng_state();
Status set_cpu_rng_state(const at::Tensor& state);

}  // namespace plumbline
