# Script: turns PAGE.html, PAGE.css and PAGE.js with PAGE_*.js into the C++ source OUTPUT, which reports/html/embedded.h declares.
# Compilers may stop at literals of 64 KiB, even after joining neighbours, so a file is kept as a list of shorter ones,
# cut after a line end where there is one and never inside a UTF-8 character.
set(chunk_bytes 32000)
set(delimiter pl_page)

function(cut_length text out)
  string(LENGTH "${text}" length)
  if(length LESS_EQUAL chunk_bytes)
    set(${out} ${length} PARENT_SCOPE)
    return()
  endif()
  string(SUBSTRING "${text}" 0 ${chunk_bytes} head)
  foreach(mark IN ITEMS "\n" " " "," "}" ")" "0" "e")
    string(FIND "${head}" "${mark}" at REVERSE)
    if(at GREATER 0)
      math(EXPR at "${at} + 1")
      set(${out} ${at} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "embed: ${chunk_bytes} bytes without a place to cut")
endfunction()

set(body "")
foreach(kind IN ITEMS html css js)
  # A script in several files (page.js, page_*.js) is joined in name order.
  file(GLOB parts "${PAGE}.${kind}" "${PAGE}_*.${kind}")
  set(text "")
  set(size 0)
  foreach(part IN LISTS parts)
    file(READ "${part}" piece)
    file(SIZE "${part}" bytes)
    string(APPEND text "${piece}")
    math(EXPR size "${size} + ${bytes}")
  endforeach()
  string(LENGTH "${text}" length)
  if(NOT size EQUAL length)
    message(FATAL_ERROR "embed: ${PAGE}.${kind} has ${size} bytes, ${length} were read (a NUL or a lone CR in it?)")
  endif()
  string(FIND "${text}" ")${delimiter}\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "embed: ${PAGE}.${kind} contains the closing mark of our raw strings")
  endif()
  string(APPEND body "std::string_view report_page_${kind}() {\n  static const std::string text = join({\n")
  while(NOT text STREQUAL "")
    cut_length("${text}" length)
    string(SUBSTRING "${text}" 0 ${length} chunk)
    string(SUBSTRING "${text}" ${length} -1 text)
    string(APPEND body "R\"${delimiter}(${chunk})${delimiter}\",\n")
  endwhile()
  string(APPEND body "  });\n  return text;\n}\n\n")
endforeach()

file(WRITE "${OUTPUT}" "// Written by cmake/embed.cmake from reports/html/page.{html,css,js}.
#include \"reports/html/embedded.h\"

#include <initializer_list>
#include <string>

namespace plumbline {
namespace {

std::string join(std::initializer_list<std::string_view> chunks) {
  std::string all;
  for (std::string_view chunk : chunks) all += chunk;
  return all;
}

}  // namespace

${body}}  // namespace plumbline
")
