// LibTorch as a whole: settings, and what is installed. Free of LibTorch's own headers.
#pragma once

#include <string>

namespace plumbline {

// One compute thread everywhere, BLAS included, and deterministic algorithms. Call before any tensor work.
void set_up_libtorch();

std::string libtorch_version();  // "1.13.0"
std::string blas_name();         // of the library that multiplies matrices in this process

}  // namespace plumbline
