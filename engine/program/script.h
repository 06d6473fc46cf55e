// Script: the call sequence of one pipeline rank in Megatron's terms, before communicators, slots and items
// exist. One function an algorithm; the emission to items is shared. Source of the sequences:
// megatron/core/pipeline_parallel/ schedules.py (forward_backward_pipelining_without_interleaving,
// ..._with_interleaving) and the January-2022 version.
//
// A receive is named by what its consumer needs: Megatron appends the j-th tensor received for a chunk to
// that chunk's list and the chunk's j-th forward (or backward) takes it, so the receive is labelled with
// microbatch j. What a sender labels otherwise is then visible as a mismatch.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace plumbline::lowering {

enum class CallName : std::uint8_t {
  kRF,
  kRB,
  kSF,
  kSB,
  kSFRB,
  kSBRF,
  kSFRF,
  kSBRB,
  kSFBRFB,
  kSFRFAsync,
  kSBRBAsync
};
enum class Phase : std::uint8_t { kWarmup, kSteady, kCooldown, kMisc, kFinalize };

// Words of the marks, indexed by CallName, then Phase.
inline constexpr std::array<std::string_view, 18> kMarkNames{
    "RF",    "RB",    "SF",      "SB",      "SFRB",      "SBRF",  "SFRF", "SBRB", "SFBRFB",
    "SFRF~", "SBRB~", "#warmup", "#steady", "#cooldown", "#misc", "FIN",  "X",    "D"};
constexpr unsigned mark_of(CallName name) { return static_cast<unsigned>(name); }
constexpr unsigned kCombinedMark = 16;
constexpr unsigned kLossMark =
    17;  // the loss is deallocated, of which its one element is left: nothing is freed
constexpr unsigned mark_of(Phase phase) { return 11U + static_cast<unsigned>(phase); }

struct ChunkMicrobatch {
  std::int32_t chunk = -1;  // -1: absent
  std::int32_t microbatch = 0;
  bool present() const { return chunk >= 0; }
};

// Queues in which an asynchronous call keeps the handles of its operations.
constexpr unsigned kRecvPreviousQueue = 1;
constexpr unsigned kSendNextQueue = 2;
constexpr unsigned kRecvNextQueue = 6;  // 3 to 5: overlap.h, tail.cc
constexpr unsigned kSendPreviousQueue = 7;

// kCombined: the passes up to the next step of another kind are computed together, layer by layer.
enum class StepKind : std::uint8_t {
  kForward,
  kBackward,
  kCall,
  kWaitHandle,
  kFreeOutput,
  kPhase,
  kCombined
};

struct ScriptStep {
  StepKind kind = StepKind::kForward;
  std::uint8_t name = 0;  // kCall: CallName; kPhase: Phase
  ChunkMicrobatch unit;   // kForward, kBackward, kFreeOutput
  // kCall. Sends name the output (next) or input gradient (previous) of that chunk; receives the chunk that
  // will use them.
  ChunkMicrobatch send_previous, recv_previous, send_next, recv_next;
};
using Script = std::vector<ScriptStep>;

struct ScriptArgs {
  int ranks = 1;
  int rank = 0;
  int chunks = 1;
  int microbatches = 1;
  int group_size = 1;
  bool forward_only = false;
  bool combined = false;  // forward and backward as one step (script_overlap.cc)
  // Its memory is used for the script that comes back, if given: scripts of many ranks are made one after another.
  std::vector<ScriptStep>* reuse = nullptr;

  bool first_rank() const { return rank == 0; }
  bool last_rank() const { return rank == ranks - 1; }
  bool first_stage(int chunk) const { return first_rank() && chunk == 0; }
  bool last_stage(int chunk) const { return last_rank() && chunk == chunks - 1; }
};

Script gpipe_script(const ScriptArgs& args);
Script plain_script(const ScriptArgs& args);        // 1F1B, and its forward-only form
Script interleaved_script(const ScriptArgs& args);  // current Megatron-core
// With handles kept in the steady state, or in all of the step.
Script interleaved_overlap_script(const ScriptArgs& args);
Script interleaved_flush_script(const ScriptArgs& args);
Script interleaved_2022_script(const ScriptArgs& args);

}  // namespace plumbline::lowering
