// The tables of a lowered Program: slots, kernels, communicator families, streams and endpoints of every
// stage, laid out so that the rows of one rank stand side by side. Both emissions (Megatron's calls, listed
// actions) take their row numbers from here.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/program/lower.h"
#include "engine/program/model_buffers.h"
#include "engine/program/program.h"
#include "engine/schedule/schedule.h"

namespace plumbline::lowering {

// How a call's outputs are let go, which decides what a backward has to release.
struct Policy {
  bool forward_only = false;
  bool split_backward = false;   // I and W kernels appear
  bool free_items = true;        // Megatron: kFree after the send; else the send itself releases (free_after)
  bool deallocate = true;        // Megatron's deallocate_outputs; false: the backward releases the output
  bool loss_slot = false;        // the last stage's loss is a slot (Megatron frees it like any output)
  bool free_loss = false;        // plain 1F1B deallocates it after the forward; else the backward releases it
  bool add_gradients = false;    // backwards add to the stage's gradient buffer
  bool read_parameters = false;  // computations read the stage's parameter buffer
  bool recompute = false;        // backwards build activations again first
  bool shapes = false;           // tensors between ranks are preceded by their shapes
};

class Tables {
 public:
  static constexpr unsigned kNoRow = ~0U;

  // Slots, families and streams. `buffers` may be null; what is given outlives this.
  Tables(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes, const Policy& policy,
         const ModelBuffers* buffers, Program& program);

  // Adds one pipeline coordinate's kernels and endpoints; ranks come in order.
  void add_rank(int rank);

  // Rows; stages count from 0. An endpoint exists only where the neighbour stage lives on another rank.
  unsigned kernel(KernelKind kind, int stage) const;
  // What goes ahead of this B or I to build activations again; kNoRow where nothing does.
  unsigned recomputation(KernelKind kind, int stage) const {
    if (recompute_.empty() || (kind != KernelKind::kBackward && kind != KernelKind::kInputGrad))
      return kNoRow;
    return recompute_[at(stage) * 2 + (kind == KernelKind::kInputGrad ? 1 : 0)];
  }
  unsigned activation(int stage) const { return activation_[at(stage)]; }  // tensor entering the stage
  unsigned gradient(int stage) const { return gradient_[at(stage)]; }
  unsigned loss() const { return loss_; }
  // Where the schedule runs several pipelines, the microbatch tells which one the message travels in.
  unsigned send_forward(int stage, int microbatch) const {  // sends activation(stage + 1)
    return send_forward_[place(stage, microbatch)];
  }
  unsigned recv_forward(int stage, int microbatch) const { return recv_forward_[place(stage, microbatch)]; }
  unsigned send_backward(int stage, int microbatch) const {  // sends gradient(stage)
    return send_backward_[place(stage, microbatch)];
  }
  unsigned recv_backward(int stage, int microbatch) const {  // receives gradient(stage + 1)
    return recv_backward_[place(stage, microbatch)];
  }
  // With Policy::shapes: the endpoint that exchanges the shape of what `endpoint` moves.
  unsigned shape(unsigned endpoint) const { return shape_[endpoint]; }
  bool is_send(unsigned endpoint) const { return program_.endpoints[endpoint].kind == EndpointKind::kSend; }
  unsigned slot(unsigned endpoint) const { return program_.endpoints[endpoint].slot; }
  // Stream of an endpoint row for the rank that owns it.
  unsigned stream(unsigned endpoint) const { return stream_[endpoint]; }

  // Does `other` exist on another rank than `stage`, for this microbatch?
  bool remote(int stage, int other, int microbatch) const {
    return remote_in(pipeline_of(microbatch), stage, other);
  }
  Policy policy() const { return policy_; }

 private:
  static std::size_t at(int stage) { return static_cast<std::size_t>(stage); }
  int pipeline_of(int microbatch) const {
    return schedule_.pipeline_of.empty() ? 0 : schedule_.pipeline_of[at(microbatch)];
  }
  // Index of a stage's copy in a pipeline, in what is kept for each.
  std::size_t place_in(int pipeline, int stage) const {
    return at(pipeline) * at(schedule_.stages) + at(stage);
  }
  std::size_t place(int stage, int microbatch) const { return place_in(pipeline_of(microbatch), stage); }
  int rank_in(int pipeline, int stage) const { return schedule_.rank_of_stage[place_in(pipeline, stage)]; }
  bool remote_in(int pipeline, int stage, int other) const {
    return other >= 0 && other < schedule_.stages && rank_in(pipeline, other) >= 0 &&
           rank_in(pipeline, other) != rank_in(pipeline, stage);
  }
  unsigned rebuilt(int stage, bool split) const {
    return rebuilt_.empty() ? kNoRow : rebuilt_[at(stage) * 2 + (split ? 1 : 0)];
  }
  bool sends_output(int stage) const;
  void slots(const ModelSizes& sizes);
  void rebuilt_slots(const ModelSizes& sizes);
  void recompute_kernels(int stage, const std::vector<std::uint16_t>& reads);
  void families(const RunConfig& config);
  void kernels(int stage);
  void endpoints(int pipeline, int stage);
  void register_peers();
  unsigned add_endpoint(EndpointKind kind, int pipeline, int stage, int other, unsigned slot, bool forward,
                        bool free_after);
  void add_shapes();
  void write_shape(int stage, int other, unsigned slot, std::vector<std::uint16_t>& writes) const;
  unsigned endpoint(EndpointKind kind, int pipeline, int stage, int other, unsigned slot, bool free_after);
  unsigned family_between(int sender, int receiver, bool forward) const;
  unsigned stream_of(int rank, int peer, unsigned family);

  const Schedule& schedule_;
  Policy policy_;
  const ModelBuffers* buffers_;
  Program& program_;
  P2pStyle style_;
  CommMap map_;
  bool on_world_ = false;  // odd ranks send on the world's communicator
  std::vector<unsigned> activation_, gradient_, stash_;
  std::vector<unsigned> rebuilt_,
      recompute_;                     // slots and kernels, [stage * 2 + is split]; kNoRow: nothing to do
  std::vector<unsigned> shape_slot_;  // by slot of a tensor
  std::vector<unsigned> shape_;       // by endpoint
  std::vector<unsigned> kernel_;      // [stage * 4 + kind]
  std::vector<unsigned> send_forward_, recv_forward_, send_backward_, recv_backward_;  // by place
  std::vector<unsigned> stream_;
  std::vector<std::vector<int>>
      peers_;  // kPair: the pipeline coordinates each coordinate talks to, in order of first use
  unsigned pair_stream_base_ = 1;
  unsigned loss_ = 0;
};

}  // namespace plumbline::lowering
