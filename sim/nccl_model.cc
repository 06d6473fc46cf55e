#include "sim/nccl_model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/text.h"
#include "engine/config/names.h"

namespace plumbline {
namespace {

constexpr Bytes kMiB = Bytes{1} << 20;
constexpr Bytes kKiB = Bytes{1} << 10;

// N36. A connection has eight steps; a message of p bytes on c channels takes p / (c * chunk) of them. Pairs: a
// communicator of two ranks, which has all channels for its one peer; larger ones share them. A100's limit for
// larger ones follows from the same ratio as H100's.
EagerLimit machine_limit(EagerLinks links, bool pair) {
  switch (links) {
    case EagerLinks::kH100:
      return pair ? EagerLimit{64 * kMiB, 8, 8 * kMiB} : EagerLimit{16 * kMiB, 8, 2 * kMiB};
    case EagerLinks::kA100:
      return pair ? EagerLimit{32 * kMiB, 8, 4 * kMiB} : EagerLimit{8 * kMiB, 8, kMiB};
    case EagerLinks::kPcie:
      return {kMiB, 8, 128 * kKiB};
    case EagerLinks::kIb:
      return {2 * kMiB, 8, 256 * kKiB};
    case EagerLinks::kSame:
      break;
  }
  return {};
}

bool at_least(NcclVersion version, NcclVersion since) {
  return static_cast<int>(version) >= static_cast<int>(since);
}

// Without a release: what the user guide documents. Kernels of 63 messages: 253 batches, four for each message.
GroupProgress progress_of(NcclVersion version) {
  GroupProgress progress;
  if (version == NcclVersion::kNone) return progress;
  progress.batch = 8;
  progress.batch_epochs = at_least(version, NcclVersion::k2_29_2);
  progress.plan_items = 63;
  progress.plan_restart = !at_least(version, NcclVersion::k2_29_7);
  return progress;
}

}  // namespace

EagerLimit NcclModel::limit(std::size_t members, Rank a, Rank b) const {
  if (send != SendCompletion::kEager || registered) return {};
  if (eager_links == EagerLinks::kSame) return {eager_bytes, eager_messages, 0};
  return machine_limit(network(a, b) ? EagerLinks::kIb : eager_links, members == 2);
}

int NcclModel::channels_of(Bytes largest) const {
  if (channels > 0) return channels;
  // One for 64 KiB, doubled with every doubling of the message, up to 32.
  int count = 1;
  for (Bytes part = 64 * kKiB; part < largest && count < 32; part *= 2) count *= 2;
  return count;
}

NcclModel model_of(const SimConfig& config) {
  NcclModel model;
  model.send = config.send;
  if (config.send == SendCompletion::kEager) {
    model.eager_links = config.eager_links;
    if (config.eager_links == EagerLinks::kSame) {
      model.eager_bytes = config.eager_bytes;
      model.eager_messages = config.eager_messages;
    }
  }
  model.ranks_per_node = config.ranks_per_node;
  model.registered = config.registered;
  model.cross = config.cross;
  model.hw_queues = config.hw_queues;
  model.sms = config.sms;
  model.channels = config.sms > 0 ? config.channels : 0;
  model.connect = config.connect;
  const bool lazy_collectives = config.connect == Connect::kCold && at_least(config.nccl, NcclVersion::k2_22);
  model.collectives_connect = config.connect_collectives == CollectiveConnect::kAuto
                                  ? lazy_collectives
                                  : config.connect_collectives == CollectiveConnect::kCold;
  const bool old_order = config.nccl != NcclVersion::kNone && !at_least(config.nccl, NcclVersion::k2_26);
  model.group_order_by_call =
      config.group_order == GroupOrder::kAuto ? old_order : config.group_order == GroupOrder::kCall;
  model.progress = config.progress_auto ? progress_of(config.nccl) : config.progress;
  model.launch_blocking = config.launch_blocking;
  model.lazy_modules = config.lazy_modules;
  model.emulate_mismatch = config.mismatch == Mismatch::kEmulate;
  return model;
}

CollectiveNumerics numerics_of(const SimConfig& config) {
  CollectiveNumerics numerics;
  numerics.kind = config.numerics;
  numerics.channels = config.ring_channels;
  numerics.chunk_bytes = static_cast<std::size_t>(config.ring_chunk);
  numerics.ranks_per_node = std::max(1, config.ranks_per_node);
  return numerics;
}

NcclModel certification_model() {
  NcclModel model;
  model.cross = CrossComm::kStrict;
  model.connect = Connect::kCold;
  return model;
}

NcclModel default_model() { return NcclModel{}; }

}  // namespace plumbline
