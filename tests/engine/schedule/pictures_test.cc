// The picture at the top of each generator's file, drawn again from what the generator makes. Every action
// takes one step, a full backward two; digits are forwards, small letters backwards or input gradients,
// capitals weight gradients; ' " ^ mark chunks 1 to 3 of a rank, '+' joins an overlapped pair, '.' is idle.
#include <filesystem>
#include <regex>

#include <gtest/gtest.h>

#include "engine/schedule/evaluate.h"
#include "tests/engine/schedule/reference.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

struct Picture {
  GeneratorArgs args;
  std::vector<std::string> rows;
};

// "P = 3, V = 2, M = 4" in the first line of the comment that has it, and the rows behind it.
Picture picture_in(const std::string& source) {
  Picture picture;
  bool found = false;
  for (std::size_t at = 0; at < source.size() && source.compare(at, 2, "//") == 0;) {
    const std::size_t end = source.find('\n', at);
    const std::string line = source.substr(at, end - at);
    at = end + 1;
    std::smatch match;
    if (!found && std::regex_search(line, std::regex("^//   P = [0-9]+"))) {
      found = true;
      const auto number = [&](const char* name, int none) {
        const bool given = std::regex_search(line, match, std::regex(std::string(name) + " = ([0-9]+)"));
        return given ? std::stoi(match[1]) : none;
      };
      picture.args.ranks = number("P", 1);
      picture.args.chunks = number("V", 1);
      picture.args.microbatches = number("M", 1);
      picture.args.group_size = number("G", 0);
      picture.args.slices = number("S", 1);
      if (const int cap = number("cap", 0); cap > 0) picture.args.activations.cap = {cap};
    }
    if (std::regex_search(line, match, std::regex("^//   rank [0-9]+ +([^ ].*)$")))
      picture.rows.push_back(match[1]);
  }
  return picture;
}

char symbol_of(const Action& action) {
  const int m = action.microbatch;
  if (action.kind == ActionKind::kForward) return static_cast<char>(m < 10 ? '0' + m : '*');
  if (action.kind == ActionKind::kWeightGrad) return static_cast<char>('A' + m);
  return static_cast<char>('a' + m);
}

std::string cell(const Schedule& schedule, int rank, const Action& action) {
  const std::vector<int> held = schedule.stages_of_rank(rank);
  const auto chunk = std::find(held.begin(), held.end(), action.stage) - held.begin();
  return {symbol_of(action), " '\"^"[chunk]};
}

std::vector<std::string> draw(const Schedule& schedule) {
  ActionTimes times;
  const Evaluation evaluation = evaluate(schedule, {}, &times).value();
  std::vector<std::string> rows;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const bool wide = schedule.stages_of_rank(rank).size() > 1;
    const std::size_t first = schedule.offsets[static_cast<std::size_t>(rank)];
    std::vector<std::string> cells(static_cast<std::size_t>(evaluation.makespan), ". ");
    std::vector<char> joined(cells.size(), ' ');
    for (std::size_t i = 0; i < schedule.row(rank).size(); ++i) {
      const Action& action = schedule.row(rank)[i];
      const bool second = i > 0 && schedule.row(rank)[i - 1].paired != 0;
      const Nanoseconds shift = second ? 1 : 0;  // the forward of a pair is drawn first
      for (Nanoseconds t = times.start[first + i] + shift; t < times.end[first + i]; ++t) {
        cells[static_cast<std::size_t>(t)] = cell(schedule, rank, action);
        const bool inside = (action.paired != 0 || second) && t + 1 < times.end[first + i];
        joined[static_cast<std::size_t>(t)] = inside ? '+' : ' ';
      }
    }
    std::string text;
    for (std::size_t t = 0; t < cells.size(); ++t) text += cells[t].substr(0, wide ? 2 : 1) + joined[t];
    while (!text.empty() && text.back() == ' ') text.pop_back();
    rows.push_back(text);
  }
  return rows;
}

std::string source_of(const std::string& generator) {
  for (const auto& entry : std::filesystem::directory_iterator(test::data_path("../engine/schedule"))) {
    if (entry.path().extension() != ".cc") continue;
    const std::string source = test::read_data("../engine/schedule/" + entry.path().filename().string());
    if (source.find("\nconstexpr const char* kName = \"" + generator + "\";") != std::string::npos)
      return source;
  }
  return {};
}

TEST(Pictures, AreWhatTheGeneratorMakes) {
  for (const Generator& generator : generators()) {
    const Picture picture = picture_in(source_of(generator.name));
    const Result<Schedule> schedule = generator.make(picture.args);
    ASSERT_TRUE(schedule) << generator.name << ": " << schedule.error().text();
    const std::vector<std::string> drawn = draw(*schedule);
    std::string lines;
    for (std::size_t rank = 0; rank < drawn.size(); ++rank)
      lines += "//   rank " + std::to_string(rank) + "   " + drawn[rank] + "\n";
    EXPECT_EQ(picture.rows, drawn) << generator.name << " should show\n" << lines;
  }
}

}  // namespace
}  // namespace plumbline
