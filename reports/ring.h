// The cycle of a deadlock as a ring of ranks, for the HTML report: inline SVG without any layout library.
#pragma once

#include <string>
#include <vector>

#include "reports/wait_cycle.h"

namespace plumbline {

// Colours come from the classes ring-box, ring-arrow, ring-op and ring-rank of the surrounding page. At most
// 16 ranks are drawn; a longer cycle ends in a box that says how many were left out.
std::string ring_svg(const std::vector<CycleHop>& hops);

}  // namespace plumbline
