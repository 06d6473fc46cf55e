# Script of the ctest entry "package": installs the build into itself, then builds and runs both consumers.

function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "package: ${what} failed (${status})\n${output}")
  endif()
  message(STATUS "package: ${what}")
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(consumer name)
  set(dir "${BUILD}/package/${name}")
  step("${name}: configure" "${CMAKE_COMMAND}" -S "${SOURCE}/tests/package/${name}" -B "${dir}" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}" ${ARGN})
  step("${name}: build" "${CMAKE_COMMAND}" --build "${dir}")
  step("${name}: run" "${dir}/consumer")
  if(NOT output MATCHES "^${VERSION}[+][0-9a-z-]+\n$")
    message(FATAL_ERROR "package: ${name} printed '${output}', expected version ${VERSION} and a commit")
  endif()
endfunction()

set(prefix "${BUILD}/package/prefix")
file(REMOVE_RECURSE "${BUILD}/package")
step("install" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")
consumer(find_package "-DCMAKE_PREFIX_PATH=${prefix};${PREFIX_PATH}")
consumer(add_subdirectory "-DCMAKE_PREFIX_PATH=${PREFIX_PATH}" "-DPLUMBLINE_SOURCE=${SOURCE}" -DPLUMBLINE_TORCH=OFF)
