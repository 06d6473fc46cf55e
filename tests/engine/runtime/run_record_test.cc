#include "engine/runtime/run_record.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/runtime/record_file.h"

namespace plumbline {
namespace {

// Like a 1F1B run: ranks by rank, times rising, a send or receive beside every computation.
RunRecord sample(int ranks = 4, int microbatches = 16, int steps = 2) {
  RunRecord record;
  record.producer = "plumbline 0.1.0";
  record.backend = "sim";
  record.config = "[schedule]\nkind = \"1f1b\"\n";
  record.command = "plumbline sim";
  record.seed = 0xFFFFFFFFFFFFFFFFULL;
  record.program_digest = 42;
  record.ranks = ranks;
  record.stages = ranks;
  record.microbatches = microbatches;
  for (int r = 0; r < ranks; ++r) {
    record.pipeline_coordinate.push_back(r);
    record.replica.push_back(0);
    record.labels.push_back({false, "F." + std::to_string(r), KernelKind::kForward, EndpointKind::kSend, r});
    record.labels.push_back({true, "send." + std::to_string(r), KernelKind::kOther, EndpointKind::kSend, r,
                             SlotKind::kActivation, 1 << 20});
  }
  record.streams = {"compute", "pp"};
  std::mt19937_64 random(1);
  for (int step = 0; step < steps; ++step) {
    for (int r = 0; r < ranks; ++r) {
      Nanoseconds time = step * 1'000'000'000LL + r * 1'010'000;
      for (int m = 0; m < microbatches; ++m) {
        const auto duration = static_cast<Nanoseconds>(1'000'000 + random() % 20'000);
        record.events.push_back(
            {step, r, static_cast<std::uint32_t>(2 * r), 0, m, -1, time, time, time + duration});
        time += duration;
        record.events.push_back({step, r, static_cast<std::uint32_t>(2 * r + 1), 1, m, (r + 1) % ranks, time,
                                 time + static_cast<Nanoseconds>(random() % 500'000), time + 600'000});
        record.memory.push_back({step, r, time, static_cast<Bytes>(m) << 20});
      }
    }
    StepRow row;
    row.step = step;
    row.iteration = step + 1;
    row.loss = 1.25 / (step + 1);
    row.params_digest = random();
    if (step % 2 == 1) row.zeros = 100 * step;
    row.end = step * 1000;
    record.steps.push_back(row);
  }
  return record;
}

void expect_same(const RunRecord& a, const RunRecord& b) {
  EXPECT_EQ(a.digest(), b.digest());
  EXPECT_EQ(a.events, b.events);
  EXPECT_EQ(a.memory, b.memory);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) EXPECT_EQ(a.steps[i].zeros, b.steps[i].zeros) << i;
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.command, b.command);
  EXPECT_EQ(a.verdict_json, b.verdict_json);
}

// The version that a record without cores is written as.
const std::string kWritten = "2";

TEST(RunRecord, ReadsBack) {
  RunRecord record = sample();
  record.verdict_json = "{\"a\":1}";
  record.steps[0].loss = std::numeric_limits<double>::quiet_NaN();
  bool truncated = true;
  const Result<RunRecord> read = parse_record(serialize_record(record), "r", &truncated);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_FALSE(truncated);
  expect_same(*read, record);
}

TEST(RunRecord, ExtremeValuesReadBack) {
  RunRecord record = sample(1, 1, 1);
  constexpr auto kMost = std::numeric_limits<Nanoseconds>::max();
  constexpr auto kLeast = std::numeric_limits<Nanoseconds>::min();
  record.events[0].start = kLeast;
  record.events[0].ready = kMost;
  record.events[0].end = kLeast;
  record.events[1].microbatch = std::numeric_limits<std::int32_t>::max();
  record.memory[0].live = kMost;
  record.steps[0].step = std::numeric_limits<std::int32_t>::max() - 1;
  const Result<RunRecord> read = parse_record(serialize_record(record), "r");
  ASSERT_TRUE(read) << read.error().text();
  expect_same(*read, record);
}

TEST(RunRecord, AnEventTakesAtMostTwentyBytes) {
  const RunRecord record = sample(64, 256, 1);
  RunRecord without = record;
  without.events.clear();
  const std::size_t bytes = serialize_record(record).size() - serialize_record(without).size();
  EXPECT_LE(static_cast<double>(bytes) / static_cast<double>(record.events.size()), 20.0);
  RecordProperty("bytes_per_event_x100", static_cast<int>(100 * bytes / record.events.size()));
}

TEST(RunRecord, DigestIgnoresWhoMadeIt) {
  RunRecord a = sample(), b = sample();
  b.producer = "other";
  b.command = "other";
  EXPECT_EQ(a.digest(), b.digest());
  b.events[3].end += 1;
  EXPECT_NE(a.digest(), b.digest());
}

TEST(RunRecord, ATruncatedTailIsDropped) {
  const RunRecord record = sample(2, 4, 3);
  const std::string bytes = serialize_record(record);
  std::size_t before = 0;
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    bool truncated = false;
    const Result<RunRecord> read = parse_record(std::string_view(bytes).substr(0, cut), "r", &truncated);
    if (!read) {
      EXPECT_EQ(before, 0U) << "whole steps were there before byte " << cut;
      continue;
    }
    EXPECT_TRUE(truncated);
    EXPECT_GE(read->steps.size(), before);
    before = read->steps.size();
    for (std::size_t i = 0; i < read->events.size(); ++i) ASSERT_EQ(read->events[i], record.events[i]);
  }
  EXPECT_EQ(before, 3U);
}

TEST(RunRecord, ADamagedByteIsFoundWithItsPlace) {
  const std::string bytes = serialize_record(sample(2, 2, 2));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const char flip : {'\x01', '\x80'}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      const Result<RunRecord> read = parse_record(damaged, "file.rec");
      ASSERT_FALSE(read) << "byte " << at;
      EXPECT_EQ(read.error().where.file, "file.rec");
      if (at >= record_file::kMagic.size())
        EXPECT_NE(read.error().message.find("at byte"), std::string::npos);
    }
  }
}

