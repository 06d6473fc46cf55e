// A CUDA device as LibTorch sees it. Needs a CUDA LibTorch 2.x to compile and link, and a GPU to run; it has been
// compiled and linked, and never run.
#pragma once

#include <memory>

#include "backends/cuda/tensors/device_kernels.h"

namespace plumbline::cuda {

std::unique_ptr<TensorDevice> tensor_device(int ordinal);

// Before the first call of CUDA: deterministic kernels, fp32 products in fp32, 16-bit products summed up in fp32. Sets
// CUBLAS_WORKSPACE_CONFIG unless it is set: without it cuBLAS is not deterministic, and LibTorch refuses it.
void set_up_device_tensors();

}  // namespace plumbline::cuda
