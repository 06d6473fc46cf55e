// NcclModel: the simulator's semantics as data. Rule numbers (N6, N11, ...) are those of docs/nccl-rules.md.
// Always in force: N1 host enqueue, N4 stream order, N6 one communicator = one queue a device, N8/N9 groups,
// N11 group completion, N12 concurrent progress inside a group, N20-N24 matching, N57 collective matching,
// N59 completion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/config/run_config.h"

namespace plumbline {

// How the operations of a group progress. Documented: all at once, whatever their number (N12).
struct GroupProgress {
  // N14: work items a kernel holds before the group is split into several; 0: no limit. Up to 2.29.3 each of
  // them scans the group from its first round again.
  int plan_items = 0;
  bool plan_restart = false;
  // N13: work items that run concurrently in a kernel, on one channel as the worst case; 0: all. Since 2.29.2 a
  // batch does not reach into the next epoch.
  int batch = 0;
  bool batch_epochs = false;

  bool operator==(const GroupProgress&) const = default;
};

struct NcclModel {
  SendCompletion send = SendCompletion::kRendezvous;  // N32
  Bytes eager_bytes = 0;  // kEager: unmatched completed bytes a (communicator, sender, receiver) may hold
  CrossComm cross = CrossComm::kFree;  // N46
  Connect connect = Connect::kWarm;    // N2
  bool launch_blocking = false;        // N49
  GroupProgress progress;              // N12, N13, N14

  std::string name() const;  // "rendezvous+strict+cold", as in the oracle's mode names
  bool operator==(const NcclModel&) const = default;
};

// Inverse of NcclModel::name(). The parts after the first may come in any order.
Result<NcclModel> model_named(std::string_view name);
// The eight modes in which reference models are compared: "rendezvous", "eager_2MiB", "eager_64MiB" and their
// combinations with strict, cold and launch_blocking.
const std::vector<NcclModel>& reference_models();

NcclModel model_of(const SimConfig& config);
NcclModel certification_model();  // rendezvous, strict, cold, all at once
NcclModel default_model();        // rendezvous, free, warm

}  // namespace plumbline
