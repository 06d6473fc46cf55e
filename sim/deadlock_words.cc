// What a wait between two things on a device is called. sim/rules.cc knows these words.
#include "sim/deadlock.h"

namespace plumbline::sim {

std::string meeting_words(const Lifecycle::Waiting& waiting, const Communicator& communicator) {
  return waiting.turn ? "one host thread drives the ranks of " + communicator.name + " in turn"
                      : "needs the call of every member of communicator " + communicator.name;
}

std::string wait_words(const World& world, NodeId node, Because because) {
  const DeviceGraph& graph = world.graph();
  const Program& program = world.program();
  if (graph[node].kind == NodeKind::kComm) return "takes place once its communicator has nothing left to do";
  switch (because) {
    case Because::kStream:
      return "is behind it on stream " + program.streams[graph[node].stream];
    case Because::kCommunicator: {
      const LinkedEndpoint& linked = world.linked().endpoints[world.entries()[graph[node].first].route];
      return "is behind it in communicator " +
             world.linked().communicators[static_cast<std::size_t>(linked.communicator)].name;
    }
    case Because::kLaunchOrder:
      return world.model().cross == CrossComm::kLaunchOrder ? "may not start before it, in launch order"
                                                            : "was launched after it on the same device";
    case Because::kCompute:
      return "starts after it, being after the compute stream";
    case Because::kWaitsFor:
      return "its stream waits for it";
    case Because::kPlan:
      return "is in a later kernel of the same group";
    case Because::kQueue:
      return "is behind it in a hardware queue, whatever its stream";
    case Because::kModule:
      return "is a kernel's first launch, which waits for the device";
    case Because::kLegacy:
      return "is ordered after it by the legacy default stream";
    case Because::kGroupStreams:
      return "is in a group that waits for its stream";
  }
  return {};
}

}  // namespace plumbline::sim
