// Collective: the reductions an optimizer needs when it is driven by its own step() - in a run, the Program
// does them and the optimizer is called between (megatron_optimizer.h). One object is one rank's membership in
// one group; calls must come in the same order on all members. Arithmetic is engine/runtime/reduce.h's ordered
// reduction, so every member gets the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/result.h"
#include "engine/program/program.h"

namespace plumbline {

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // In place.
  virtual Status all_reduce(DType dtype, ReduceOp op, std::byte* data, std::size_t count) = 0;
  // `data` holds size() parts of `part` elements; afterwards the own part holds the reduction of all members'
  // own parts and the others are what they were.
  virtual Status reduce_scatter(DType dtype, ReduceOp op, std::byte* data, std::size_t part) = 0;
  // The own part goes to everyone's.
  virtual Status all_gather(DType dtype, std::byte* data, std::size_t part) = 0;

  // Conveniences over all_reduce.
  Status max(std::span<float> values);
  Status sum(std::span<double> values);
  Status sum(std::span<std::int64_t> values);
};

// A group of one: nothing to do.
std::shared_ptr<Collective> alone();

// `members` ranks as threads of this process, for tests and tools. A member that does not come within
// `seconds` makes every waiting call an error that names the missing ranks.
std::vector<std::shared_ptr<Collective>> thread_group(int members, double seconds = 30.0);

}  // namespace plumbline
