#include "engine/program/lower_tables.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline::lowering {
namespace {

constexpr Bytes kShapeBytes = 3 * 8;

CommFamily grouped(std::string name, std::vector<std::vector<Rank>> instances) {
  return {std::move(name), false, std::move(instances)};
}

std::vector<Rank> whole_world(const RankGrid& grid) {
  std::vector<Rank> all(static_cast<std::size_t>(grid.world()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Rank>(i);
  return all;
}

std::uint16_t row16(unsigned row) { return static_cast<std::uint16_t>(row); }

}  // namespace

Tables::Tables(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes,
               const Policy& policy, const ModelBuffers* buffers, Program& program)
    : schedule_(schedule),
      policy_(policy),
      buffers_(buffers),
      program_(program),
      style_(config.schedule.p2p),
      map_(config.schedule.comm_map) {
  slots(sizes);
  if (policy_.recompute) rebuilt_slots(sizes);
  if (policy_.shapes) add_shapes();
  peers_.resize(static_cast<std::size_t>(schedule.ranks));
  families(config);
  const std::size_t stages = at(schedule.stages);
  kernel_.assign(stages * 4, kNoRow);
  for (auto* rows : {&send_forward_, &recv_forward_, &send_backward_, &recv_backward_})
    rows->assign(schedule.rank_of_stage.size(), kNoRow);
  if (map_ == CommMap::kPair) register_peers();
}

void Tables::add_rank(int rank) {
  for (const int stage : schedule_.stages_of_rank(rank)) {
    if (kernel(KernelKind::kForward, stage) == kNoRow) kernels(stage);  // copies of a stage share them
    for (int pipeline = 0; pipeline < schedule_.pipelines(); ++pipeline) {
      if (rank_in(pipeline, stage) == rank) endpoints(pipeline, stage);
    }
  }
}

// A stream a peer. The streams stand before those of the collectives, so their number must be known first.
void Tables::register_peers() {
  std::size_t most = 0;
  for (int rank = 0; rank < schedule_.ranks; ++rank) {
    for (const int stage : schedule_.stages_of_rank(rank)) {
      for (int pipeline = 0; pipeline < schedule_.pipelines(); ++pipeline) {
        if (rank_in(pipeline, stage) != rank) continue;
        for (const int neighbour : {stage - 1, stage + 1}) {
          if (remote_in(pipeline, stage, neighbour)) stream_of(rank, rank_in(pipeline, neighbour), 0);
        }
      }
    }
    most = std::max(most, peers_[at(rank)].size());
  }
  for (std::size_t i = 0; i < most; ++i) program_.streams.push_back(fmt::format("pair.{}", i));
}

unsigned Tables::kernel(KernelKind kind, int stage) const {
  return kernel_[at(stage) * 4 + static_cast<std::size_t>(kind)];
}

void Tables::slots(const ModelSizes& sizes) {
  const auto add = [this](SlotKind kind, std::string name, int stage, Bytes bytes, DType dtype) {
    program_.slots.push_back(
        {std::move(name), kind, dtype, row16(static_cast<unsigned>(stage)), true, false, bytes});
    return static_cast<unsigned>(program_.slots.size() - 1);
  };
  for (int s = 0; s < schedule_.stages; ++s) {
    // The tensors around stage s stand together; stage 0 has no input tensor, its rows stay unused.
    activation_.push_back(s == 0 ? kNoRow
                                 : add(SlotKind::kActivation, fmt::format("activation.{}", s), s,
                                       sizes.activation, sizes.activation_dtype));
    if (policy_.forward_only) {
      gradient_.push_back(kNoRow);
      stash_.push_back(kNoRow);
      continue;
    }
    gradient_.push_back(s == 0 ? kNoRow
                               : add(SlotKind::kGradient, fmt::format("gradient.{}", s), s, sizes.activation,
                                     sizes.activation_dtype));
    stash_.push_back(add(SlotKind::kStash, fmt::format("stash.{}", s), s, sizes.stash[at(s)], DType::kU8));
  }
  loss_ = policy_.loss_slot ? add(SlotKind::kOther, "loss", schedule_.stages - 1, 4, DType::kF32) : kNoRow;
}

void Tables::families(const RunConfig& config) {
  const RankGrid& grid = config.grid;
  const auto pipelines = grid.groups(axis_bit(Axis::kPp));
  on_world_ = map_ == CommMap::kMegatron && style_ != P2pStyle::kBatched && grid.pp() == 2;
  const auto stream = [this](const std::string& name) { program_.streams.push_back(name); };
  switch (map_) {
    case CommMap::kOne:
    case CommMap::kMegatron:
      program_.families.push_back(grouped("pp", pipelines));
      stream("pp");
      if (on_world_) {
        program_.families.push_back(grouped("world", {whole_world(grid)}));
        stream("world");
      }
      break;
    case CommMap::kDirection:
      for (const char* name : {"pp.forward", "pp.backward"}) {
        program_.families.push_back(grouped(name, pipelines));
        stream(name);
      }
      break;
    case CommMap::kPair:
      program_.families.push_back({"pair", true, {}});
      pair_stream_base_ = static_cast<unsigned>(program_.streams.size());
      break;
  }
}

// Megatron with separate calls and two ranks: even ranks send on the pipeline's communicator, odd ranks on
// the world's.
unsigned Tables::family_between(int sender, int /*receiver*/, bool forward) const {
  if (map_ == CommMap::kDirection) return forward ? 0 : 1;
  if (on_world_) return sender % 2 == 0 ? 0 : 1;
  return 0;
}

unsigned Tables::stream_of(int rank, int peer, unsigned family) {
  if (map_ != CommMap::kPair) return 1 + family;
  auto& peers = peers_[at(rank)];
  auto found = std::find(peers.begin(), peers.end(), peer);
  if (found == peers.end()) {
    peers.push_back(peer);
    found = peers.end() - 1;
    if (rank < peer ||
        std::find(peers_[at(peer)].begin(), peers_[at(peer)].end(), rank) == peers_[at(peer)].end()) {
      const RankGrid& grid = program_.grid;
      auto& instances = program_.families[0].instances;
      const int low = std::min(rank, peer);
      const int high = std::max(rank, peer);
      for (const auto& pipeline : grid.groups(axis_bit(Axis::kPp))) {
        const std::vector<Rank> pair{pipeline[at(low)], pipeline[at(high)]};
        if (std::find(instances.begin(), instances.end(), pair) == instances.end()) instances.push_back(pair);
      }
    }
  }
  return pair_stream_base_ + static_cast<unsigned>(found - peers.begin());
}

void Tables::kernels(int stage) {
  const bool last = stage == schedule_.stages - 1;
  const auto add = [&](KernelKind kind, char letter, RowList reads, RowList frees, RowList writes) {
    kernel_[at(stage) * 4 + static_cast<std::size_t>(kind)] = static_cast<unsigned>(program_.kernels.size());
    program_.kernels.push_back({fmt::format("{}.{}", letter, stage), kind,
                                row16(static_cast<unsigned>(stage)), std::move(reads), std::move(frees),
                                std::move(writes)});
  };
  std::vector<std::uint16_t> input;
  if (stage > 0) input.push_back(row16(activation(stage)));
  std::vector<std::uint16_t> made;
  if (!last) {
    made.push_back(row16(activation(stage + 1)));
    write_shape(stage, stage + 1, activation(stage + 1), made);
  }
  std::vector<std::uint16_t> weights;
  if (policy_.read_parameters) weights.push_back(buffers_->parameters(stage));
  if (policy_.forward_only) {
    add(KernelKind::kForward, 'F', weights, input, made);
    return;
  }
  if (last && policy_.loss_slot) made.push_back(row16(loss_));
  made.push_back(row16(stash_[at(stage)]));
  std::vector<std::uint16_t> read = input;
  read.insert(read.end(), weights.begin(), weights.end());
  add(KernelKind::kForward, 'F', read, {}, made);

  std::vector<std::uint16_t> kept = input;  // released by the last kernel that needs the forward's context
  kept.push_back(row16(stash_[at(stage)]));
  if (last && policy_.loss_slot && !policy_.free_loss) kept.push_back(row16(loss_));
  if (!last && policy_.free_items && !policy_.deallocate && sends_output(stage))
    kept.push_back(row16(activation(stage + 1)));
  std::vector<std::uint16_t> incoming;
  if (!last) incoming.push_back(row16(gradient(stage + 1)));
  std::vector<std::uint16_t> outgoing;
  if (stage > 0) {
    outgoing.push_back(row16(gradient(stage)));
    write_shape(stage, stage - 1, gradient(stage), outgoing);
  }
  std::vector<std::uint16_t> all = kept;
  all.insert(all.end(), incoming.begin(), incoming.end());
  if (policy_.recompute) {
    std::vector<std::uint16_t> kept_with_weights = read;
    kept_with_weights.push_back(row16(stash_[at(stage)]));
    recompute_kernels(stage, kept_with_weights);
  }
  // B lets go of what was built again for it; what I had built again W needs too.
  std::vector<std::uint16_t> all_of_backward = all;
  if (const unsigned slot = rebuilt(stage, false); slot != kNoRow) all_of_backward.push_back(row16(slot));
  if (const unsigned slot = rebuilt(stage, true); slot != kNoRow) all.push_back(row16(slot));
  // Gradients of the weights are added in place.
  std::vector<std::uint16_t> sums;
  if (policy_.add_gradients) sums.push_back(buffers_->gradients(stage));
  const auto with = [](std::vector<std::uint16_t> slots, const std::vector<std::uint16_t>& more) {
    slots.insert(slots.end(), more.begin(), more.end());
    return slots;
  };
  add(KernelKind::kBackward, 'B', with(weights, sums), all_of_backward, with(outgoing, sums));
  if (policy_.split_backward) {
    // I leaves the incoming gradient to W, which needs it together with the stash.
    add(KernelKind::kInputGrad, 'I', with(weights, all), {}, outgoing);
    add(KernelKind::kWeightGrad, 'W', sums, all, sums);
  }
}

void Tables::rebuilt_slots(const ModelSizes& sizes) {
  const std::size_t stages = at(schedule_.stages);
  rebuilt_.assign(stages * 2, kNoRow);
  recompute_.assign(stages * 2, kNoRow);
  for (std::size_t place = 0; place < stages * 2; ++place) {
    const std::size_t stage = place / 2;
    const bool split = place % 2 != 0;
    const std::vector<Bytes>& bytes = split ? sizes.rebuilt_split : sizes.rebuilt;
    if (stage >= bytes.size() || bytes[stage] == 0 || (split && !policy_.split_backward)) continue;
    rebuilt_[place] = static_cast<unsigned>(program_.slots.size());
    program_.slots.push_back({fmt::format("rebuilt{}.{}", split ? "_split" : "", stage), SlotKind::kRebuilt,
                              DType::kU8, row16(static_cast<unsigned>(stage)), true, false, bytes[stage]});
  }
}

void Tables::recompute_kernels(int stage, const std::vector<std::uint16_t>& reads) {
  for (const bool split : {false, true}) {
    const unsigned slot = rebuilt(stage, split);
    if (slot == kNoRow) continue;
    recompute_[at(stage) * 2 + (split ? 1 : 0)] = static_cast<unsigned>(program_.kernels.size());
    program_.kernels.push_back({fmt::format("R{}.{}", split ? "I" : "", stage),
                                KernelKind::kRecompute,
                                row16(static_cast<unsigned>(stage)),
                                reads,
                                {},
                                {row16(slot)}});
  }
}

// Schedules with Megatron's calls have one pipeline; a hand-over on the rank itself is the same for all of a stage's
// microbatches there.
bool Tables::sends_output(int stage) const { return remote_in(0, stage, stage + 1); }

// Shapes go the way of their tensors.
void Tables::add_shapes() {
  shape_slot_.resize(program_.slots.size(), kNoRow);
  for (const std::vector<unsigned>* tensors : {&activation_, &gradient_}) {
    for (const unsigned tensor : *tensors) {
      if (tensor == kNoRow) continue;
      const SlotClass of = program_.slots[tensor];
      shape_slot_[tensor] = static_cast<unsigned>(program_.slots.size());
      program_.slots.push_back(
          {"shape." + of.name, SlotKind::kShape, DType::kI64, of.stage, true, false, kShapeBytes});
    }
  }
}

// What makes a tensor for another rank makes its shape.
void Tables::write_shape(int stage, int other, unsigned slot, std::vector<std::uint16_t>& writes) const {
  if (policy_.shapes && remote_in(0, stage, other)) writes.push_back(row16(shape_slot_[slot]));
}

unsigned Tables::endpoint(EndpointKind kind, int pipeline, int stage, int other, unsigned slot,
                          bool free_after) {
  const bool forward = program_.slots[slot].kind == SlotKind::kActivation;
  const unsigned row = add_endpoint(kind, pipeline, stage, other, slot, forward, free_after);
  if (!policy_.shapes) return row;
  const unsigned shape =
      add_endpoint(kind, pipeline, stage, other, shape_slot_[slot], forward, kind == EndpointKind::kSend);
  shape_.resize(program_.endpoints.size());
  shape_[row] = shape;
  return row;
}

unsigned Tables::add_endpoint(EndpointKind kind, int pipeline, int stage, int other, unsigned slot,
                              bool forward, bool free_after) {
  const bool send = kind == EndpointKind::kSend;
  const int self = rank_in(pipeline, stage);
  const int peer = rank_in(pipeline, other);
  const SlotClass& row = program_.slots[slot];
  Endpoint out;
  out.name = fmt::format("{}.{}.{}", send ? "send" : "recv", row.name, self);
  if (schedule_.pipelines() > 1) out.name += fmt::format(".{}", pipeline);
  out.kind = kind;
  out.dtype = row.dtype;
  out.form = PeerForm::kCoordinate;
  out.free_after = free_after;
  const unsigned family = send ? family_between(self, peer, forward) : family_between(peer, self, forward);
  out.family = row16(family);
  out.slot = row16(slot);
  out.peer = peer;
  out.bytes = row.bytes;
  program_.endpoints.push_back(std::move(out));
  stream_.resize(program_.endpoints.size());  // rows between are other tables'
  stream_.back() = stream_of(self, peer, family);
  return static_cast<unsigned>(program_.endpoints.size() - 1);
}

void Tables::endpoints(int pipeline, int stage) {
  const bool before = remote_in(pipeline, stage, stage - 1);
  const bool after = remote_in(pipeline, stage, stage + 1);
  const bool send_releases = !policy_.free_items || (policy_.forward_only && !policy_.deallocate);
  const std::size_t here = place_in(pipeline, stage);
  if (before)
    recv_forward_[here] = endpoint(EndpointKind::kRecv, pipeline, stage, stage - 1, activation(stage), false);
  if (after)
    send_forward_[here] =
        endpoint(EndpointKind::kSend, pipeline, stage, stage + 1, activation(stage + 1), send_releases);
  if (policy_.forward_only) return;
  if (after)
    recv_backward_[here] =
        endpoint(EndpointKind::kRecv, pipeline, stage, stage + 1, gradient(stage + 1), false);
  if (before)
    send_backward_[here] = endpoint(EndpointKind::kSend, pipeline, stage, stage - 1, gradient(stage), true);
}

}  // namespace plumbline::lowering
