#!/usr/bin/env bash
# Builds the GPU tests with nothing but a C++20 compiler: no CMake, no packages. Run by ./dev gpu-test, in a tree that
# ./dev gpu-pack made or in a clone. Objects that are newer than their source and every header are kept.
#
# Two programs: gpu_tests, the driver; and, where a LibTorch is found, gpu_train_tests, which trains with it. LibTorch is
# that of python3's torch, of the folder that PLUMBLINE_TORCH names (the one with include/ and lib/), or Debian's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
out=build/gpu
mkdir -p "$out/obj"
compiler=${CXX:-g++}
command -v "$compiler" >/dev/null || { echo "gpu-test: no C++ compiler; set CXX" >&2; exit 75; }

# A packed tree's files are as old as the epoch: unpacked over an older one they would pass for built.
if [[ -f REVISION ]] && ! cmp -s REVISION "$out/revision"; then
  rm -rf "$out/obj" "$out"/*.passed "$out"/out/*.passed
  mkdir -p "$out/obj"
  cp REVISION "$out/revision"
fi

third=third_party
googletest=third_party/googletest
system=()
if [[ -d $third ]]; then
  system=(-isystem "$third/include")
else
  googletest=/usr/src/googletest
fi
toolkit=${CUDAToolkit_ROOT:-${CUDA_HOME:-}}
if [[ -z $toolkit ]] && command -v nvcc >/dev/null; then toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")"); fi
defines=()
for folder in "$toolkit/include" "$toolkit/targets/x86_64-linux/include" /usr/local/cuda/include; do
  if [[ -f $folder/cuda_runtime_api.h ]]; then
    system+=(-isystem "$folder")
    defines+=(-DPLUMBLINE_HAVE_CUDA_HEADERS=1)
    if [[ -f $folder/nccl.h ]]; then defines+=(-DPLUMBLINE_HAVE_NCCL_HEADER=1); fi
    break
  fi
done

# LibTorch: its folder, flags and libraries. Wheels have headers of another fmt among theirs, which are left out.
torch=${PLUMBLINE_TORCH:-}
if [[ -z $torch ]] && command -v python3 >/dev/null; then
  torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null || true)
fi
torch_flags=() torch_link=() torch_device=""
if [[ -f $torch/include/ATen/ATen.h ]]; then
  rm -rf "$out/torch-include"
  mkdir -p "$out/torch-include"
  for entry in "$torch"/include/*; do
    if [[ ${entry##*/} != fmt ]]; then ln -s "$entry" "$out/torch-include/"; fi
  done
  torch_flags=(-isystem "$out/torch-include" -isystem "$torch/include/torch/csrc/api/include")
  if grep -qs '_GLIBCXX_USE_CXX11_ABI=0' "$torch/share/cmake/Torch/TorchConfig.cmake"; then
    torch_flags+=(-D_GLIBCXX_USE_CXX11_ABI=0)
  fi
  torch_link=(-L"$torch/lib" "-Wl,-rpath,$torch/lib" -ltorch -ltorch_cpu -lc10 -Wl,--allow-shlib-undefined)
  if [[ -f $torch/lib/libtorch_cuda.so && ${#defines[@]} -gt 0 ]]; then
    torch_device=yes
    cudart=$(ls "$toolkit"/lib64/libcudart.so "$toolkit"/lib/libcudart.so "$torch"/../nvidia/*/lib/libcudart.so.* 2>/dev/null | head -n 1 || true)
    # LibTorch's CUDA kernels register themselves, so the library stays although nothing names it.
    torch_link+=(-Wl,--no-as-needed -ltorch_cuda -Wl,--as-needed -lc10_cuda "$cudart" "-Wl,-rpath,$(dirname "$cudart")")
    torch_flags+=(-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE=1)
  fi
elif [[ -f /usr/include/ATen/ATen.h && -f /usr/include/torch/csrc/api/include/torch/version.h ]]; then
  torch=Debian
  torch_flags=(-isystem /usr/include/torch/csrc/api/include)
  torch_link=(-ltorch -ltorch_cpu -lc10)
else
  torch=""
fi

# What CMake generates: the list of schedule generators, and the version.
{
  echo '#include "engine/schedule/generator.h"'
  echo 'namespace plumbline::detail {'
  grep -h -oE '^RegisterGenerator register_[a-z0-9_]+' engine/schedule/*.cc | awk '{print "extern RegisterGenerator " $2 ";"}'
  echo 'RegisterGenerator* const kGenerators[] = {'
  grep -h -oE '^RegisterGenerator register_[a-z0-9_]+' engine/schedule/*.cc | awk '{print "&" $2 ","}'
  echo '};'
  echo 'RegisterGenerator* const* linked_generators() { return kGenerators; }'
  echo '}  // namespace plumbline::detail'
} >"$out/linked_generators.cc.new"
cmp -s "$out/linked_generators.cc.new" "$out/linked_generators.cc" || mv "$out/linked_generators.cc.new" "$out/linked_generators.cc"
version=$(cat REVISION 2>/dev/null || git describe --always 2>/dev/null || echo unknown)
printf '#include "engine/base/version.h"\n\nnamespace plumbline {\n\nstd::string_view version() { return "gpu-test"; }\nstd::string_view release_version() { return "gpu-test"; }\nstd::string_view revision() { return "%s"; }\n\n}  // namespace plumbline\n' \
  "$version" >"$out/version.cc.new"
cmp -s "$out/version.cc.new" "$out/version.cc" || mv "$out/version.cc.new" "$out/version.cc"

flags=(-std=c++20 -O1 -fPIC -pthread -I. "${system[@]}" -isystem "$googletest/googletest/include"
  -isystem "$googletest/googlemock/include" -I"$googletest/googletest" -I"$googletest/googlemock"
  -DFMT_HEADER_ONLY=1 -DTOML_HEADER_ONLY=1 "-DPLUMBLINE_DOUBLES=\"$PWD/$out/libplumbline_doubles.so\""
  "-DPLUMBLINE_TEST_DATA=\"$PWD/tests\"" "${defines[@]}")
rooms=$(find engine/base engine/config engine/schedule engine/program engine/runtime sim -name '*.cc' | sort)
driver=$(find backends/cuda -maxdepth 1 -name '*.cc' | sort)
doubles=$(find backends/cuda/double -name '*.cc' | sort)
tests="tests/backends/cuda/one_gpu_test.cc tests/backends/cuda/library_test.cc tests/backends/cuda/doubles_test.cc
  tests/backends/cuda/cuda_headers_test.cc tests/backends/cuda/nccl_headers_test.cc"
above=""
if [[ -n $torch ]]; then
  above=$(find engine/storage engine/model engine/optim engine/checkpoint engine/train backends/cuda/tensors -maxdepth 1 -name '*.cc' | sort)
  above+=" tests/backends/cuda/tensors/device_runs_test.cc"
  if [[ -n $torch_device ]]; then
    above+=" $(find backends/cuda/tensors/device -name '*.cc' | sort)"
    torch_flags+=(-DPLUMBLINE_HAVE_CUDA_TENSORS=1)
  fi
fi
framework="$googletest/googletest/src/gtest-all.cc $googletest/googlemock/src/gmock-all.cc $googletest/googlemock/src/gmock_main.cc"
object_of() { echo "$out/obj/$(echo "$1" | tr '/' '_').o"; }

newest=$(find engine sim backends/cuda tests -name '*.h' -printf '%T@\n' | sort -n | tail -1)
list=()
# As CMake has it: square roots without errno, and no contraction anywhere.
flags+=(-ffp-contract=off)
torch_flags+=(-fno-math-errno)
for source in $above $rooms $driver $doubles $tests $framework "$out/linked_generators.cc" "$out/version.cc"; do
  object=$(object_of "$source")
  if [[ -f $object && $object -nt $source ]] &&
    awk -v a="$(stat -c %Y "$object")" -v b="$newest" 'BEGIN {exit !(a > b)}'; then continue; fi
  list+=("$source" "$object")
done
start=$SECONDS
# compile_one <source> <object>: what is above the LibTorch line gets its flags as well.
printf '%s\n' "${flags[@]}" >"$out/flags"
printf '%s\n' "${flags[@]}" "${torch_flags[@]}" >"$out/torch-flags"
if ((${#list[@]} > 0)); then
  printf '%s\n' "${list[@]}" | xargs -P "$(nproc)" -n 2 bash -c '
    case $2 in
      engine/model/* | engine/optim/* | engine/checkpoint/* | engine/train/* | */cuda/tensors/*) kind=torch-flags ;;
      *) kind=flags ;;
    esac
    mapfile -t flags <"$1/$kind"
    "$0" "${flags[@]}" -c "$2" -o "$3"' "$compiler" "$out"
fi
echo "gpu-test: $((${#list[@]} / 2)) files compiled in $((SECONDS - start)) s"

if ((${#list[@]} == 0)) && [[ -x $out/gpu_tests && -f $out/libplumbline_doubles.so && (-z $above || -x $out/gpu_train_tests) ]]; then
  echo "gpu-test: $out/gpu_tests is up to date"
  exit 0
fi
objects() { for source in "$@"; do object_of "$source"; done; }
printf '{ global: nccl*; cuda*; cu*; nvtx*; plumbline_double_*; local: *; };\n' >"$out/doubles.map"
# shellcheck disable=SC2046,SC2086
"$compiler" -shared -pthread -o "$out/libplumbline_doubles.so" -Wl,--version-script="$out/doubles.map" \
  $(objects $rooms $doubles "$out/linked_generators.cc" "$out/version.cc")
# shellcheck disable=SC2046,SC2086
"$compiler" -pthread -o "$out/gpu_tests" $(objects $rooms $driver $tests $framework "$out/linked_generators.cc" "$out/version.cc") -ldl
built=$out/gpu_tests
if [[ -n $above ]]; then
  # Any machine has zlib, if not its development package.
  zlib=-l:libz.so.1
  # shellcheck disable=SC2046,SC2086
  "$compiler" -pthread -o "$out/gpu_train_tests" $(objects $above $rooms $driver $framework "$out/linked_generators.cc" "$out/version.cc") \
    "${torch_link[@]}" $zlib -ldl
  built+=" and gpu_train_tests (LibTorch of $torch, $([[ -n $torch_device ]] && echo with || echo without) CUDA)"
else
  echo "gpu-test: no LibTorch: python3 has no torch, and PLUMBLINE_TORCH names none; training is left out"
fi
echo "gpu-test: $built, $((SECONDS - start)) s in all"
