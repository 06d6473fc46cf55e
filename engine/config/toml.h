// toml++, included the one way that is safe here. Only .cc files include this: it is large.
#pragma once

// Header-only keeps the system's shared library, built with exceptions, out of the link.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
// toml++ 3.3 asserts that a table header begins like a key before it checks so, and "[=]" ends the process in
// a debug build; with NDEBUG the condition becomes an assumption, undefined behaviour under Clang. Without
// either, the check that follows reports the error as it should.
#define TOML_ASSERT(condition) static_assert(true)
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
