// What may be read into what: the requests of all ranks against a manifest. Pure; every rank comes to the
// same conclusion from the same messages (print_offer() of save_plan.h, whose pieces are the places to fill).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/storage/manifest.h"

namespace plumbline {

struct LoadRules {
  // Keys, or prefixes that end in '*', that may be in the file and asked for by no one, or asked for and
  // absent. Nothing else may: what is silently left out is silently wrong.
  std::vector<std::string> may_be_unused;
  std::vector<std::string> may_be_missing;
  // Tensors whose first dimension is padded (a vocabulary padded to a multiple): key -> rows that count. File
  // and request may differ in the rows after those.
  std::map<std::string, std::int64_t> padded_rows;
};

struct LoadPlan {
  std::vector<std::string> unused;   // waived: what was left out
  std::vector<std::string> missing;  // waived: what stays as it is
};

// Errors (kState) list every key: missing, unused, of another shape or type, or asked for in part only.
Result<LoadPlan> plan_load(const std::vector<std::string>& requests, const Manifest& manifest,
                           const LoadRules& rules = {});

}  // namespace plumbline
