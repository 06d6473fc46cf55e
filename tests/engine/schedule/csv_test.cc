#include "engine/schedule/csv.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/oracle.h"

namespace plumbline {
namespace {

// Cells as they stand in the file, each parsed and printed again, idle ones kept.
std::string reprint_cells(const std::vector<std::vector<CsvCell>>& rows, const char* line_end) {
  std::string out;
  for (const std::vector<CsvCell>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Result<std::vector<Action>> actions = parse_cell(row[i].text);
      if (!actions) return actions.error().text();
      if (i > 0) out += ',';
      if (actions->size() == 2) out += print_pair((*actions)[0], (*actions)[1]);
      if (actions->size() == 1) out += print_action(actions->front());
    }
    out += line_end;
  }
  return out;
}

std::string without_idle(const std::vector<std::vector<CsvCell>>& rows, const char* line_end) {
  std::string out;
  for (const std::vector<CsvCell>& row : rows) {
    std::string line;
    for (const CsvCell& cell : row) {
      if (cell.text.empty()) continue;
      line += (line.empty() ? "" : ",") + std::string(cell.text);
    }
    out += line + line_end;
  }
  return out;
}

TEST(Csv, EveryTorchFileRoundTripsByteForByte) {
  int files = 0;
  int with_idle = 0;
  for (const char* folder :
       {"oracles/torch_pipelining/artifacts", "oracles/torch_pipelining/generated/csv"}) {
    for (const auto& entry : std::filesystem::directory_iterator(test::data_path(folder))) {
      const std::string name = entry.path().filename().string();
      const std::string text = test::read_data(std::string(folder) + "/" + name);
      const bool crlf = text.find('\r') != std::string::npos;
      const char* line_end = crlf ? "\r\n" : "\n";
      const auto cells = parse_csv_cells(text, name);
      ASSERT_TRUE(cells) << cells.error().text();
      EXPECT_EQ(reprint_cells(*cells, line_end), text) << name;

      IdleCells idle;
      const Result<Schedule> schedule = parse_schedule_csv(text, name, {}, &idle);
      ASSERT_TRUE(schedule) << schedule.error().text();
      EXPECT_EQ(print_schedule_csv(*schedule, crlf, &idle), text) << name;
      const std::string packed = without_idle(*cells, line_end);
      EXPECT_EQ(print_schedule_csv(*schedule, crlf), packed) << name;
      EXPECT_EQ(schedule->has_communication(), name.find("comms") != std::string::npos) << name;
      EXPECT_EQ(parse_schedule_csv(packed, name).value(), *schedule) << name;
      with_idle += packed != text ? 1 : 0;
      ++files;
    }
  }
  EXPECT_EQ(files, 85);
  EXPECT_EQ(with_idle, 17);
}

TEST(Csv, InfersSizesAndPlacement) {
  const Result<Schedule> got = parse_schedule_csv("0F0,3F0,3B0,0B0\r\n1F0,,2F0,2B0,1B0\r\n", "v.csv");
  ASSERT_TRUE(got) << got.error().text();
  EXPECT_EQ(got->ranks, 2);
  EXPECT_EQ(got->stages, 4);
  EXPECT_EQ(got->microbatches, 1);
  EXPECT_EQ(got->rank_of_stage, (std::vector<std::int32_t>{0, 1, 1, 0}));
  EXPECT_FALSE(got->forward_only);
  EXPECT_EQ(got->row(1).size(), 4U);
  EXPECT_TRUE(parse_schedule_csv("0F0,0F1\n", "f.csv").value().forward_only);
}

TEST(Csv, BlankLineIsARankAndTheLastLineEndIsNot) {
  EXPECT_EQ(parse_schedule_csv("0F0\n\n1F0\n", "x").value().ranks, 3);
  EXPECT_EQ(parse_schedule_csv("0F0\n1F0", "x").value().ranks, 2);
  EXPECT_EQ(parse_schedule_csv("0F0\n\n", "x").value().ranks, 2);
  const Schedule trailing = parse_schedule_csv("0F0\r\n\r\n", "x").value();
  EXPECT_EQ(print_schedule_csv(trailing, true), "0F0\r\n\r\n");
}

TEST(Csv, QuotedCells) {
  const Result<Schedule> got = parse_schedule_csv("\"0F0\",\"\",\"(0F1;0B0)OVERLAP_F_B\",0B1\n", "q.csv");
  ASSERT_TRUE(got) << got.error().text();
  EXPECT_EQ(print_schedule_csv(*got), "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
}

void expect_refused(std::string_view text, const std::string& place, const std::string& word) {
  const Result<Schedule> got = parse_schedule_csv(text, "s.csv");
  ASSERT_FALSE(got) << text;
  EXPECT_EQ(got.error().where.text(), place) << text;
  EXPECT_NE(got.error().message.find(word), std::string::npos) << got.error().message;
}

TEST(Csv, ErrorsNameFileLineAndColumn) {
  expect_refused("0F0,0F1\n1F0,1X1\n", "s.csv:2:6", "'X'");
  expect_refused("0F0\r\n1F0,,\"1F\"\r\n", "s.csv:2:9", "1F0");
  expect_refused("0F0,\"0F1\n", "s.csv:1:5", "not closed");
  expect_refused("0F0,\"0F1\"x\n", "s.csv:1:10", "closing quote");
  expect_refused("0F0,\"0F\"\"1\"\n", "s.csv:1:9", "closing quote");
  expect_refused("0F0,0\"F1\n", "s.csv:1:6", "quote inside");
  expect_refused("0F0\r1F0\n", "s.csv:1:4", "line feed");
  expect_refused("rank,step\n", "s.csv:1:1", "stage number");
  expect_refused("", "s.csv", "no action");
  expect_refused("\n\n", "s.csv", "no action");
  expect_refused(",,\n", "s.csv", "no action");
}

TEST(Csv, HolesAreRefusedUnlessAFragment) {
  expect_refused("0F0\n2F0\n", "s.csv:2:1", "stage 1");
  expect_refused("0F0,0F2\n", "s.csv:1:5", "microbatch 1");
  expect_refused("0F0,0SEND_F0\n1RECV_F0\n", "s.csv:2:1", "stage 1");
  const Result<Schedule> got = parse_schedule_csv("0F0\n2F0,1RECV_F3\n", "s.csv", CsvOptions{true});
  ASSERT_TRUE(got) << got.error().text();
  EXPECT_EQ(got->rank_of_stage, (std::vector<std::int32_t>{0, 1, 1}));
  EXPECT_EQ(got->microbatches, 4);
  EXPECT_EQ(parse_schedule_csv("3F0\n", "s.csv", CsvOptions{true}).value().rank_of_stage,
            (std::vector<std::int32_t>{-1, -1, -1, 0}));
}

TEST(Csv, ComputingRankHoldsTheStageHoweverItIsTouchedElsewhere) {
  const Schedule got =
      parse_schedule_csv("1UNSHARD,1RECV_F0,0F0,0SEND_F0\n1F0\n", "s.csv", CsvOptions{true}).value();
  EXPECT_EQ(got.rank_of_stage, (std::vector<std::int32_t>{0, 1}));
}

TEST(Csv, AbsurdNumbersCostOnlyWhatTheyName) {
  const Result<Schedule> got = parse_schedule_csv("65535F1048575,0F0,0B1\n", "s.csv", CsvOptions{true});
  ASSERT_TRUE(got) << got.error().text();
  EXPECT_EQ(got->stages, 65536);
  EXPECT_EQ(got->microbatches, 1048576);
  EXPECT_TRUE(validate_schedule(*got, true).empty());
  // Not a fragment: every stage but two is held by nobody, and what is missing comes in runs.
  EXPECT_LT(validate_schedule(*got, false).size(), 65536U + 8U);
  expect_refused("65535F1048575,0F0,0B1\n", "s.csv:1:1", "stage 1");
}

}  // namespace
}  // namespace plumbline