// Correct checksums, wrong content: counts that are too large, rows out of range, columns that end early.
TEST(RunRecord, HostileBlocksAreErrors) {
  const RunRecord record = sample(2, 2, 1);
  std::string head(record_file::kMagic);
  record_file::append_block(head, record_file::BlockKind::kHeader, record_file::header_json(record));
  std::mt19937_64 random(7);
  const std::string good = record_file::step_payload(record, {}, record_file::rows_of(record));
  for (int i = 0; i < 20000; ++i) {
    std::string payload = good;
    if (i % 2 == 0) payload.resize(random() % (good.size() + 1));
    for (int changes = static_cast<int>(random() % 4); changes >= 0 && !payload.empty(); --changes) {
      payload[random() % payload.size()] = static_cast<char>(random());
    }
    std::string file = head;
    record_file::append_block(file, record_file::BlockKind::kStep, payload);
    const Result<RunRecord> read = parse_record(file, "r");
    if (!read) continue;
    EXPECT_LE(read->events.size(), payload.size());
    for (const RunEvent& event : read->events) {
      ASSERT_LT(event.label, read->labels.size());
      ASSERT_LT(event.stream, read->streams.size());
      ASSERT_TRUE(event.rank >= 0 && event.rank < 2);
    }
  }
}

TEST(RunRecord, HostileHeadersAreErrors) {
  const std::string good = record_file::header_json(sample(2, 2, 1));
  for (const std::string& header :
       {std::string(), std::string("[]"), std::string("{}"), std::string(100000, '['), good.substr(1),
        good + "x", std::string("{\"version\":1,\"ranks\":2000000000}")}) {
    std::string file(record_file::kMagic);
    record_file::append_block(file, record_file::BlockKind::kHeader, header);
    EXPECT_FALSE(parse_record(file, "r"));
  }
  std::string newer = good;
  const std::string version = "\"version\":" + kWritten;
  ASSERT_NE(newer.find(version), std::string::npos);
  newer.replace(newer.find(version), version.size(), "\"version\":" + std::to_string(kRunRecordVersion + 7));
  std::string file(record_file::kMagic);
  record_file::append_block(file, record_file::BlockKind::kHeader, newer);
  const Result<RunRecord> read = parse_record(file, "r");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(parse_record("", "r"));
  EXPECT_FALSE(parse_record("PK\x03\x04 something else", "r"));
}

