# Sources written at build time: the version, and the report page's three files as string constants.

set(plumbline_generated "${PROJECT_BINARY_DIR}/generated")

set(PLUMBLINE_VERSION_SOURCE "${plumbline_generated}/version.cc")
add_custom_target(plumbline_version_stamp
  COMMAND "${CMAKE_COMMAND}" "-DVERSION=${PROJECT_VERSION}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}"
          "-DTEMPLATE=${PROJECT_SOURCE_DIR}/cmake/version.cc.in" "-DOUTPUT=${PLUMBLINE_VERSION_SOURCE}"
          -P "${PROJECT_SOURCE_DIR}/cmake/version.cmake"
  BYPRODUCTS "${PLUMBLINE_VERSION_SOURCE}"
  COMMENT "Version from git" VERBATIM)

set(PLUMBLINE_REPORT_SOURCE "")
set(plumbline_page "${PROJECT_SOURCE_DIR}/reports/html/page")
if(EXISTS "${plumbline_page}.html" AND EXISTS "${plumbline_page}.css" AND EXISTS "${plumbline_page}.js")
  set(PLUMBLINE_REPORT_SOURCE "${plumbline_generated}/report_page.cc")
  file(GLOB plumbline_page_parts CONFIGURE_DEPENDS "${plumbline_page}_*.js")
  add_custom_command(OUTPUT "${PLUMBLINE_REPORT_SOURCE}"
    COMMAND "${CMAKE_COMMAND}" "-DPAGE=${plumbline_page}" "-DOUTPUT=${PLUMBLINE_REPORT_SOURCE}"
            -P "${PROJECT_SOURCE_DIR}/cmake/embed.cmake"
    DEPENDS "${plumbline_page}.html" "${plumbline_page}.css" "${plumbline_page}.js" ${plumbline_page_parts}
            "${PROJECT_SOURCE_DIR}/cmake/embed.cmake"
    COMMENT "Embedding the report page" VERBATIM)
else()
  message(STATUS "plumbline: report page not embedded, reports/html/page.{html,css,js} are not all there")
endif()

# Generators register themselves, but a linker takes a file out of an archive only if something names a symbol of it: this
# list does. A new file in engine/schedule is found by its line "RegisterGenerator register_<name>{".
set(PLUMBLINE_GENERATOR_SOURCE "${plumbline_generated}/linked_generators.cc")
file(GLOB plumbline_schedule_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/engine/schedule/*.cc")
set(plumbline_externs "")
set(plumbline_addresses "")
foreach(file IN LISTS plumbline_schedule_files)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" lines REGEX "^RegisterGenerator register_[a-z0-9_]+")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "register_[a-z0-9_]+" symbol "${line}")
    string(APPEND plumbline_externs "extern RegisterGenerator ${symbol};\n")
    string(APPEND plumbline_addresses "    &${symbol},\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT "${PLUMBLINE_GENERATOR_SOURCE}" @ONLY CONTENT
"// Made by cmake/PlumblineGenerated.cmake.
#include \"engine/schedule/generator.h\"

namespace plumbline::detail {

@plumbline_externs@
RegisterGenerator* const kGenerators[] = {
@plumbline_addresses@};

RegisterGenerator* const* linked_generators() { return kGenerators; }

}  // namespace plumbline::detail
")
