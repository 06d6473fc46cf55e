# tests/fuzz/<name>_fuzz.cc becomes bin/fuzz_<name>, a libFuzzer program over the rooms below the LibTorch line.
# Its ctest entry is a short run, which keeps the program alive; a real run is started by hand, with a corpus.
enable_testing()
plumbline_glob(sources tests/fuzz OFF *_fuzz.cc)
foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  string(REGEX REPLACE "_fuzz$" "" name "${name}")
  add_executable(fuzz_${name} "${source}")
  target_link_libraries(fuzz_${name} PRIVATE plumbline_flags plumbline_packages plumbline_reports plumbline_sim plumbline_storage)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  # What a run finds goes into the first folder; the second holds tests/fuzz/corpus/<name>.tar.gz.
  set(corpus "")
  if(EXISTS "${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name}.tar.gz")
    set(corpus "${CMAKE_BINARY_DIR}/fuzz-found/${name}" "${CMAKE_BINARY_DIR}/fuzz-corpus/${name}")
    file(MAKE_DIRECTORY ${corpus})
    file(ARCHIVE_EXTRACT INPUT "${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name}.tar.gz"
         DESTINATION "${CMAKE_BINARY_DIR}/fuzz-corpus/${name}")
  endif()
  add_test(NAME fuzz_${name} COMMAND fuzz_${name} -runs=20000 -seed=1 -max_len=4096 ${corpus})
  plumbline_test_properties(fuzz_${name} below)
endforeach()
