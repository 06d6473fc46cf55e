// Variable sequence lengths: before every call that moves a tensor, its shape goes the same way in a group of its own.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "sim/verify/check.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

RunConfig config_of(ScheduleKind kind, int pp, int chunks, int m, P2pStyle style) {
  RunConfig config = test::config_of(kind, pp, chunks, m);
  config.schedule.p2p = style;
  config.schedule.comm_map = CommMap::kPair;
  config.schedule.variable_lengths = true;
  return config;
}

Program lowered(const RunConfig& config) {
  auto program = program_of(config, default_sizes(config));
  EXPECT_TRUE(program) << program.error().text();
  return program ? std::move(*program) : Program{};
}

// Messages of one rank in order, "s.activation.1 to 2"; shapes and tensors apart.
struct Messages {
  std::vector<std::string> shapes, tensors;
};
Messages messages_of(const Program& program, std::size_t thread) {
  Messages out;
  for (const Item item : program.thread_items(thread)) {
    if (item_op(item) != ItemOp::kOp || !is_p2p(program.endpoints[item_ref(item)].kind)) continue;
    const Endpoint& endpoint = program.endpoints[item_ref(item)];
    const SlotClass& slot = program.slots[endpoint.slot];
    const bool shape = slot.kind == SlotKind::kShape;
    std::string text = std::string(endpoint_kind_name(endpoint.kind)) + " " +
                       (shape ? slot.name.substr(6) : slot.name) + " " +
                       std::to_string(item_microbatch(item)) + " " + std::to_string(endpoint.peer);
    if (shape) {
      EXPECT_EQ(endpoint.bytes, 24);
      out.shapes.push_back(text);
    } else {
      // Its shape is known by now.
      EXPECT_NE(std::find(out.shapes.begin(), out.shapes.end(), text), out.shapes.end()) << text;
      out.tensors.push_back(text);
    }
  }
  return out;
}

TEST(Shapes, GoBeforeEveryTensorAndChangeNoVerdict) {
  struct Case {
    ScheduleKind kind;
    int chunks;
    P2pStyle style;
  };
  for (const Case& one : {Case{ScheduleKind::kGpipe, 1, P2pStyle::kBatched},
                          Case{ScheduleKind::kOneFOneB, 1, P2pStyle::kBatched},
                          Case{ScheduleKind::kOneFOneB, 1, P2pStyle::kSeparate},
                          Case{ScheduleKind::kForwardOnly, 1, P2pStyle::kBatched},
                          Case{ScheduleKind::kInterleaved, 2, P2pStyle::kSeparate},
                          Case{ScheduleKind::kInterleaved, 2, P2pStyle::kOverlap}}) {
    for (const int pp : {3, 4}) {
      const RunConfig config = config_of(one.kind, pp, one.chunks, 2 * pp, one.style);
      const Program program = lowered(config);
      SCOPED_TRACE(program.name);
      for (std::size_t t = 0; t < program.threads.size(); ++t) {
        Messages messages = messages_of(program, t);
        std::sort(messages.shapes.begin(), messages.shapes.end());
        std::sort(messages.tensors.begin(), messages.tensors.end());
        EXPECT_EQ(messages.shapes, messages.tensors);
        EXPECT_FALSE(messages.tensors.empty());
      }
      const auto linked = link_program(program);
      ASSERT_TRUE(linked);
      const auto verdict = check_program(*linked);
      ASSERT_TRUE(verdict);
      EXPECT_TRUE(verdict->findings.empty()) << verdict->findings.front().why;
      EXPECT_TRUE(verdict->modes.back().completes);
    }
  }
}

// Without them nothing is different.
TEST(Shapes, AreLeftOutOtherwise) {
  RunConfig config = config_of(ScheduleKind::kOneFOneB, 4, 1, 8, P2pStyle::kBatched);
  config.schedule.variable_lengths = false;
  for (const SlotClass& slot : lowered(config).slots) EXPECT_NE(slot.kind, SlotKind::kShape) << slot.name;
}

}  // namespace
}  // namespace plumbline
