// Random worlds above the exhausted small ones.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/schedule/megatron_order.h"
#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

// Sizes that the interleaved schedule accepts, the last group partial or not.
GeneratorArgs interleaved_args() {
  GeneratorArgs args;
  args.ranks = *rc::gen::inRange(1, 17).as("ranks");
  args.chunks = *rc::gen::inRange(1, 6).as("chunks");
  args.group_size = args.ranks + *rc::gen::inRange(0, 6).as("group size above ranks");
  const int groups = *rc::gen::inRange(1, 5).as("groups");
  const int rest = *rc::gen::inRange(args.ranks, args.group_size + 1).as("last group");
  args.microbatches = (groups - 1) * args.group_size + rest;
  if (groups == 1) args.microbatches = args.group_size;
  args.forward_only = *rc::gen::arbitrary<bool>().as("forward only");
  return args;
}

void check(const char* name, const GeneratorArgs& args) {
  const Result<Schedule> schedule = test::generate(name, args);
  RC_ASSERT(schedule.has_value());
  RC_ASSERT(test::findings_text(validate_schedule(*schedule)) == "");
  const bool forward_only = schedule->forward_only;
  const int per_rank = args.chunks * args.microbatches * (forward_only ? 1 : 2);
  RC_ASSERT(schedule->stages == args.ranks * args.chunks);
  for (int rank = 0; rank < args.ranks; ++rank) {
    RC_ASSERT(static_cast<int>(schedule->row(rank).size()) == per_rank);
    RC_ASSERT(static_cast<int>(schedule->stages_of_rank(rank).size()) == args.chunks);
  }
  const Result<Schedule> again = parse_schedule_csv(print_schedule_csv(*schedule, true), schedule->name);
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == *schedule);
}

RC_GTEST_PROP(Random, InterleavedIsValid, ()) { check("interleaved", interleaved_args()); }

RC_GTEST_PROP(Random, ForwardOnlyIsValid, ()) { check("forward-only", interleaved_args()); }

RC_GTEST_PROP(Random, Interleaved2022IsValid, ()) {
  GeneratorArgs args = interleaved_args();
  args.group_size = 0;
  args.microbatches = args.ranks * *rc::gen::inRange(1, 5).as("rounds");
  check("interleaved-2022", args);
}

RC_GTEST_PROP(Random, PlainSchedulesAreValid, ()) {
  GeneratorArgs args;
  args.ranks = *rc::gen::inRange(1, 33).as("ranks");
  args.microbatches = *rc::gen::inRange(1, 65).as("microbatches");
  args.forward_only = *rc::gen::arbitrary<bool>().as("forward only");
  check("gpipe", args);
  check("1f1b", args);
}

// Accepted by the rules if and only if made, and what is made is valid.
RC_GTEST_PROP(Random, RefusalIsExactlyTheRule, ()) {
  GeneratorArgs args;
  args.ranks = *rc::gen::inRange(1, 9);
  args.chunks = *rc::gen::inRange(1, 5);
  args.microbatches = *rc::gen::inRange(1, 41);
  args.group_size = *rc::gen::inRange(1, 13);
  const int rest = args.microbatches % args.group_size;
  const bool legal = args.group_size >= args.ranks && args.group_size <= args.microbatches &&
                     (rest == 0 || rest >= args.ranks);
  RC_ASSERT(test::generate("interleaved", args).has_value() == legal);
  if (legal) check("interleaved", args);
}

// Text made of the grammar's own pieces reaches much deeper than random bytes.
std::string random_text() {
  const std::vector<std::string> pieces = {"0",           "1",
                                           "7",           "65536",
                                           "F",           "B",
                                           "I",           "W",
                                           "SEND_F",      "RECV_B",
                                           "UNSHARD",     "RESHARD",
                                           "REDUCE_GRAD", "(",
                                           ")",           ";",
                                           "OVERLAP_F_B", ",",
                                           "\n",          "\r\n",
                                           "\r",          "\"",
                                           " ",           "0F1",
                                           "2B3",         "(0F1;2B0)OVERLAP_F_B",
                                           "\xff",        "x"};
  std::string text;
  for (const std::size_t i :
       *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 28))) {
    text += pieces[i];
  }
  return text;
}

void check_text(const std::string& text) {
  for (const bool fragment : {false, true}) {
    const Result<Schedule> schedule = parse_schedule_csv(text, "s.csv", CsvOptions{fragment});
    if (!schedule) {
      RC_ASSERT(schedule.error().where.file == "s.csv");
      RC_ASSERT(!schedule.error().message.empty());
      continue;
    }
    static_cast<void>(validate_schedule(*schedule, fragment));
    const Result<Schedule> again =
        parse_schedule_csv(print_schedule_csv(*schedule), "s.csv", CsvOptions{fragment});
    RC_ASSERT(again.has_value());
    RC_ASSERT(*again == *schedule);
  }
}

RC_GTEST_PROP(Random, NoTextBreaksTheParser, ()) { check_text(random_text()); }

RC_GTEST_PROP(Random, NoBytesBreakTheParser, ()) { check_text(*rc::gen::string<std::string>()); }

}  // namespace
}  // namespace plumbline
