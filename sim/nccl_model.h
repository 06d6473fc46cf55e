// NcclModel: the simulator's semantics as data. Rule numbers (N6, N11, ...) are those of docs/nccl-rules.md.
// Always in force: N1 host enqueue, N4 stream order, N6 one communicator = one queue a device, N8/N9 groups,
// N11 group completion, N20-N24 matching, N57 collective matching, N59 completion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/config/run_config.h"
#include "engine/runtime/reduce_nccl.h"

namespace plumbline {

// What one (communicator, sender, receiver) may hold of sends that completed without their receives (N33-N36).
struct EagerLimit {
  Bytes bytes = 0;
  int messages = 0;  // 0: any number
  Bytes step = 0;    // a message counts as one for each step begun, at least one; 0: as one

  int credits(Bytes message) const {
    return step <= 0 || message <= step ? 1 : static_cast<int>((message + step - 1) / step);
  }
  bool operator==(const EagerLimit&) const = default;
};

struct NcclModel {
  SendCompletion send = SendCompletion::kRendezvous;  // N32
  Bytes eager_bytes = 0;                              // kEager, same limit on all links
  int eager_messages = 0;                             // likewise; 0: any number
  EagerLinks eager_links = EagerLinks::kSame;         // kEager: the limits of a kind of machine (N36)
  // Links between nodes are network links: with eager_links they have InfiniBand's limits, and the end of a peer's
  // process is noticed there (N83). 0: one node.
  int ranks_per_node = 0;
  bool registered = false;  // N37: sends are rendezvous

  CrossComm cross = CrossComm::kFree;  // N46, N47
  int hw_queues = 0;                   // N48; 0: as many as streams
  int sms = 0;                         // N45; 0: enough
  int channels = 0;                    // of a kernel; 0: by its largest message

  Connect connect = Connect::kWarm;  // N2
  bool collectives_connect = false;  // N3
  bool group_order_by_call = false;  // N16: communicators of a group run in the order of the calls
  GroupProgress progress;            // N12, N13, N14
  bool launch_blocking = false;      // N49
  bool lazy_modules = false;         // N51
  bool emulate_mismatch = false;     // N23, N24, N58

  // The limit of a link between two members of a communicator; rendezvous links have none.
  EagerLimit limit(std::size_t members, Rank a, Rank b) const;
  // Whether the two are on different nodes.
  bool network(Rank a, Rank b) const {
    return ranks_per_node > 0 && a / ranks_per_node != b / ranks_per_node;
  }
  // Processors that a kernel holds whose largest message has so many bytes.
  int channels_of(Bytes largest) const;
  // The order of starts decides what happens: one run is then an example, not a proof.
  bool depends_on_timing() const { return sms > 0; }

  // "rendezvous+strict+cold": the reference models' mode names, and one part for every other field that is set.
  std::string name() const;
  bool operator==(const NcclModel&) const = default;
};

// Inverse of NcclModel::name(). The parts after the first may come in any order; each at most once.
Result<NcclModel> model_named(std::string_view name);
// The eight modes in which reference models are compared: "rendezvous", "eager_2MiB", "eager_64MiB" and their
// combinations with strict, cold and launch_blocking.
const std::vector<NcclModel>& reference_models();

// Of a configuration: what says "auto" follows from sim.nccl.
NcclModel model_of(const SimConfig& config);
// How its collectives add.
CollectiveNumerics numerics_of(const SimConfig& config);
NcclModel certification_model();  // rendezvous, strict, cold, all at once
NcclModel default_model();        // rendezvous, free, warm

}  // namespace plumbline
