#include "engine/schedule/action.h"

#include <set>

#include <gtest/gtest.h>

namespace plumbline {
namespace {

Action action(int stage, ActionKind kind, int microbatch = -1) {
  return Action{microbatch, static_cast<std::uint16_t>(stage), kind, 0};
}

TEST(Action, EveryKindPrintsAndParsesBack) {
  const struct {
    const char* text;
    Action want;
  } cases[] = {
      {"0F1", action(0, ActionKind::kForward, 1)},
      {"3B0", action(3, ActionKind::kBackward, 0)},
      {"2I7", action(2, ActionKind::kInputGrad, 7)},
      {"2W7", action(2, ActionKind::kWeightGrad, 7)},
      {"0SEND_F3", action(0, ActionKind::kSendForward, 3)},
      {"1RECV_F3", action(1, ActionKind::kRecvForward, 3)},
      {"1SEND_B3", action(1, ActionKind::kSendBackward, 3)},
      {"0RECV_B3", action(0, ActionKind::kRecvBackward, 3)},
      {"2UNSHARD", action(2, ActionKind::kUnshard)},
      {"2RESHARD", action(2, ActionKind::kReshard)},
      {"12REDUCE_GRAD", action(12, ActionKind::kReduceGrad)},
      {"65535F1048575", action(65535, ActionKind::kForward, 1048575)},
  };
  std::set<ActionKind> kinds;
  for (const auto& [text, want] : cases) {
    const Result<std::vector<Action>> got = parse_cell(text);
    ASSERT_TRUE(got) << got.error().text();
    ASSERT_EQ(got->size(), 1U);
    EXPECT_EQ(got->front(), want) << text;
    EXPECT_EQ(print_action(want), text);
    kinds.insert(want.kind);
  }
  EXPECT_EQ(kinds.size(), static_cast<std::size_t>(kActionKinds));
}

TEST(Action, PairIsTwoActionsTheFirstFlagged) {
  const Result<std::vector<Action>> got = parse_cell("(0F7;7B3)OVERLAP_F_B");
  ASSERT_TRUE(got) << got.error().text();
  ASSERT_EQ(got->size(), 2U);
  EXPECT_EQ((*got)[0].paired, 1);
  EXPECT_EQ((*got)[1].paired, 0);
  EXPECT_EQ(print_pair((*got)[0], (*got)[1]), "(0F7;7B3)OVERLAP_F_B");
}

TEST(Action, EmptyCellIsIdleAndBlanksSurround) {
  for (const char* text : {"", " ", "\t "}) {
    const Result<std::vector<Action>> got = parse_cell(text);
    ASSERT_TRUE(got);
    EXPECT_TRUE(got->empty());
  }
  EXPECT_EQ(parse_cell(" 0F1 ").value().front(), action(0, ActionKind::kForward, 1));
  EXPECT_EQ(parse_cell("( 0F7 ; 7B3 )OVERLAP_F_B").value().size(), 2U);
}

// What is refused, at which column (the cell begins at column 10), and a word that the message must hold.
struct Refusal {
  const char* text;
  int column;
  const char* word;
};

class ActionRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(ActionRefusal, NamesColumnAndRule) {
  const Refusal& want = GetParam();
  const Result<std::vector<Action>> got = parse_cell(want.text, Where{"s.csv", 3, 10});
  ASSERT_FALSE(got) << want.text;
  EXPECT_EQ(got.error().code, ErrorCode::kParse);
  EXPECT_EQ(got.error().where.text(), "s.csv:3:" + std::to_string(want.column)) << want.text;
  EXPECT_NE(got.error().message.find(want.word), std::string::npos) << got.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Grammar, ActionRefusal,
    testing::Values(Refusal{"F0", 10, "stage number"}, Refusal{"-1F0", 10, "stage number"},
                    Refusal{"0", 11, "kind"}, Refusal{"0f0", 11, "capitals"}, Refusal{"0FOO", 11, "'FOO'"},
                    Refusal{"0F", 12, "0F0"}, Refusal{"0F0junk", 13, "'0F0'"},
                    Refusal{"0B0W0", 13, "one action"}, Refusal{"0BW0", 11, "PyTorch"},
                    Refusal{"0F 0", 12, "microbatch"}, Refusal{"0 F0", 11, "kind"},
                    Refusal{"0F-1", 12, "microbatch"}, Refusal{"0F1.5", 13, "'0F1'"},
                    Refusal{"0UNSHARD5", 18, "0UNSHARD"}, Refusal{"0RESHARD0", 18, "no microbatch"},
                    Refusal{"3REDUCE_GRAD1", 22, "no microbatch"}, Refusal{"0SEND_F", 17, "0SEND_F0"},
                    Refusal{"65536F0", 10, "65535"}, Refusal{"99999999999999999999F0", 10, "65535"},
                    Refusal{"0F1048576", 12, "1048575"}, Refusal{"0F99999999999999999999", 12, "1048575"},
                    Refusal{"0F1\xc3\xa9", 13, "\\xc3"}, Refusal{"0OVERLAP_F_B", 11, "joins two"}));

INSTANTIATE_TEST_SUITE_P(
    Pairs, ActionRefusal,
    testing::Values(Refusal{"()OVERLAP_F_B", 11, "two actions"}, Refusal{"(0F7)F", 14, "two actions"},
                    Refusal{"(0F7)OVERLAP_F_B", 14, "two actions"}, Refusal{"(0F7;7B3)", 19, "OVERLAP_F_B"},
                    Refusal{"(0F7;7B3)OVERLAP", 19, "OVERLAP_F_B"},
                    Refusal{"(0F7;7B3)OVERLAP_F_B1", 19, "OVERLAP_F_B"}, Refusal{"(0F7;7B3", 18, "')'"},
                    Refusal{"(0F7;7B3;1F0)OVERLAP_F_B", 18, "not more"},
                    Refusal{"((0F7;7B3)OVERLAP_F_B;1F0)OVERLAP_F_B", 11, "nest"},
                    Refusal{"(0F7;(7B3;1F0)OVERLAP_F_B)OVERLAP_F_B", 15, "nest"},
                    Refusal{"(;7B3)OVERLAP_F_B", 11, "missing"}, Refusal{"(0F7;)OVERLAP_F_B", 15, "missing"},
                    Refusal{"(0F7;7SEND_B3)OVERLAP_F_B", 15, "computations only"},
                    Refusal{"(0UNSHARD;7B3)OVERLAP_F_B", 11, "computations only"},
                    Refusal{"(0F7; 0F7)OVERLAP_F_B", 16, "different"},
                    Refusal{"(0F7;7BX)OVERLAP_F_B", 16, "'BX'"}));

TEST(Action, ColumnCountsFromOneWhereNothingIsKnown) {
  const Result<std::vector<Action>> got = parse_cell("0F");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().where.column, 3);
}

TEST(Action, AppendLeavesTheRowAloneOnAnError) {
  std::vector<Action> row = {action(0, ActionKind::kForward, 0)};
  EXPECT_FALSE(append_cell("(0F7;7BX)OVERLAP_F_B", Where{}, &row));
  EXPECT_EQ(row.size(), 1U);
}

}  // namespace
}  // namespace plumbline
