#include "backends/gloo/matching.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/verify/matching.h"
#include "sim/verify/world.h"

namespace plumbline::gloo {
namespace {

using verify::Arm;

// The k-th send of a link meets its k-th receive, also where one side has more of them.
Status check_sizes(const verify::CheckWorld& world, Arm arm) {
  const Program& program = *world.program;
  struct Side {
    std::vector<std::uint32_t> sends, receives;
  };
  std::vector<Side> sides(world.links.size());
  for (std::size_t t = 0; t < world.threads(); ++t) {
    const auto p2p = [](const verify::Port& port) { return is_p2p(port.kind); };
    for (const std::uint32_t item : verify::items_where(world, t, arm, p2p)) {
      const verify::Port& port = world.port(t, item_ref(program.items[item]));
      Side& side = sides[port.link];
      (port.kind == EndpointKind::kSend ? side.sends : side.receives).push_back(item);
    }
  }
  const auto bytes = [&](std::uint32_t item) {
    return program.endpoints[item_ref(program.items[item])].bytes;
  };
  for (std::size_t l = 0; l < sides.size(); ++l) {
    const Side& side = sides[l];
    for (std::size_t k = 0; k < std::min(side.sends.size(), side.receives.size()); ++k) {
      if (bytes(side.sends[k]) == bytes(side.receives[k])) continue;
      const verify::Link& link = world.links[l];
      return fail(
          ErrorCode::kState,
          fmt::format("message {} from rank {} to rank {}: {} sends {} bytes, {} expects {} - ends of "
                      "different size are not sent; `plumbline check` names all of them",
                      k + 1, link.source, link.destination, world.operation(link.source, side.sends[k]).text,
                      bytes(side.sends[k]), world.operation(link.destination, side.receives[k]).text,
                      bytes(side.receives[k])));
    }
  }
  return {};
}

}  // namespace

Result<Matching> match(const LinkedProgram& linked) {
  const verify::CheckWorld world = verify::make_world(linked);
  Matching out;
  for (const Arm arm : {Arm::kNo, Arm::kYes}) {
    PL_TRY(check_sizes(world, arm));
    for (const Finding& finding : verify::explain_matching(world, arm)) {
      // One member calling less than another is for the run to find out: it hangs there.
      if (finding.kind == FindingKind::kCollectiveMismatch && finding.operations.size() > 1)
        return fail(ErrorCode::kState, finding.why);
    }
  }
  out.labels = verify::crossed_labels(world);
  return out;
}

}  // namespace plumbline::gloo
