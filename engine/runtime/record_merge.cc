#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "engine/runtime/run_record.h"

namespace plumbline {
namespace {

tl::unexpected<Error> differ(const std::string& what) {
  return fail(ErrorCode::kState, "these are not parts of one run: " + what + " differs");
}

Status same_header(const RunRecord& a, const RunRecord& b) {
  const std::pair<const char*, bool> fields[] = {
      {"the backend", a.backend == b.backend},
      {"the schedule", a.schedule == b.schedule},
      {"the configuration", a.config == b.config},
      {"the data", a.data_digest == b.data_digest},
      {"the seed", a.seed == b.seed},
      {"the program",
       a.program_digest == b.program_digest && a.stages == b.stages && a.microbatches == b.microbatches},
      {"the world",
       a.ranks == b.ranks && a.pipeline_coordinate == b.pipeline_coordinate && a.replica == b.replica},
      {"the iteration it goes on from", a.resumed_from == b.resumed_from},
      {"the number of ranks on a machine",
       a.ranks_a_machine == b.ranks_a_machine && (a.cores > 0) == (b.cores > 0)},
      {"the table of streams", a.streams == b.streams},
      {"the table of labels", a.labels == b.labels}};
  for (const auto& [name, same] : fields) {
    if (!same) return differ(name);
  }
  return {};
}

// Takes over what only the other part knows. False: both know it, and not the same.
template <typename T, typename Known>
bool join(T& own, const T& other, Known known) {
  if (!known(other)) return true;
  if (!known(own)) own = other;
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<std::uint64_t>(own) == std::bit_cast<std::uint64_t>(other);
  return own == other;
}

Status join_step(StepRow& own, const StepRow& other) {
  const auto of = [&](const char* what) { return differ(fmt::format("{} of step {}", what, own.step)); };
  const auto always = [](auto) { return true; };
  if (own.iteration != other.iteration || own.evaluation != other.evaluation) return of("the iteration");
  if (own.skipped != other.skipped) return of("whether the step was applied");
  if (!join(own.loss, other.loss, [](double loss) { return !std::isnan(loss); })) return of("the loss");
  if (!join(own.scale, other.scale, always) || !join(own.scale_after, other.scale_after, always))
    return of("the loss scale");
  if (!join(own.grad_norm, other.grad_norm, [](double norm) { return norm != -1.0; }))
    return of("the gradient norm");
  if (!join(own.zeros, other.zeros, [](std::int64_t zeros) { return zeros >= 0; }))
    return of("the number of zeros");
  if (!join(own.lr, other.lr, always)) return of("the learning rate");
  if (own.consumed_samples != other.consumed_samples) return of("the number of samples");
  const auto digest = [](std::uint64_t value) { return value != 0; };
  if (!join(own.params_digest, other.params_digest, digest)) return of("the digest of the parameters");
  if (!join(own.optimizer_digest, other.optimizer_digest, digest)) return of("the digest of the optimizer");
  own.begin = std::min(own.begin, other.begin);
  own.end = std::max(own.end, other.end);
  return {};
}

// Rows of one rank stay in their order.
template <typename Row>
void sort_rows(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.step != b.step ? a.step < b.step : a.rank < b.rank;
  });
}

}  // namespace

Result<RunRecord> merge_records(const std::vector<RunRecord>& parts) {
  if (parts.empty()) return fail(ErrorCode::kUsage, "there are no run records to merge");
  RunRecord merged = parts.front();
  std::map<std::int32_t, StepRow> steps;
  for (const StepRow& row : merged.steps) steps.try_emplace(row.step, row);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const RunRecord& part = parts[i];
    PL_TRY(same_header(merged, part));
    merged.cores = std::min(merged.cores, part.cores);  // of machines that differ, the smallest
    merged.events.insert(merged.events.end(), part.events.begin(), part.events.end());
    merged.memory.insert(merged.memory.end(), part.memory.begin(), part.memory.end());
    if (merged.verdict_json.empty()) merged.verdict_json = part.verdict_json;
    for (const StepRow& row : part.steps) {
      const auto [at, fresh] = steps.try_emplace(row.step, row);
      if (!fresh) PL_TRY(join_step(at->second, row));
    }
  }
  sort_rows(merged.events);
  sort_rows(merged.memory);
  merged.steps.clear();
  for (const auto& [step, row] : steps) merged.steps.push_back(row);
  return merged;
}

}  // namespace plumbline
