// Orders and evaluations as tests/oracles/schedules records them (README there), to and from Schedules.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/schedule/evaluate.h"
#include "tests/engine/schedule/reference.h"
#include "tests/support/oracle.h"

namespace plumbline::test {

// A list of rows as torch's CSV.
inline std::string csv_of(const nlohmann::json& rows) {
  std::string text;
  for (const nlohmann::json& row : rows) text += row.get<std::string>() + "\n";
  return text;
}

// "0F0 1F2+0B0 ...", one string a rank.
inline std::vector<std::string> order_text(const Schedule& schedule) {
  std::vector<std::string> rows;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::string text;
    bool joined = true;
    for (const Action& action : schedule.row(rank)) {
      if (!text.empty()) text += joined ? '+' : ' ';
      text += print_action(action);
      joined = action.paired != 0;
    }
    rows.push_back(text);
  }
  return rows;
}

inline std::vector<Action> row_of(const std::string& text) {
  std::vector<Action> row;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" +", at), text.size());
    row.push_back(parse_cell(text.substr(at, end - at)).value().front());
    if (end < text.size() && text[end] == '+') row.back().paired = 1;
    at = end + 1;
  }
  return row;
}

// A recorded order as a Schedule; who holds what follows from the rows, but for "bidir", which runs the first half of
// the microbatches down the ranks and the second half up.
inline Schedule schedule_of_order(const nlohmann::json& line) {
  Schedule schedule;
  schedule.name = line["gen"];
  schedule.ranks = line["p"];
  schedule.stages = line.contains("stages") ? line["stages"].get<int>() : 0;
  schedule.slices = line.value("seq_splits", 1);
  schedule.microbatches = line["m"].get<int>() * schedule.slices;
  for (const nlohmann::json& row : line["order"]) schedule.add_row(row_of(row));
  for (const Action& action : schedule.actions) schedule.stages = std::max(schedule.stages, action.stage + 1);
  schedule.rank_of_stage.assign(static_cast<std::size_t>(schedule.stages), -1);
  if (line.value("place", "") == "bidir") {
    for (int s = 0; s < schedule.stages; ++s) schedule.rank_of_stage[static_cast<std::size_t>(s)] = s;
    for (int s = schedule.stages - 1; s >= 0; --s) schedule.rank_of_stage.push_back(s);
    for (int m = 0; m < schedule.microbatches; ++m)
      schedule.pipeline_of.push_back(2 * m >= schedule.microbatches);
    return schedule;
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.row(rank)) schedule.rank_of_stage[action.stage] = rank;
  }
  return schedule;
}

// Recorded costs may be halves or twentieths of a unit, so everything below counts in twentieths.
constexpr Nanoseconds kUnit = 20;

inline StageCosts costs_in_units(const nlohmann::json& cost) {
  const auto whole = [](double value) { return static_cast<Nanoseconds>(std::lround(kUnit * value)); };
  StageCosts costs;
  costs.forward = {whole(cost["F"])};
  costs.input_grad = {whole(cost["I"])};
  costs.weight_grad = {whole(cost["W"])};
  if (cost.contains("FB")) costs.pair = {whole(cost["FB"])};
  costs.hop = whole(cost.value("C", 0.0));
  return costs;
}

// Compares every recorded figure of one evaluation; returns how many there were.
inline int expect_evaluation(const Schedule& schedule, const nlohmann::json& eval, const std::string& label) {
  const Result<Evaluation> got = evaluate(schedule, costs_in_units(eval["cost"]));
  if (!got) {
    ADD_FAILURE() << label << ": " << got.error().text();
    return 0;
  }
  int compared = 0;
  const auto units = [](Nanoseconds time) { return static_cast<double>(time) / kUnit; };
  const auto same = [&](const char* field, double value, double tolerance) {
    if (!eval.contains(field)) return;
    ++compared;
    EXPECT_NEAR(value, eval[field].get<double>(), tolerance)
        << label << " " << field << " " << eval["cost"].dump();
  };
  same("makespan", units(got->makespan), 1e-9);
  same("stage_time", units(got->stage_time), 1e-9);
  same("work", units(got->work), 1e-9);
  same("bubble", got->bubble(), 6e-7);
  same("bubble_stage", got->stage_bubble(), 6e-7);
  if (eval.contains("idle")) {
    for (std::size_t r = 0; r < got->busy.size(); ++r, ++compared) {
      EXPECT_EQ(units(got->makespan - got->busy[r]), eval["idle"][r].get<double>()) << label;
    }
  }
  return compared;
}

// peak_W and peak_I of a record; peak_I is left out where it is the same (`both` false: where it was not recorded).
inline void expect_peaks(const Schedule& schedule, const nlohmann::json& line, const std::string& label,
                         bool both = true) {
  const Result<Evaluation> got = evaluate(schedule, {});
  ASSERT_TRUE(got) << label;
  EXPECT_EQ(got->peak_until_weight_grad, line["peak_W"].get<std::vector<int>>()) << label;
  if (!both) return;
  const char* early = line.contains("peak_I") ? "peak_I" : "peak_W";
  EXPECT_EQ(got->peak_until_input_grad, line[early].get<std::vector<int>>()) << label;
}

inline std::string label_of(const nlohmann::json& line) {
  std::string label = line["gen"].get<std::string>();
  for (const char* field : {"p", "m", "v", "group", "seq_splits", "memk", "mem_limit", "cap", "gen_cost"}) {
    if (line.contains(field)) label += std::string(" ") + field + " " + line[field].dump();
  }
  return label;
}

}  // namespace plumbline::test
