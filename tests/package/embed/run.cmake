# Script of the ctest entry "embed": embeds pages full of awkward text, compiles them, and compares byte for byte.

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "embed: ${ARGN} failed (${status})\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${BUILD}/embed")
file(MAKE_DIRECTORY "${BUILD}/embed")
set(page "${BUILD}/embed/page")
file(WRITE "${page}.html" "")
set(text "a;b \\ \\; [x;y] ]] \${z} @q@ \"q\" R\"( )\" 0x \\n é→😀 </script>\n")
string(REPEAT "${text}" 2000 text)  # over 64 KiB
file(WRITE "${page}.css" "${text}")
string(REPEAT "é→😀;x=1," 8000 text)  # no line end at all
file(WRITE "${page}.js" "${text}")

step("${CMAKE_COMMAND}" "-DPAGE=${page}" "-DOUTPUT=${page}.cc" -P "${SOURCE}/cmake/embed.cmake")
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
step("${COMPILER}" -std=c++20 -Wall -Wextra -Werror ${flags} "-I${SOURCE}"
     "${page}.cc" "${SOURCE}/tests/package/embed/main.cc" -o "${BUILD}/embed/print")
foreach(kind IN ITEMS html css js)
  execute_process(COMMAND "${BUILD}/embed/print" ${kind} OUTPUT_FILE "${page}.${kind}.out" RESULT_VARIABLE status)
  file(MD5 "${page}.${kind}" want)
  file(MD5 "${page}.${kind}.out" got)
  if(NOT status EQUAL 0 OR NOT want STREQUAL got)
    message(FATAL_ERROR "embed: page.${kind} did not survive embedding")
  endif()
endforeach()
