# Tests that belong to no single room.

# Style and include order: the rules are a small library, tried on made-up violations, then applied to the whole tree.
add_executable(plumbline_tidy tests/tidy/tidy.cc tests/tidy/main.cc)
target_include_directories(plumbline_tidy PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(plumbline_tidy PRIVATE plumbline_flags)
add_test(NAME tidy COMMAND plumbline_tidy "${PROJECT_SOURCE_DIR}")
plumbline_test_properties(tidy below)
plumbline_test(tidy_rules SOURCES tests/tidy/tidy.cc tests/tidy/tidy_test.cc)

plumbline_glob(sources tests/issues OFF *_test.cc)
if(sources)
  plumbline_test(issues SOURCES ${sources} DEPS sim)
endif()

# The command-line tests start the real executables; paths of ones that are not built are empty.
plumbline_glob(sources tests/cli OFF *_test.cc)
if(sources)
  plumbline_test(cli SOURCES ${sources} DEPS reports)
  foreach(program IN ITEMS plumbline plumbline-engine)
    string(MAKE_C_IDENTIFIER "${program}" macro)
    string(TOUPPER "${macro}" macro)  # PLUMBLINE, PLUMBLINE_ENGINE
    if(TARGET ${program})
      add_dependencies(test_cli ${program})
      target_compile_definitions(test_cli PRIVATE "${macro}_EXECUTABLE=\"$<TARGET_FILE:${program}>\"")
    else()
      target_compile_definitions(test_cli PRIVATE "${macro}_EXECUTABLE=\"\"")
    endif()
  endforeach()
  if(TARGET plumbline_doubles)
    add_dependencies(test_cli plumbline_doubles)
    target_compile_definitions(test_cli PRIVATE "PLUMBLINE_DOUBLES=\"$<TARGET_FILE:plumbline_doubles>\"")
  else()
    target_compile_definitions(test_cli PRIVATE "PLUMBLINE_DOUBLES=\"\"")
  endif()
  if(TARGET plumbline_double_server AND TARGET plumbline_processes)
    add_dependencies(test_cli plumbline_double_server)
    target_compile_definitions(test_cli PRIVATE
      "PLUMBLINE_DOUBLE_SERVER_EXECUTABLE=\"$<TARGET_FILE:plumbline_double_server>\"")
  else()
    target_compile_definitions(test_cli PRIVATE "PLUMBLINE_DOUBLE_SERVER_EXECUTABLE=\"\"")
  endif()
endif()

# Runs under real launchers, each of which is looked for when the test runs: none is needed to build or test plumbline.
if(TARGET plumbline-engine AND TARGET plumbline_gloo)
  plumbline_glob(sources tests/launchers OFF *_test.cc)
  plumbline_test(launchers SOURCES ${sources} DEPS reports ENTRIES torchrun mpirun mpiexec slurm)
  add_dependencies(test_launchers plumbline plumbline-engine)
  target_compile_definitions(test_launchers PRIVATE "PLUMBLINE_EXECUTABLE=\"$<TARGET_FILE:plumbline>\""
    "PLUMBLINE_ENGINE_EXECUTABLE=\"$<TARGET_FILE:plumbline-engine>\"")
endif()

# The embedding of the report page, with pages made to break it.
string(JOIN " " flags ${CMAKE_CXX_FLAGS} ${PLUMBLINE_SANITIZE_FLAGS})
add_test(NAME embed COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DBUILD=${PROJECT_BINARY_DIR}"
  "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DFLAGS=${flags}" -P "${PROJECT_SOURCE_DIR}/tests/package/embed/run.cmake")
plumbline_test_properties(embed below)

# Both ways of using plumbline from another project: installed, and as a subdirectory.
if(PLUMBLINE_INSTALL)
  add_test(NAME package COMMAND "${CMAKE_COMMAND}"
    "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DBUILD=${PROJECT_BINARY_DIR}" "-DGENERATOR=${CMAKE_GENERATOR}"
    "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DFLAGS=${flags}" "-DVERSION=${PROJECT_VERSION}"
    "-DPREFIX_PATH=${CMAKE_PREFIX_PATH}" -P "${PROJECT_SOURCE_DIR}/tests/package/run.cmake")
  plumbline_test_properties(package below)
endif()

# Every test binary below the LibTorch line, for quick builds: cmake --build <dir> --target plumbline_below
add_custom_target(plumbline_below)
get_property(rooms GLOBAL PROPERTY PLUMBLINE_ROOMS)
foreach(name IN LISTS rooms ITEMS issues tidy_rules cli)
  get_property(torch GLOBAL PROPERTY PLUMBLINE_ROOM_TORCH_${name})
  if(TARGET test_${name} AND NOT torch)
    add_dependencies(plumbline_below test_${name})
  endif()
endforeach()
add_dependencies(plumbline_below plumbline_tidy)
