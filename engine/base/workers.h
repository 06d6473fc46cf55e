// Independent pieces of work taken by a few threads.
#pragma once

#include <cstddef>
#include <functional>

namespace plumbline {

// Calls work(i) once for every i below `count`, in any order, on this thread and up to `workers` - 1 others; returns
// when all are done. `work` touches nothing that another i touches, and does not throw.
void share_out(std::size_t count, std::size_t workers, const std::function<void(std::size_t)>& work);

// Cores that this process may run on, at least 1.
int usable_cores();

}  // namespace plumbline
