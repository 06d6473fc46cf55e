// Pieces: how the distributed optimizer's parameter state is stored. A piece is a flat range of one parameter
// with every state tensor of that range:
//
//   {"format": "pieces", "pieces": [{"param": "layers.3.mlp.w1", "numel": 4096, "begin": 1024, "end": 2048,
//                                    "step": 7, "tensors": {"fp32_param": [1024], "exp_avg": ..., ...}}, ...]}
//
// Nothing of a buffer's layout is in it - no padding, no buckets, no number of ranks -, so any data-parallel size
// and any bucket size reads it. What a file must hold instead is every element exactly once, which is verified on
// save (over the ranks) and on load. The further use of a tied parameter has a name of its own, see piece_name().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/base/result.h"
#include "engine/optim/parameter.h"
#include "engine/optim/state_dict.h"

namespace plumbline {

struct FlatRange {
  std::string param;
  std::int64_t begin = 0, end = 0;
};

// Parameter names with their numbers of elements.
using ParamSizes = std::map<std::string, std::int64_t>;

// Every element of every parameter in exactly one range, and nothing else. The error names the parameter and the
// first element that is missing, there twice, or beyond the end.
Status verify_exact_cover(std::vector<FlatRange> ranges, const ParamSizes& sizes);

// The parameter's name; "<name>@shared" for the further use of a tied one, which has states of its own.
std::string piece_name(const Parameter& parameter);

struct StatePiece {
  FlatRange range;
  std::int64_t numel = 0;  // of the whole parameter
  std::int64_t step = 0;
  std::vector<std::pair<std::string, at::Tensor>> tensors;  // 1-D, end - begin elements each
};

StateDict to_state_dict(const std::vector<StatePiece>& pieces);
// Checks types, ranges and lengths; errors name the piece.
Result<std::vector<StatePiece>> pieces_of(const StateDict& state);
// One dictionary from those of several ranks.
Result<StateDict> merge_parameter_states(std::span<const StateDict> states);

// The pieces of a whole parameter state, looked up by parameter. Creation verifies that each state tensor that
// occurs at all covers all parameters exactly, and that they are the wanted ones (names and sizes).
class PieceIndex {
 public:
  static Result<PieceIndex> create(std::vector<StatePiece> pieces, const ParamSizes& wanted);

  bool empty() const { return by_param_.empty(); }
  bool has(const std::string& key) const;  // whether the state tensor occurs
  std::vector<std::string> keys() const;
  // Elements [begin, begin + target.numel()) of a state tensor, converted to target's precision. The key occurs
  // and the range lies within the parameter.
  void read(const std::string& param, const std::string& key, std::int64_t begin,
            const at::Tensor& target) const;
  // The step of the parameter's pieces, which must agree; absent for one without elements.
  Result<std::optional<std::int64_t>> step(const std::string& param) const;

 private:
  std::map<std::string, std::vector<StatePiece>> by_param_;  // by begin
  std::vector<std::string> keys_;
};

}  // namespace plumbline