// Version 1 is version 2 without zeros.
TEST(RunRecord, ReadsVersion1) {
  RunRecord record = sample(2, 2, 3);
  for (StepRow& row : record.steps) row.zeros = -1;
  std::string header = record_file::header_json(record);
  const std::string version = "\"version\":" + kWritten;
  header.replace(header.find(version), version.size(), "\"version\":1");
  const std::string now = serialize_record(record);
  std::string first(record_file::kMagic);
  record_file::append_block(first, record_file::BlockKind::kHeader, record_file::header_json(record));
  std::string old(record_file::kMagic);
  record_file::append_block(old, record_file::BlockKind::kHeader, header);
  ASSERT_EQ(now.substr(0, first.size()), first);
  old += now.substr(first.size());
  const Result<RunRecord> read = parse_record(old, "old");
  ASSERT_TRUE(read) << read.error().text();
  expect_same(*read, record);
}

TEST(RunRecord, TheWriterFlushesStepByStep) {
  const std::string path = ::testing::TempDir() + "plumbline_writer_test.rec";
  RunRecord record = sample(2, 2, 3);
  RunRecord growing = record;
  growing.events.clear();
  growing.memory.clear();
  growing.steps.clear();
  {
    Result<RecordWriter> writer = RecordWriter::create(path, growing);
    ASSERT_TRUE(writer) << writer.error().text();
    for (int step = 0; step < 3; ++step) {
      for (const RunEvent& event : record.events) {
        if (event.step == step) growing.events.push_back(event);
      }
      for (const MemoryPoint& point : record.memory) {
        if (point.step == step) growing.memory.push_back(point);
      }
      growing.steps.push_back(record.steps[static_cast<std::size_t>(step)]);
      ASSERT_TRUE(writer->append(growing));
      bool truncated = false;
      const Result<RunRecord> read = parse_record(read_file(path).value(), path, &truncated);
      ASSERT_TRUE(read) << read.error().text();
      EXPECT_TRUE(truncated);
      expect_same(*read, growing);
    }
    growing.seed += 1;
    EXPECT_FALSE(writer->append(growing));  // the header is on disk already
    growing.seed -= 1;
    growing.verdict_json = "{}";
    ASSERT_TRUE(writer->finish(growing));
    EXPECT_FALSE(writer->append(growing));
  }
  EXPECT_EQ(read_file(path).value(), serialize_record(growing));
  std::remove(path.c_str());
  EXPECT_FALSE(RecordWriter::create("/nonexistent/x.rec", growing));
}

TEST(RunRecord, FilesOfRanksMerge) {
  const RunRecord whole = sample(4, 8, 2);
  std::vector<RunRecord> parts;
  for (Rank r = 3; r >= 0; --r) {  // in any order
    RunRecord part = whole;
    std::erase_if(part.events, [&](const RunEvent& event) { return event.rank != r; });
    std::erase_if(part.memory, [&](const MemoryPoint& point) { return point.rank != r; });
    for (StepRow& row : part.steps) {
      if (r != 3) row.loss = std::numeric_limits<double>::quiet_NaN();
      if (r != 1) row.params_digest = 0;
    }
    part.command = "rank " + std::to_string(r);
    parts.push_back(part);
  }
  const Result<RunRecord> merged = merge_records(parts);
  ASSERT_TRUE(merged) << merged.error().text();
  EXPECT_EQ(merged->digest(), whole.digest());
  parts[1].steps[0].scale = 7;
  EXPECT_FALSE(merge_records(parts));
  parts[1].steps[0].scale = 1;
  parts[2].seed = 1;
  EXPECT_FALSE(merge_records(parts));
  EXPECT_FALSE(merge_records({}));
}

}  // namespace
}  // namespace plumbline
