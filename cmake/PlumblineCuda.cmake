# CUDA's and NCCL's headers, and the CUDA half of a LibTorch. The driver layer (backends/cuda) needs none of them: it
# loads the libraries at run time. Headers are compared with its declarations, and the tensors layer compiles with
# them. Looked for: CUDAToolkit_ROOT, CUDA_HOME, nvcc on PATH, then the folders of PyPI's wheels in
# PLUMBLINE_CUDA_WHEELS (what `pip install --target` filled: nvidia-cuda-runtime-cu12 or -cu13 and nvidia-nccl-*).
# Result: PLUMBLINE_CUDA_INCLUDE, PLUMBLINE_CUDA_INCLUDES (a list), PLUMBLINE_NCCL_INCLUDE.

set(PLUMBLINE_CUDA_WHEELS "$ENV{PLUMBLINE_CUDA_WHEELS}" CACHE PATH "Folder with the nvidia/ packages of PyPI, or empty")
find_program(PLUMBLINE_NVCC nvcc)
mark_as_advanced(PLUMBLINE_NVCC)
set(plumbline_toolkit "")
if(PLUMBLINE_NVCC)
  file(REAL_PATH "${PLUMBLINE_NVCC}" plumbline_toolkit)
  cmake_path(GET plumbline_toolkit PARENT_PATH plumbline_toolkit)
  cmake_path(GET plumbline_toolkit PARENT_PATH plumbline_toolkit)
endif()
set(plumbline_wheel_includes "")
if(PLUMBLINE_CUDA_WHEELS)
  file(GLOB plumbline_wheel_includes "${PLUMBLINE_CUDA_WHEELS}/nvidia/*/include")
endif()
find_path(PLUMBLINE_CUDA_INCLUDE cuda_runtime_api.h
  HINTS "${CUDAToolkit_ROOT}" ENV CUDAToolkit_ROOT ENV CUDA_HOME "${plumbline_toolkit}" ${plumbline_wheel_includes}
  PATHS /usr/local/cuda PATH_SUFFIXES include . targets/x86_64-linux/include)
find_path(PLUMBLINE_NCCL_INCLUDE nccl.h
  HINTS ENV NCCL_HOME "${PLUMBLINE_CUDA_INCLUDE}" ${plumbline_wheel_includes} PATH_SUFFIXES include .)
set(plumbline_wheel_libs "")
if(PLUMBLINE_CUDA_WHEELS)
  file(GLOB plumbline_wheel_libs "${PLUMBLINE_CUDA_WHEELS}/nvidia/*/lib")
endif()
find_library(PLUMBLINE_CUDART_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12
  HINTS "${CUDAToolkit_ROOT}" ENV CUDAToolkit_ROOT ENV CUDA_HOME "${plumbline_toolkit}" ${plumbline_wheel_libs}
  PATHS /usr/local/cuda PATH_SUFFIXES lib64 lib . targets/x86_64-linux/lib)
mark_as_advanced(PLUMBLINE_CUDA_INCLUDE PLUMBLINE_NCCL_INCLUDE PLUMBLINE_CUDART_LIBRARY)

set(PLUMBLINE_CUDA_VERSION "")
if(PLUMBLINE_CUDA_INCLUDE)
  file(STRINGS "${PLUMBLINE_CUDA_INCLUDE}/cuda_runtime_api.h" line REGEX "define CUDART_VERSION +[0-9]+" LIMIT_COUNT 1)
  if(line MATCHES "([0-9]+)[^0-9]*$")
    math(EXPR major "${CMAKE_MATCH_1} / 1000")
    math(EXPR minor "${CMAKE_MATCH_1} % 1000 / 10")
    set(PLUMBLINE_CUDA_VERSION "${major}.${minor}")
  endif()
endif()
set(PLUMBLINE_CUDA_INCLUDES "${PLUMBLINE_CUDA_INCLUDE}" ${plumbline_wheel_includes})
plumbline_package("CUDA headers" "${PLUMBLINE_CUDA_INCLUDE}" cuda "${PLUMBLINE_CUDA_VERSION} (${PLUMBLINE_CUDA_INCLUDE})"
  "no tensors on GPUs; the driver layer is built all the same" "NVIDIA's toolkit, CUDAToolkit_ROOT, CUDA_HOME, or PLUMBLINE_CUDA_WHEELS")
plumbline_package("NCCL header" "${PLUMBLINE_NCCL_INCLUDE}" nccl "(${PLUMBLINE_NCCL_INCLUDE}/nccl.h)"
  "not compared with our declarations" "NVIDIA's packages, NCCL_HOME, or PLUMBLINE_CUDA_WHEELS")
