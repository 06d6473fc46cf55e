# Options, and the compiler settings every target of ours shares. Nothing here leaks into a parent project.

option(PLUMBLINE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(PLUMBLINE_BENCH "Build the benchmarks when google-benchmark is found" ${PROJECT_IS_TOP_LEVEL})
option(PLUMBLINE_INSTALL "Write install rules" ${PROJECT_IS_TOP_LEVEL})
option(PLUMBLINE_TORCH "Build the rooms above the LibTorch line when LibTorch is found" ON)
option(PLUMBLINE_GRAPHVIZ "Lay out graphs with libgvc when it is found" ON)
option(PLUMBLINE_WERROR "Treat warnings as errors" OFF)
option(PLUMBLINE_CCACHE "Compile through ccache when it is found" ${PROJECT_IS_TOP_LEVEL})
option(PLUMBLINE_LLD "Link with lld when it is found" ${PROJECT_IS_TOP_LEVEL})
option(PLUMBLINE_FUZZERS "Build tests/fuzz/ with Clang's libFuzzer, and the rooms with its coverage" OFF)
set(PLUMBLINE_SANITIZE "" CACHE STRING "Comma-separated sanitizers: address,undefined or thread")
set(PLUMBLINE_REQUIRE "" CACHE STRING "Packages that must be found: any of torch;graphviz;gloo;cuda;benchmark;nccl")

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
  endif()
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)
include(GNUInstallDirs)
include(CheckLinkerFlag)

# ccache. The sloppiness lets it work with the precompiled header of the LibTorch rooms; clones in different folders share
# a cache, because the prefix map below keeps the folder out of what is compiled.
set(PLUMBLINE_CCACHE_STATE "off by option")
if(PLUMBLINE_CCACHE AND CMAKE_CXX_COMPILER_LAUNCHER)
  set(PLUMBLINE_CCACHE_STATE "CMAKE_CXX_COMPILER_LAUNCHER was given and is kept")
elseif(PLUMBLINE_CCACHE)
  find_program(PLUMBLINE_CCACHE_PROGRAM ccache)
  mark_as_advanced(PLUMBLINE_CCACHE_PROGRAM)
  if(PLUMBLINE_CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env
        "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
        "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${PLUMBLINE_CCACHE_PROGRAM}")
    set(PLUMBLINE_CCACHE_STATE "${PLUMBLINE_CCACHE_PROGRAM}")
  else()
    set(PLUMBLINE_CCACHE_STATE "not found")
  endif()
endif()

add_library(plumbline_flags INTERFACE)
target_compile_features(plumbline_flags INTERFACE cxx_std_20)
# Paths in messages, assertions and debug information start at the repository root.
target_compile_options(plumbline_flags INTERFACE "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")

# No -Wpedantic: 128-bit integers are used on purpose. The missing-field warning would fire on every options struct
# filled by name.
target_compile_options(plumbline_flags INTERFACE
  -Wall -Wextra -Wshadow -Wvla -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual -Wextra-semi
  -Wno-missing-field-initializers)
if(PLUMBLINE_WERROR)
  target_compile_options(plumbline_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Guesses of GCC 12's optimizer about library code inlined into ours: shown, never fatal; -Wrestrict is a known bug.
  target_compile_options(plumbline_flags INTERFACE -Wno-restrict)
  if(PLUMBLINE_WERROR)
    target_compile_options(plumbline_flags INTERFACE
      -Wno-error=maybe-uninitialized -Wno-error=stringop-overflow -Wno-error=stringop-overread
      -Wno-error=array-bounds -Wno-error=dangling-pointer -Wno-error=free-nonheap-object)
  endif()
  if(PLUMBLINE_SANITIZE)
    target_compile_options(plumbline_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()

set(PLUMBLINE_SANITIZE_FLAGS "")
if(PLUMBLINE_SANITIZE)
  set(PLUMBLINE_SANITIZE_FLAGS "-fsanitize=${PLUMBLINE_SANITIZE}" -fno-omit-frame-pointer)
  if(PLUMBLINE_SANITIZE MATCHES "undefined")
    list(APPEND PLUMBLINE_SANITIZE_FLAGS -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(plumbline_flags INTERFACE ${PLUMBLINE_SANITIZE_FLAGS})
  target_link_options(plumbline_flags INTERFACE ${PLUMBLINE_SANITIZE_FLAGS})
endif()

if(PLUMBLINE_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "PLUMBLINE_FUZZERS needs Clang, not ${CMAKE_CXX_COMPILER_ID}")
  endif()
  target_compile_options(plumbline_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(plumbline_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

set(PLUMBLINE_LLD_STATE "off by option")
if(PLUMBLINE_LLD)
  check_linker_flag(CXX -fuse-ld=lld PLUMBLINE_HAVE_LLD)
  set(PLUMBLINE_LLD_STATE "not found, the compiler's default linker is used")
  if(PLUMBLINE_HAVE_LLD)
    target_link_options(plumbline_flags INTERFACE -fuse-ld=lld)
    set(PLUMBLINE_LLD_STATE "-fuse-ld=lld")
  endif()
endif()
