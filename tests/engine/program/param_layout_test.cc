// Buffer layouts: 420 recorded ones exact, and what must hold for every layout.
#include "engine/program/param_layout.h"

#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>

#include "tests/support/oracle.h"
#include "tests/support/property.h"

namespace plumbline {
namespace {

using nlohmann::json;

std::vector<ParamSize> sizes_of(const json& line) {
  std::vector<ParamSize> params;
  for (const json& numel : line["sizes"]) params.push_back({numel.get<std::int64_t>(), false});
  for (const json& index : line["shared_embedding"]) {
    params[index.get<std::size_t>()].shared_embedding = true;
  }
  return params;
}

json ranges_of(const ParamLayout& layout, int shard) {
  json buckets = json::array();
  for (int b = 0; b < static_cast<int>(layout.buckets().size()); ++b) {
    json rows = json::array();
    for (const ParamShard& part : layout.shard(b, shard)) {
      rows.push_back({part.param, part.world_begin, part.world_end, part.bucket_begin, part.bucket_end,
                      part.local_begin, part.local_end, part.param_begin, part.param_end});
    }
    buckets.push_back(rows);
  }
  return buckets;
}

// Not compared: dp_reshardable and its verdicts, which are checkpoint pieces of a form we do not write
// (tests/oracles/README.md).
TEST(ParamLayoutOracle, EveryLayoutBucketAndRange) {
  const auto compare = [](const json& line) {
    ParamLayoutOptions options;
    options.shards = line["dp"].get<int>();
    options.bucket_size = line["bucket_size"].is_null() ? 0 : line["bucket_size"].get<std::int64_t>();
    options.pad_busbw = line["pad_busbw"].get<bool>();
    const Result<ParamLayout> layout = ParamLayout::create(sizes_of(line), options);
    ASSERT_TRUE(layout) << layout.error().text();
    json places = json::array(), buckets = json::array(), unpadded = json::array(), ranges = json::array();
    for (const ParamPlace& place : layout->places()) {
      places.push_back({place.param, place.begin, place.end, place.bucket});
    }
    for (const BucketRange& bucket : layout->buckets()) {
      buckets.push_back({bucket.begin, bucket.end});
      unpadded.push_back(bucket.unpadded);
    }
    for (int shard = 0; shard < options.shards; ++shard) ranges.push_back(ranges_of(*layout, shard));
    const json inputs = {line["sizes"], line["shared_embedding"], line["bucket_size"], line["dp"]};
    EXPECT_EQ(places, line["param_index"]) << inputs;
    EXPECT_EQ(buckets, line["buckets"]) << inputs;
    EXPECT_EQ(unpadded, line["unpadded"]) << inputs;
    EXPECT_EQ(ranges, line["rank_ranges"]) << inputs;
  };
  EXPECT_EQ(test::for_each_line("oracles/megatron/distrib_optimizer_layout.jsonl.gz", compare), 420);
}

struct Drawn {
  std::vector<ParamSize> params;
  ParamLayoutOptions options;
};

Drawn draw_layout() {
  Drawn drawn;
  const int count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; ++i) {
    const std::int64_t numel = *rc::gen::oneOf(rc::gen::inRange<std::int64_t>(0, 5),  //
                                               rc::gen::inRange<std::int64_t>(0, 400));
    drawn.params.push_back({numel, *rc::gen::inRange(0, 6) == 0});
  }
  drawn.options.shards = *rc::gen::inRange(1, 17);
  drawn.options.bucket_size = *rc::gen::oneOf(rc::gen::just<std::int64_t>(0),  //
                                              rc::gen::inRange<std::int64_t>(1, 1500));
  return drawn;
}

// Shards cover every parameter exactly once, and lie within their part of the bucket.
void shards_cover_every_parameter_once() {
  const Drawn drawn = draw_layout();
  const Result<ParamLayout> layout = ParamLayout::create(drawn.params, drawn.options);
  RC_ASSERT(layout.has_value());
  std::vector<std::vector<int>> seen;
  for (const ParamSize& param : drawn.params) {
    seen.emplace_back(static_cast<std::size_t>(param.numel), 0);
  }
  for (int bucket = 0; bucket < static_cast<int>(layout->buckets().size()); ++bucket) {
    for (int shard = 0; shard < drawn.options.shards; ++shard) {
      std::int64_t last_end = 0;
      for (const ParamShard& part : layout->shard(bucket, shard)) {
        const ParamPlace& place = layout->place(part.param);
        RC_ASSERT(place.bucket == bucket);
        RC_ASSERT(part.local_begin >= last_end && part.local_end <= layout->shard_numel(bucket));
        RC_ASSERT(part.world_begin == place.begin + part.param_begin);
        RC_ASSERT(part.bucket_begin == part.local_begin + shard * layout->shard_numel(bucket));
        last_end = part.local_end;
        for (std::int64_t i = part.param_begin; i < part.param_end; ++i) {
          ++seen[static_cast<std::size_t>(part.param)][static_cast<std::size_t>(i)];
        }
      }
    }
  }
  for (const auto& counts : seen) {
    RC_ASSERT(std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; }));
  }
}

