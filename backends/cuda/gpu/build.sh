#!/usr/bin/env bash
# Builds the GPU tests with nothing but a C++20 compiler: no CMake, no packages. Run by ./dev gpu-test, in a tree that
# ./dev gpu-pack made or in a clone. Objects that are newer than their source and every header are kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
out=build/gpu
mkdir -p "$out/obj"
compiler=${CXX:-g++}
command -v "$compiler" >/dev/null || { echo "gpu-test: no C++ compiler; set CXX" >&2; exit 75; }

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
framework="$googletest/googletest/src/gtest-all.cc $googletest/googlemock/src/gmock-all.cc $googletest/googlemock/src/gmock_main.cc"
object_of() { echo "$out/obj/$(echo "$1" | tr '/' '_').o"; }

newest=$(find engine sim backends/cuda tests -name '*.h' -printf '%T@\n' | sort -n | tail -1)
list=()
for source in $rooms $driver $doubles $tests $framework "$out/linked_generators.cc" "$out/version.cc"; do
  object=$(object_of "$source")
  if [[ -f $object && $object -nt $source ]] &&
    awk -v a="$(stat -c %Y "$object")" -v b="$newest" 'BEGIN {exit !(a > b)}'; then continue; fi
  list+=("$source" "$object")
done
start=$SECONDS
if ((${#list[@]} > 0)); then
  printf '%s\n' "${list[@]}" | xargs -P "$(nproc)" -n 2 bash -c '
    "$0" "${@:1:$#-2}" -c "${@: -2:1}" -o "${@: -1}"' "$compiler" "${flags[@]}"
fi
echo "gpu-test: $((${#list[@]} / 2)) files compiled in $((SECONDS - start)) s"

if ((${#list[@]} == 0)) && [[ -x $out/gpu_tests && -f $out/libplumbline_doubles.so ]]; then
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
echo "gpu-test: $out/gpu_tests is built, $((SECONDS - start)) s in all"
