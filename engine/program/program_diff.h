// What two Programs' host operations have in common and what not: calls by what they do (describe_item), so that a
// send is the same send whatever group it stands in; how each is done (its line in the Program text) as details.
#pragma once

#include "engine/program/program.h"
#include "engine/schedule/call_diff.h"

namespace plumbline {

// One row a host thread; `details` has the same shape. Two Programs without any difference here whose digests
// differ have other sizes or communicators.
CallRows call_rows(const Program& program);
CallRows call_details(const Program& program);

}  // namespace plumbline
