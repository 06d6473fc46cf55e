// The same work on many things, by a few threads: hashing and copying keep up with a fast disk only together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "engine/base/result.h"

namespace plumbline {

// work(i) for every i below `count`, in any order and at the same time. The error of the lowest i that failed; what
// comes after a failure may be left out. `bytes` is about how much there is to do: little is done by this thread.
//
// By a thread for each core, four at most, or for work that mostly waits for a disk by up to sixteen whatever the
// cores: a disk serves many requests at once faster than one after another.
enum class Bound : std::uint8_t { kCores, kDisk };
Status for_each_at_once(std::size_t count, std::uint64_t bytes,
                        const std::function<Status(std::size_t)>& work, Bound bound = Bound::kCores);

}  // namespace plumbline
