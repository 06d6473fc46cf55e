#pragma once

#include <string_view>

namespace plumbline {

/// Which plumbline this is. The project's version number lives in CMakeLists.txt only; the commit is read at
/// build time. All three views stay valid for the life of the process.

/// "0.1.0+1a2b3c4", with "-dirty" appended when the tree had uncommitted changes at the last build.
std::string_view version();

/// "0.1.0": the number alone, for places that must not change from commit to commit.
std::string_view release_version();

/// "1a2b3c4", "1a2b3c4-dirty", or "unknown" outside a git work tree.
std::string_view revision();

}  // namespace plumbline
