// From an input to its verdicts, for the commands that judge: one for a schedule or Program, one for each Program
// that a run of a configuration executes, one for each scenario of a file.
#pragma once

#include <string>
#include <vector>

#include "cli/input.h"
#include "reports/verdict_ci.h"
#include "sim/nccl_model.h"
#include "sim/verdict.h"

namespace plumbline::cli {

// Of --modes: names joined by commas, "all" for the reference models, empty for what a check does by default.
Result<std::vector<NcclModel>> modes_from(const std::string& text);

struct Judged {
  Verdict verdict;
  SubjectPlace place;
  const Scenario* scenario = nullptr;  // of the input; null for everything else
};

struct JudgeOptions {
  std::vector<NcclModel> modes;  // empty: certification and default
  Bytes memory_limit = 0;        // 0: none
  bool sensitivity = false;      // in any case; else for one small subject that does not hold
  bool as_reference = false;     // threads of a rank issue in their order (sim/examine.h)
};

// Scenarios are examined by simulation in the given modes, by default those of certification and of a run; so are
// Programs with several host threads a rank or calls on communicators. All else is proved by the checker; given
// modes then replace the two that it decides. In the order of the input.
Result<std::vector<Judged>> judge(const Input& input, const JudgeOptions& options);

}  // namespace plumbline::cli
