#include "backends/processes/stall.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/base/hash.h"
#include "engine/program/link.h"

namespace plumbline::processes {
namespace {

using Json = nlohmann::json;

struct Words {
  int step = -1;
  bool in_step = false, blocked = false;
  std::uint32_t item = 0;
  std::optional<std::uint32_t> kernel;
  int arm = -1;
  std::string program, at, computes, awaits;
};

std::optional<Words> words_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  Words words;
  words.step = json.value("step", -1);
  words.in_step = json.value("in_step", false);
  words.blocked = json.value("blocked", false);
  words.item = json.value("item", 0u);
  words.arm = json.value("arm", -1);
  words.program = json.value("program", "");
  words.at = json.value("at", "");
  words.computes = json.value("computes", "");
  words.awaits = json.value("awaits", "");
  if (json.contains("kernel_item")) words.kernel = json.value("kernel_item", 0u);
  return words;
}

std::string place(Rank rank, const std::optional<Words>& words) {
  if (!words) return fmt::format("rank {} did not answer", rank);
  if (!words->awaits.empty()) return fmt::format("rank {} {}", rank, words->awaits);
  if (!words->in_step) return fmt::format("rank {} is between steps, after step {}", rank, words->step);
  if (!words->computes.empty()) return fmt::format("rank {} computes {}", rank, words->computes);
  return fmt::format("rank {}'s host is at {}", rank, words->at);
}

}  // namespace

Result<StallReport> explain_stall(const RunConfig& config, const RunPlan& plan, const NcclModel& model,
                                  const std::map<Rank, std::string>& words) {
  StallReport report;
  std::vector<std::optional<Words>> all(static_cast<std::size_t>(config.grid.world()));
  // The step that somebody is still in; who is further has finished it.
  int step = std::numeric_limits<int>::max();
  std::string program;
  for (const auto& [rank, text] : words) {
    if (rank < 0 || rank >= config.grid.world()) continue;
    std::optional<Words> said = words_of(text);
    if (said && said->in_step && said->step < step) {
      step = said->step;
      program = said->program;
    }
    all[static_cast<std::size_t>(rank)] = std::move(said);
  }
  for (Rank rank = 0; rank < config.grid.world(); ++rank)
    report.lines.push_back(place(rank, all[static_cast<std::size_t>(rank)]));
  report.verdict.program = plan.main().name;
  if (program.empty()) {  // all who answered are between steps
    const bool awaited = std::any_of(all.begin(), all.end(), [](const std::optional<Words>& said) {
      return said && !said->awaits.empty();
    });
    for (Rank rank = 0; rank < config.grid.world(); ++rank) {
      const std::optional<Words>& said = all[static_cast<std::size_t>(rank)];
      if (!said)
        report.stall.late.push_back({rank, -1, -1, "an unknown place: it did not answer"});
      else if (awaited && said->awaits.empty())
        report.stall.late.push_back({rank, -1, -1, "its work between steps, and the others wait for it"});
    }
    return report;
  }
  report.step = step;
  const std::vector<const Program*> programs = plan.programs();
  const auto found = std::find_if(programs.begin(), programs.end(), [&](const Program* candidate) {
    return hex64(program_digest(*candidate)) == program;
  });
  if (found == programs.end())
    return fail(ErrorCode::kState,
                fmt::format("the ranks stalled in Program {}, which this run does not have", program));
  const Result<LinkedProgram> linked = link_program(**found);
  if (!linked) return tl::unexpected(linked.error());
  std::vector<HostPosition> positions;
  double value = 0.0;
  for (const std::optional<Words>& said : all) {
    HostPosition position;
    if (said && said->in_step && said->step == step) {
      position.state = said->blocked ? HostPosition::State::kBlocked : HostPosition::State::kFinished;
      position.item = said->item;
      position.kernel = said->kernel;
      if (said->arm == 1) value = 1.0;
    } else if (said) {
      position.state = HostPosition::State::kFinished;
    }
    positions.push_back(position);
  }
  Result<Stall> stall = explain_positions(*linked, model, positions, value);
  if (!stall) return tl::unexpected(stall.error());
  report.stall = std::move(*stall);
  if (report.stall.deadlock) {
    ModeVerdict mode;
    mode.mode = model.name();
    mode.completes = false;
    mode.findings.push_back(*report.stall.deadlock);
    report.verdict.modes.push_back(std::move(mode));
  }
  return report;
}

}  // namespace plumbline::processes
