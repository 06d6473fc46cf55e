// The rules of validate.cc by section, and what they report to. Not for other rooms.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/config/validate.h"

namespace plumbline::detail {

class RuleBook {
 public:
  RuleBook(Validation& result, const Origins& from, Purpose what_for)
      : config(result.config), origins(from), purpose(what_for), result_(result) {}

  // Reports that `option` breaks a rule: "option=value (origin) RULE — FIX".
  void refuse(std::string_view option, std::string_view rule, std::string_view fix,
              ErrorCode code = ErrorCode::kConfig);
  void warn(std::string text) { result_.warnings.push_back(std::move(text)); }
  bool ok() const { return result_.ok(); }

  RunConfig& config;
  const Origins& origins;
  const Purpose purpose;
  // Of the run's steps: (first iteration with it, from 0, number of microbatches), by derive_batch.
  std::vector<std::pair<std::int64_t, int>> microbatches;

 private:
  Validation& result_;
};

void check_sizes(RuleBook& book);    // whole numbers against their bounds
void check_numbers(RuleBook& book);  // floating-point values, times and sizes against their bounds
void derive_grid(RuleBook& book);    // parallel -> grid
// validate_batch.cc: global_batch_size -> microbatches, samples -> iterations, the numbers of microbatches
void derive_batch(RuleBook& book);
void derive_layout(RuleBook& book);   // a layout's number of layers and chunks, where these are not given
void check_schedule(RuleBook& book);  // chunks, group size, microbatches for the kind; derives group_size
void check_model(RuleBook& book);     // divisibility where something is trained; derives ffn_hidden
void check_optimizer(
    RuleBook& book);  // validate_optimizer.cc: rates, lengths, sharding, precisions, loss scale
void check_checkpoint(RuleBook& book);  // what needs a directory to save to or load from
void check_what_if(RuleBook& book);     // time lists, links, slow ranks, faults; derives link latencies

}  // namespace plumbline::detail
