# LibTorch as imported targets of our own: Debian's packages, an unpacked LibTorch, or the folder of a Python wheel.
# find_package(Torch) would enable CUDA as a language, want gflags and protobuf, and impose compiler flags.
# Installed beside plumblineConfig.cmake too, for consumers of the rooms above the line.
# Result: target plumbline_torch, or PLUMBLINE_TORCH_WHY.

# A wheel's prefix is either its torch/ folder or torch/share/cmake, which torch.utils.cmake_prefix_path prints.
set(plumbline_torch_api include/torch/csrc/api/include)
find_path(PLUMBLINE_TORCH_API_INCLUDE torch/version.h
  PATH_SUFFIXES torch/csrc/api/include ${plumbline_torch_api} ../../${plumbline_torch_api})
find_path(PLUMBLINE_TORCH_INCLUDE ATen/ATen.h PATH_SUFFIXES include ../../include)
foreach(lib IN ITEMS CPU:torch_cpu C10:c10 SHELL:torch)
  string(REGEX MATCH "^([^:]+):(.+)$" lib "${lib}")
  find_library(PLUMBLINE_TORCH_${CMAKE_MATCH_1}_LIBRARY ${CMAKE_MATCH_2} PATH_SUFFIXES lib ../../lib)
  mark_as_advanced(PLUMBLINE_TORCH_${CMAKE_MATCH_1}_LIBRARY)
endforeach()
mark_as_advanced(PLUMBLINE_TORCH_API_INCLUDE PLUMBLINE_TORCH_INCLUDE)

set(PLUMBLINE_TORCH_FOUND FALSE)
set(PLUMBLINE_TORCH_VERSION "")
set(PLUMBLINE_TORCH_WHY "")
if(NOT PLUMBLINE_TORCH_INCLUDE OR NOT PLUMBLINE_TORCH_API_INCLUDE)
  set(PLUMBLINE_TORCH_WHY "headers ATen/ATen.h and torch/version.h not found")
elseif(NOT PLUMBLINE_TORCH_CPU_LIBRARY OR NOT PLUMBLINE_TORCH_C10_LIBRARY OR NOT PLUMBLINE_TORCH_SHELL_LIBRARY)
  set(PLUMBLINE_TORCH_WHY "libtorch, libtorch_cpu and libc10 not found")
else()
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    # Newer releases keep the numbers in a header that torch/version.h includes.
    foreach(header IN ITEMS "${PLUMBLINE_TORCH_API_INCLUDE}/torch/version.h"
                            "${PLUMBLINE_TORCH_INCLUDE}/torch/headeronly/version.h")
      if(EXISTS "${header}")
        file(STRINGS "${header}" line REGEX "define TORCH_VERSION_${part} +[0-9]+" LIMIT_COUNT 1)
        if(line MATCHES "([0-9]+)[^0-9]*$")
          set(plumbline_torch_${part} "${CMAKE_MATCH_1}")
        endif()
      endif()
    endforeach()
  endforeach()
  set(PLUMBLINE_TORCH_VERSION "${plumbline_torch_MAJOR}.${plumbline_torch_MINOR}.${plumbline_torch_PATCH}")
  if(PLUMBLINE_TORCH_VERSION VERSION_LESS 1.13)
    set(PLUMBLINE_TORCH_WHY "LibTorch ${PLUMBLINE_TORCH_VERSION} is older than 1.13")
  elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND PLUMBLINE_TORCH_VERSION VERSION_LESS 2.0)
    set(PLUMBLINE_TORCH_WHY "Clang rejects the headers of LibTorch ${PLUMBLINE_TORCH_VERSION} in C++20, GCC takes them")
  else()
    set(PLUMBLINE_TORCH_FOUND TRUE)
  endif()
endif()

# Wheels carry headers of an fmt of their own beside LibTorch's, which would be found before the one that we link: then
# a folder of links to all the others takes their place.
set(plumbline_torch_headers "${PLUMBLINE_TORCH_INCLUDE}")
file(REAL_PATH "${PLUMBLINE_TORCH_INCLUDE}" plumbline_torch_real)
if(PLUMBLINE_TORCH_FOUND AND EXISTS "${PLUMBLINE_TORCH_INCLUDE}/fmt" AND NOT plumbline_torch_real STREQUAL "/usr/include")
  set(plumbline_torch_headers "${CMAKE_BINARY_DIR}/generated/torch-include")
  file(MAKE_DIRECTORY "${plumbline_torch_headers}")
  file(GLOB plumbline_entries RELATIVE "${PLUMBLINE_TORCH_INCLUDE}" "${PLUMBLINE_TORCH_INCLUDE}/*")
  list(REMOVE_ITEM plumbline_entries fmt)
  foreach(entry IN LISTS plumbline_entries)
    file(CREATE_LINK "${PLUMBLINE_TORCH_INCLUDE}/${entry}" "${plumbline_torch_headers}/${entry}" SYMBOLIC)
  endforeach()
endif()

if(PLUMBLINE_TORCH_FOUND AND NOT TARGET plumbline_torch)
  foreach(lib IN ITEMS CPU C10 SHELL)
    add_library(plumbline_torch_${lib} UNKNOWN IMPORTED)
    set_target_properties(plumbline_torch_${lib} PROPERTIES IMPORTED_LOCATION "${PLUMBLINE_TORCH_${lib}_LIBRARY}")
  endforeach()
  add_library(plumbline_torch INTERFACE IMPORTED)
  set_target_properties(plumbline_torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${plumbline_torch_headers};${PLUMBLINE_TORCH_API_INCLUDE}"
    INTERFACE_LINK_LIBRARIES "plumbline_torch_SHELL;plumbline_torch_CPU;plumbline_torch_C10")
  # Wheels before 2.7 use the old layout of std::string; their own package file says so.
  cmake_path(GET PLUMBLINE_TORCH_CPU_LIBRARY PARENT_PATH plumbline_torch_lib)
  set(plumbline_torch_config "${plumbline_torch_lib}/../share/cmake/Torch/TorchConfig.cmake")
  if(EXISTS "${plumbline_torch_config}")
    file(STRINGS "${plumbline_torch_config}" line REGEX "_GLIBCXX_USE_CXX11_ABI=0" LIMIT_COUNT 1)
    if(line)
      set_target_properties(plumbline_torch PROPERTIES INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=0)
    endif()
  endif()
endif()
