// One digest over all parameters of a model, the same for every layout: digests of single parameters, in
// global order.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/hash.h"

namespace plumbline {

class ModelDigest {
 public:
  explicit ModelDigest(int parameters) : parts_(static_cast<std::size_t>(parameters), 0) {}
  void set(int global, std::uint64_t digest) { parts_[static_cast<std::size_t>(global)] = digest; }
  std::uint64_t value() const {
    Hasher hasher;
    for (const std::uint64_t part : parts_) hasher.u64(part);
    return hasher.digest();
  }

 private:
  std::vector<std::uint64_t> parts_;
};

}  // namespace plumbline
