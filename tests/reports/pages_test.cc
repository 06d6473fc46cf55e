// The pages that people look at. With PLUMBLINE_SAMPLES=<folder> in the environment they are written there,
// which is how page_check.sh gets something to open.
#include <cstdlib>

#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "reports/html.h"
#include "tests/reports/sample_record.h"
#include "tests/reports/sample_verdict.h"

namespace plumbline {
namespace {

void keep(const std::string& name, const std::string& page) {
  EXPECT_EQ(page.rfind("<!doctype html>", 0), 0u);
  const char* folder = std::getenv("PLUMBLINE_SAMPLES");
  if (folder == nullptr) return;
  EXPECT_TRUE(write_file(std::string(folder) + "/" + name + ".html", page));
}

TEST(Pages, InterleavedTraining) {
  sample::Shape shape;
  shape.chunks = 2;
  shape.microbatches = 16;
  shape.latency = 90'000;
  shape.jitter = 0.12;
  shape.steps = 24;
  shape.tail = shape.losses = true;
  RunRecord record = sample::record_of(shape);
  for (const int after : {6, 12, 18, 24}) {  // validation after an iteration, without events of its own
    StepRow row = record.steps[static_cast<std::size_t>(after - 1)];
    row.step = 100 + after;
    row.evaluation = true;
    row.skipped = false;
    row.loss += 0.15;
    row.begin = row.end;
    record.steps.push_back(row);
  }
  keep("interleaved", report_html(record, sample::holding_verdict()));
}

TEST(Pages, SplitBackward) {
  sample::Shape shape;
  shape.split = shape.tail = true;
  shape.latency = 50'000;
  shape.microbatches = 12;
  keep("split", report_html(sample::record_of(shape), std::nullopt));
}

TEST(Pages, ManyRanks) {
  sample::Shape shape;
  shape.ranks = 64;
  shape.microbatches = 256;
  shape.latency = 30'000;
  shape.jitter = 0.1;
  shape.tail = true;
  const RunRecord record = sample::record_of(shape);
  EXPECT_GT(record.events.size(), 90'000u);
  const std::string page = report_html(record, std::nullopt);
  EXPECT_LT(page.size(), 2'500'000u);
  keep("many", page);
}

TEST(Pages, Deadlock) {
  sample::Shape shape;
  RunRecord record = sample::record_of(shape);
  // What had finished when it stuck.
  std::erase_if(record.events, [](const RunEvent& e) { return e.end > 3'000'000; });
  std::erase_if(record.memory, [](const MemoryPoint& m) { return m.time > 3'000'000; });
  record.steps.clear();
  keep("deadlock", report_html(record, sample::deadlock_verdict()));
}

TEST(Pages, LongCycle) {
  Verdict verdict;
  verdict.program = "1f1b with wrap-around, 8 ranks";
  Finding finding;
  for (int r = 0; r < 8; ++r) {
    const int next = (r + 1) % 8;
    const OperationRef send =
        sample::op(r, r, 3, std::to_string(r) + "SEND_F3 to rank " + std::to_string(next));
    const OperationRef recv =
        sample::op(next, 10 + next, 3, std::to_string(next) + "RECV_F3 from rank " + std::to_string(r));
    const OperationRef after =
        sample::op(next, next, 3, std::to_string(next) + "SEND_F3 to rank " + std::to_string((next + 1) % 8));
    finding.cycle.push_back({send, recv, "needs its receive"});
    finding.cycle.push_back({recv, after, "host has not got to it yet"});
  }
  finding.waits = finding.cycle;
  verdict.modes = {{"rendezvous+free+warm", false, {finding}, 0}};
  RunRecord record;
  record.schedule = "csv";
  record.backend = "sim";
  record.ranks = record.stages = 8;
  record.microbatches = 16;
  keep("ring", report_html(record, verdict));
}

TEST(Pages, NothingRecorded) { keep("empty", report_html(RunRecord{}, std::nullopt)); }

}  // namespace
}  // namespace plumbline
