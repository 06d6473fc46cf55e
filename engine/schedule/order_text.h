// Orders as other projects write them: a line a rank, a word a step.
//
//   zero-bubble     F3 B3 W3, with several chunks F3.1 (microbatch.chunk): the notation of the Zero Bubble papers and
//                   of sail-sg/zero-bubble-pipeline-parallelism. B is the gradient with respect to the input, W that
//                   of the weights, BW a whole backward; where no W and no BW stands in the text, B is a whole
//                   backward. Nodes of ColossalAI's and sail-sg's V schedulers, F:1:3 (chunk:microbatch), are read as
//                   well: SF, RF, SB and RB are sends and receives, a final r marks those to be repeated after a
//                   rollback; PV, RPV and SPV (post-validation) belong to the optimizer and are left out.
//   megatron-order  1 1 -1 -1: chunk c-1 forward is c, backward -c, its weight gradient alone -c.5 (then -c is that
//                   of the input). Microbatches of a chunk are counted from 0
//                   (megatron/core/pipeline_parallel/schedules.py, get_schedule_table and
//                   convert_schedule_table_to_order). Brackets and commas are passed over.
//
// Which stage a rank's chunk is, the text does not say. Errors name line and column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

enum class Placement : std::uint8_t {
  kLoop,  // chunk c of rank r is stage cP + r
  kV,     // two chunks, r and 2P-1-r
};

Result<Schedule> parse_zero_bubble(std::string_view text, const std::string& name,
                                   Placement placement = Placement::kV);
Result<Schedule> parse_megatron_order(std::string_view text, const std::string& name,
                                      Placement placement = Placement::kLoop);

// The same texts from a schedule. Errors: what the notation cannot say - pairs, sharding, several pipelines, a
// placement other than the two; for megatron-order also sends and receives, microbatches out of turn, and B beside
// I and W.
Result<std::string> print_zero_bubble(const Schedule& schedule);
Result<std::string> print_megatron_order(const Schedule& schedule);

}  // namespace plumbline
