// Reports of anything: events that overlap, loop, point nowhere or lie outside. Nothing may crash, and what
// partitions must partition.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "reports/analysis.h"
#include "reports/dot.h"
#include "reports/html.h"
#include "reports/svg.h"
#include "reports/terminal.h"

namespace plumbline {
namespace {

RunRecord any_record() {
  RunRecord record;
  record.ranks = *rc::gen::inRange(0, 5);
  record.stages = *rc::gen::inRange(0, 9);
  record.microbatches = *rc::gen::inRange(0, 4);
  record.schedule = *rc::gen::element<std::string>("1f1b", "interleaved", "", "<&\"'>");
  record.streams = {"compute", "pp"};
  const int labels = *rc::gen::inRange(0, 8);
  for (int k = 0; k < labels; ++k) {
    EventLabel label;
    label.communication = *rc::gen::arbitrary<bool>();
    label.name = *rc::gen::element<std::string>("x", "", "a<b>");
    label.kernel = static_cast<KernelKind>(*rc::gen::inRange(0, 13));
    label.endpoint = static_cast<EndpointKind>(*rc::gen::inRange(0, 7));
    label.slot = static_cast<SlotKind>(*rc::gen::inRange(0, 8));
    label.stage = *rc::gen::inRange(0, 4);
    record.labels.push_back(label);
  }
  const int events = *rc::gen::inRange(0, 60);
  for (int k = 0; k < events; ++k) {
    RunEvent e;
    e.step = *rc::gen::inRange(0, 3);
    e.rank = *rc::gen::inRange(-1, 6);
    e.label = static_cast<std::uint16_t>(*rc::gen::inRange(0, 9));
    e.stream = static_cast<std::uint16_t>(*rc::gen::inRange(0, 3));
    e.microbatch = *rc::gen::inRange(-1, 3);
    e.peer = *rc::gen::inRange(-1, 6);
    e.start = *rc::gen::inRange(-1, 40);
    e.ready = e.start + *rc::gen::inRange(-1, 6);
    e.end = e.ready + *rc::gen::inRange(-1, 6);
    record.events.push_back(e);
  }
  const int points = *rc::gen::inRange(0, 10);
  for (int k = 0; k < points; ++k) {
    record.memory.push_back({*rc::gen::inRange(0, 4), *rc::gen::inRange(-1, 6), *rc::gen::inRange(0, 50),
                             *rc::gen::inRange(0, 1000)});
  }
  const int rows = *rc::gen::inRange(0, 4);
  for (int k = 0; k < rows; ++k) {
    StepRow row;
    row.step = *rc::gen::inRange(0, 4);
    row.evaluation = *rc::gen::arbitrary<bool>();
    row.begin = *rc::gen::inRange(0, 50);
    row.end = *rc::gen::inRange(0, 60);
    record.steps.push_back(row);
  }
  return record;
}

RC_GTEST_PROP(RandomRecord, SumsHold, ()) {
  const RunRecord record = any_record();
  const Analysis a = analyze(record);
  for (const StepAnalysis& step : a.steps) {
    for (const RankTime& rank : step.time.ranks) {
      Nanoseconds causes = 0;
      for (const Nanoseconds cause : rank.cause) {
        RC_ASSERT(cause >= 0);
        causes += cause;
      }
      RC_ASSERT(causes == rank.idle());
      RC_ASSERT(rank.idle() + rank.pipeline + rank.other == step.time.window);
    }
    Nanoseconds path = step.path.unexplained;
    for (const Nanoseconds time : step.path.by_kind) path += time;
    RC_ASSERT(path == step.path.total);
    RC_ASSERT(step.path.unexplained >= 0);
  }
}

RC_GTEST_PROP(RandomRecord, EverythingRenders, ()) {
  const RunRecord record = any_record();
  RC_ASSERT(report_html(record, std::nullopt) == report_html(record, std::nullopt));
  // Refusing is fine, crashing is not.
  (void)timeline_svg(record);
  (void)terminal_timeline(record);
  (void)step_dot(record);
}

}  // namespace
}  // namespace plumbline
