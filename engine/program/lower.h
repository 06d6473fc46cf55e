// Lowering: from a schedule and a configuration to the Program of one whole training step.
//
// Megatron's generators (1f1b, interleaved, interleaved-2022, forward-only) are lowered to Megatron's calls:
// which receive is posted in which combined call is decided there, not by the compute order alone
// (megatron/core/pipeline_parallel/schedules.py). GPipe uses the same plain calls (RF, SF, RB, SB). A schedule
// that already lists its communication is taken as it stands, one separate operation an action. A compute-only
// order of unknown origin gets its communication by torch's rule: walking all ranks in turn, a send directly
// after its computation and the receive at that moment on the peer's row, which is acyclic by construction.
//
// A generated order without Megatron's calls gets UNSHARD, RESHARD and REDUCE_GRAD by torch's rule with
// --shard-parameters (torch_passes.h, model_buffers.h).
//
// After the last backward comes the tail (tail.h): gradients reduced over data parallel, agreement on overflow,
// norm, step or skip, parameters gathered. With --overlap-grad-reduce and --overlap-param-gather reductions and
// gathers run beside the pipeline's work (overlap.h). With --cuda-graphs the whole becomes graphs (graphs.h).
#pragma once

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/program/param_layout.h"
#include "engine/program/program.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

// What a model tells about its sizes; the same numbers are the Program's slots. All in bytes unless said.
struct ModelSizes {
  Bytes activation = 1 << 20;  // tensor between two stages, one microbatch
  DType activation_dtype = DType::kF32;
  std::vector<Bytes> stash;  // kept by a forward of a stage, one entry a stage
  // With [memory] recompute, one entry a stage, else empty: what a B builds again and holds at one time; what an I
  // builds again and its W needs too.
  std::vector<Bytes> rebuilt, rebuilt_split;
  std::vector<Bytes> grads;  // fp32 main gradients of a stage, one entry a stage
  Bytes tied_grad = 0;       // gradient of the tied embedding; 0: not tied
  int parameters = 0;        // number of parameter tensors of the whole model, the tied one once
  // Parameter tensors of a stage in registration order, one entry a stage; a tied one is a shared embedding. Their
  // sizes times 4 are `grads`.
  std::vector<std::vector<ParamSize>> tensors;
};

enum class StepTail : std::uint8_t {
  kTrain,     // the whole training step
  kSchedule,  // the pipeline part only: no gradient reduction, no optimizer (checks of a bare schedule)
  kEvaluate,  // the pipeline part as a run evaluates: parameters that are still to be gathered are gathered first
};

struct LowerOptions {
  StepTail tail = StepTail::kTrain;
  bool call_marks = false;  // name every Megatron call and phase with a kMark, as megatron_trace() needs
  bool fragment = false;    // computations that are not listed count as done
};

// The configuration must have passed validate(). `sizes` may come from a model or from [memory] (default_sizes).
Result<Program> lower(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes,
                      LowerOptions options = {});

// Only the gathers that --overlap-param-gather left to the next step, for the end of a run; nothing to do without
// that option or with one replica.
Result<Program> lower_param_sync(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes);

// Sizes from the configuration alone: [memory] values, or the transformer estimate of the [model] section.
ModelSizes default_sizes(const RunConfig& config);

// Layout of the buffers of one model chunk: --ddp-bucket-size for all of them, or Megatron's default.
ParamLayoutOptions param_layout_options(const OptimizerConfig& config, int data_parallel_size,
                                        int pipeline_rank, int chunk);

// Schedule of the configuration: its generator, or its CSV file. `fragment` as in CsvOptions.
Result<Schedule> schedule_of(const RunConfig& config, bool fragment = false);
// The configuration's forward-only schedule on the same placement, for evaluation.
Result<Schedule> evaluation_schedule_of(const RunConfig& config);
// schedule_of, then lower.
Result<Program> program_of(const RunConfig& config, const ModelSizes& sizes, LowerOptions options = {});

}  // namespace plumbline