// Buckets tile the buffer; each is a multiple of what its collective needs; a shared embedding is alone.
void buckets_tile_the_buffer() {
  const Drawn drawn = draw_layout();
  const Result<ParamLayout> layout = ParamLayout::create(drawn.params, drawn.options);
  RC_ASSERT(layout.has_value());
  std::int64_t at = 0;
  for (const BucketRange& bucket : layout->buckets()) {
    RC_ASSERT(bucket.begin == at);
    RC_ASSERT((bucket.end - bucket.begin) % drawn.options.shards == 0);
    RC_ASSERT((bucket.end - bucket.begin) % 128 == 0);
    RC_ASSERT(bucket.unpadded <= bucket.end - bucket.begin);
    at = bucket.end;
  }
  RC_ASSERT(layout->numel() == at);
  std::vector<int> members(layout->buckets().size(), 0);
  for (const ParamPlace& place : layout->places()) {
    const BucketRange& bucket = layout->buckets()[static_cast<std::size_t>(place.bucket)];
    RC_ASSERT(place.begin % 64 == 0);
    RC_ASSERT(place.begin >= bucket.begin && place.end <= bucket.begin + bucket.unpadded);
    ++members[static_cast<std::size_t>(place.bucket)];
  }
  for (const ParamPlace& place : layout->places()) {
    if (!drawn.params[static_cast<std::size_t>(place.param)].shared_embedding) continue;
    RC_ASSERT(members[static_cast<std::size_t>(place.bucket)] == 1);
    RC_ASSERT(place.begin == layout->buckets()[static_cast<std::size_t>(place.bucket)].begin);
  }
}

TEST(ParamLayoutProperty, ShardsCoverEveryParameterExactlyOnce) {
  test::check_cases(10'000, shards_cover_every_parameter_once);
}

TEST(ParamLayoutProperty, BucketsTileTheBuffer) { test::check_cases(10'000, buckets_tile_the_buffer); }

TEST(ParamLayout, WithoutTheDistributedOptimizerNothingIsPaddedOrAligned) {
  ParamLayoutOptions options;
  options.distributed = false;
  options.shards = 3;
  options.bucket_size = 10;
  const std::vector<ParamSize> params = {{7, true}, {1, false}, {12, false}, {3, false}};
  const Result<ParamLayout> layout = ParamLayout::create(params, options);
  ASSERT_TRUE(layout);
  ASSERT_EQ(layout->buckets().size(), 2u);
  EXPECT_EQ(layout->place(3).begin, 0);
  EXPECT_EQ(layout->place(2).begin, 3);
  EXPECT_EQ(layout->place(1).begin, 15);
  EXPECT_EQ(layout->place(0).begin, 16);  // the shared embedding gets no bucket of its own: all-reduce
  EXPECT_EQ(layout->place(0).bucket, 1);
  EXPECT_EQ(layout->buckets()[0].end, 15);
  EXPECT_EQ(layout->numel(), 23);
}

TEST(ParamLayout, Refusals) {
  const auto error = [](std::vector<ParamSize> params, int shards, std::int64_t bucket_size) {
    ParamLayoutOptions options;
    options.shards = shards;
    options.bucket_size = bucket_size;
    const Result<ParamLayout> layout = ParamLayout::create(params, options);
    return layout ? std::string() : layout.error().message;
  };
  EXPECT_NE(error({{1, false}}, 0, 0).find("0 shards"), std::string::npos);
  EXPECT_NE(error({{1, false}}, 1, -5).find("bucket size -5"), std::string::npos);
  EXPECT_NE(error({{1, false}, {-2, false}}, 1, 0).find("parameter 1 has -2"), std::string::npos);
  EXPECT_NE(error({{1LL << 40, false}}, 1, 0).find("2^40"), std::string::npos);
  EXPECT_NE(error({{INT64_MAX, false}, {INT64_MAX, false}}, 1, 0).find("2^40"), std::string::npos);
  // Few elements, but every bucket is padded for two thousand million shards.
  EXPECT_NE(error(std::vector<ParamSize>(9, {1, false}), INT32_MAX, 1).find("2^40"), std::string::npos);
  EXPECT_EQ(error({}, 4, 0), "");
}

TEST(ParamLayout, DefaultBucketSize) {
  EXPECT_EQ(default_bucket_size(8, true, 0, 0), 40'000'000);
  EXPECT_EQ(default_bucket_size(64, true, 0, 0), 64'000'000);
  EXPECT_EQ(default_bucket_size(64, false, 0, 0), 0);
  EXPECT_EQ(default_bucket_size(64, true, 1, 0), 0);
  EXPECT_EQ(default_bucket_size(64, true, 0, 1), 0);
}

}  // namespace
}  // namespace plumbline
