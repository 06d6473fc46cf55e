# Script: writes OUTPUT from TEMPLATE with VERSION and the commit, and leaves the file alone when nothing changed.
# A tree without git, or one git refuses to read, gives "unknown".
set(REVISION "unknown")
find_program(git git)
if(git)
  set(ENV{GIT_OPTIONAL_LOCKS} 0)
  execute_process(COMMAND "${git}" -C "${SOURCE_DIR}" rev-parse --show-toplevel
    RESULT_VARIABLE status OUTPUT_VARIABLE top ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH "${SOURCE_DIR}" here)
  if(status EQUAL 0 AND top STREQUAL here)
    execute_process(COMMAND "${git}" -C "${SOURCE_DIR}" describe --always --dirty --exclude=*
      RESULT_VARIABLE status OUTPUT_VARIABLE described ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(status EQUAL 0 AND described)
      set(REVISION "${described}")
    endif()
  endif()
endif()
configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)
