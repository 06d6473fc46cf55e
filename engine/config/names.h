// The words a person writes for each enumerator of run_config.h. One table an enum; options, messages and
// reports use it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/run_config.h"

namespace plumbline {

std::string_view name(ScheduleKind value);   // gpipe, 1f1b, interleaved, interleaved-2022, forward-only, csv
std::string_view name(P2pStyle value);       // batched, separate, flush
std::string_view name(CommMap value);        // one, pair, direction, megatron
std::string_view name(Precision value);      // fp32, fp16, bf16
std::string_view name(DecayStyle value);     // constant, linear, cosine, inverse-square-root, WSD
std::string_view name(WsdStyle value);       // linear, cosine, exponential, minus_sqrt
std::string_view name(WdStyle value);        // constant, linear, cosine
std::string_view name(OptimizerRule value);  // adam, sgd
std::string_view name(NonPersistent value);  // none, global, local, in_memory
std::string_view name(CheckpointFormat value);   // plumbline, torch
std::string_view name(LocalAlgorithm value);     // atomic, fully_parallel
std::string_view name(ScalerRule value);         // megatron, deepspeed, torch
std::string_view name(SendCompletion value);     // rendezvous, eager, always-eager
std::string_view name(EagerLinks value);         // same, h100, a100, pcie, ib
std::string_view name(CrossComm value);          // free, strict, launch-order
std::string_view name(Connect value);            // warm, cold
std::string_view name(CollectiveConnect value);  // auto, warm, cold
std::string_view name(GroupOrder value);         // auto, same, call
std::string_view name(Mismatch value);           // report, emulate
std::string_view name(NcclVersion value);        // none, 2.18, ...
std::string_view name(Numerics value);           // ordered, ring, tree, nvls
std::string_view name(Recompute value);          // none, selective, full
std::string_view name(RecomputeMethod value);    // uniform, block

// All words of an enum in the order of its enumerators.
template <typename Enum>
std::vector<std::string> names_of();

// Accepts any letter case, and '_' for '-'.
template <typename Enum>
std::optional<Enum> enum_from_name(std::string_view text);

}  // namespace plumbline
