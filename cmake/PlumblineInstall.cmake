# cmake --install, and find_package(plumbline) [COMPONENTS torch].
# Headers land in include/plumbline with the folders they have here, so #include "engine/base/result.h" works for both.
include(CMakePackageConfigHelpers)

set(plumbline_include "${CMAKE_INSTALL_INCLUDEDIR}/plumbline")
set(plumbline_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/plumbline")

get_property(rooms GLOBAL PROPERTY PLUMBLINE_ROOMS)
set(plumbline_has_torch OFF)
foreach(name IN LISTS rooms)
  get_property(torch GLOBAL PROPERTY PLUMBLINE_ROOM_TORCH_${name})
  set(export plumblineTargets)
  if(torch)
    set(export plumblineTorchTargets)
    set(plumbline_has_torch ON)
  endif()
  install(TARGETS plumbline_${name} EXPORT ${export}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    FILE_SET HEADERS DESTINATION "${plumbline_include}"
    INCLUDES DESTINATION "${plumbline_include}")
endforeach()

install(EXPORT plumblineTargets NAMESPACE plumbline:: DESTINATION "${plumbline_package_dir}")
if(plumbline_has_torch)
  install(EXPORT plumblineTorchTargets NAMESPACE plumbline:: DESTINATION "${plumbline_package_dir}")
  install(FILES cmake/PlumblineTorch.cmake DESTINATION "${plumbline_package_dir}")
endif()
configure_package_config_file(cmake/plumblineConfig.cmake.in "${PROJECT_BINARY_DIR}/generated/plumblineConfig.cmake"
  INSTALL_DESTINATION "${plumbline_package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/generated/plumblineConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/generated/plumblineConfig.cmake"
              "${PROJECT_BINARY_DIR}/generated/plumblineConfigVersion.cmake"
  DESTINATION "${plumbline_package_dir}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES tests/data/text.txt DESTINATION "${CMAKE_INSTALL_DATADIR}/plumbline")  # default text of `plumbline run`
