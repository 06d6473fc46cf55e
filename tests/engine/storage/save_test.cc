// Saving and loading with nothing in the way: what is refused, what is kept, what is found.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/storage/save_support.h"

namespace plumbline::test {
namespace {

Status save_alone(FileLayer& files, const CheckpointToSave& request, const SaveOptions& options = {}) {
  const Result<Saved> saved = save_checkpoint(files, lone_channel(), kDirectory, request, options);
  if (!saved) return tl::unexpected(saved.error());
  return {};
}

CheckpointToSave small(std::int64_t iteration, const std::vector<float>& values) {
  CheckpointToSave request;
  request.iteration = iteration;
  const auto count = static_cast<std::int64_t>(values.size());
  request.pieces.push_back({"p", ElementType::kF32, {count}, whole_place({count}), 0, values.data()});
  return request;
}

Result<CheckpointReader> load(FileLayer& files) {
  const auto found = find_checkpoint(files, lone_channel(), kDirectory);
  if (!found) return tl::unexpected(found.error());
  if (!*found) return fail(ErrorCode::kState, "no tracker");
  return open_verified(files, lone_channel(), kDirectory, **found);
}

TEST(Save, FourRanksAndBack) {
  SimulatedDisk disk;
  expect_saved(Processes(disk).save(10, 5));
  EXPECT_EQ(found_salt(disk, "undisturbed"), 5);
  EXPECT_EQ(*disk.content("/ckpt/latest_checkpointed_iteration.txt"), "10");
  SimulatedFiles files(disk);
  const auto reader = CheckpointReader::open(files, "/ckpt/iter_0000010");
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->manifest().ranks, 4);
  EXPECT_EQ(reader->manifest().files.size(), 4u);
  EXPECT_EQ(reader->manifest().find("tied"), reader->manifest().find("w"));
  EXPECT_EQ(reader->manifest().find("m")->pieces.size(), 4u);
  EXPECT_EQ(reader->manifest().find("n")->pieces.size(), 1u);
}

TEST(Save, SameStateSameBytes) {
  SimulatedDisk one, two;
  expect_saved(Processes(one, 1).save(10, 5));
  expect_saved(Processes(two, 99).save(10, 5));
  EXPECT_EQ(one.tree(), two.tree());
}

// Tests of damage: a flipped bit or a lost byte anywhere in any file of the checkpoint.
TEST(Save, EveryDamagedByteIsRefused) {
  SimulatedDisk disk;
  expect_saved(Processes(disk).save(10, 5));
  expect_saved(Processes(disk).save(20, 6));
  int tried = 0;
  for (const auto& [path, content] : disk.tree()) {
    if (path.find("iter_0000020/") == std::string::npos || path.back() == '/') continue;
    std::string* bytes = disk.content(path);
    for (std::size_t i = 0; i < content.size(); ++i, ++tried) {
      (*bytes)[i] = static_cast<char>((*bytes)[i] ^ (1 << (i % 8)));
      SimulatedFiles files(disk);
      const auto reader = load(files);
      ASSERT_FALSE(reader) << path << " byte " << i;
      EXPECT_NE(reader.error().message.find("the newest whole checkpoint is iter_0000010"), std::string::npos)
          << reader.error().message;
      EXPECT_NE(reader.error().message.find(path.substr(0, 18)), std::string::npos) << reader.error().message;
      *bytes = content;
    }
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, content.size() / 2, content.size() - 1}) {
      bytes->resize(size);
      SimulatedFiles files(disk);
      EXPECT_FALSE(load(files)) << path << " cut to " << size;
      *bytes = content;
    }
    *bytes += 'x';
    SimulatedFiles files(disk);
    EXPECT_FALSE(load(files)) << path << " with one byte more";
    *bytes = content;
  }
  EXPECT_GT(tried, 3000);
  SimulatedFiles files(disk);
  EXPECT_TRUE(load(files));
}

TEST(Save, DamageIsNamedWithFileAndOffset) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const std::vector<float> values(8, 1.5f);
  ASSERT_TRUE(save_alone(files, small(3, values)));
  std::string* bytes = disk.content("/ckpt/iter_0000003/shard_00000_of_00001.safetensors");
  ASSERT_NE(bytes, nullptr);
  bytes->back() = '!';
  const auto reader = load(files);
  ASSERT_FALSE(reader);
  EXPECT_NE(
      reader.error().message.find("iter_0000003/shard_00000_of_00001.safetensors: damaged between byte "),
      std::string::npos)
      << reader.error().message;
  EXPECT_NE(reader.error().message.find("no other checkpoint there is whole"), std::string::npos);
}

// What this reader verified is believed as long as nobody writes to it; what another rank verified is checked again.
TEST(Save, WhatChangedAfterItWasVerifiedIsRefused) {
  for (const bool verified : {false, true}) {
    for (const bool changed : {false, true}) {
      SimulatedDisk disk;
      SimulatedFiles files(disk);
      const std::vector<float> values(40, 1.0f);
      ASSERT_TRUE(save_alone(files, small(10, values)));
      const auto reader = CheckpointReader::open(files, "/ckpt/iter_0000010");
      ASSERT_TRUE(reader) << reader.error().message;
      // Of two ranks the first has the only shard to verify.
      ASSERT_TRUE(reader->verify({}, verified ? 0 : 1, 2));
      if (changed) disk.content("/ckpt/iter_0000010/shard_00000_of_00001.safetensors")->back() ^= 1;
      std::vector<float> part(7);
      const Status read =
          reader->read_place(*reader->manifest().find("p"), {{3}, {7}, false, 0, 0}, part.data());
      EXPECT_EQ(read.has_value(), !changed);
      if (changed) EXPECT_NE(read.error().message.find("changed since it was verified"), std::string::npos);
    }
  }
}

TEST(Save, ForeignAndOtherVersions) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const std::vector<float> values(2, 1.0f);
  ASSERT_TRUE(save_alone(files, small(3, values)));
  std::string* manifest = disk.content("/ckpt/iter_0000003/manifest.json");
  const std::string good = *manifest;
  const auto message = [&](const std::string& text) {
    *manifest = text;
    const auto reader = load(files);
    return reader ? std::string() : reader.error().message;
  };
  std::string next = good;
  next.replace(next.find("\"version\":1"), 11, "\"version\":2");
  EXPECT_NE(message(next).find("version 2, this plumbline reads version 1"), std::string::npos);
  EXPECT_NE(message("{\"format\":\"other\"}").find("format 'other'"), std::string::npos);
  EXPECT_NE(message("PK\x03\x04").find("parse error"), std::string::npos);
  EXPECT_EQ(message(good), "");
}

TEST(Save, TrackerForms) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const std::vector<float> values(2, 1.0f);
  EXPECT_EQ(load(files).error().message, "no tracker");
  CheckpointToSave release = small(0, values);
  release.release = true;
  ASSERT_TRUE(save_alone(files, release));
  EXPECT_EQ(*disk.content("/ckpt/latest_checkpointed_iteration.txt"), "release");
  EXPECT_EQ(load(files)->path(), "/ckpt/release");
  ASSERT_TRUE(save_alone(files, small(7, values)));
  EXPECT_EQ(load(files)->path(), "/ckpt/iter_0000007");
  std::string* tracker = disk.content("/ckpt/latest_checkpointed_iteration.txt");
  *tracker = "8";
  EXPECT_NE(load(files).error().message.find("the newest whole checkpoint is iter_0000007"),
            std::string::npos);
  for (const char* bad : {"", "-1", "7.0", "seven", "7 8"}) {
    *tracker = bad;
    EXPECT_NE(load(files).error().message.find("must be an iteration or 'release'"), std::string::npos)
        << bad;
  }
  *tracker = " 7\n";
  EXPECT_TRUE(load(files));
}

TEST(Save, KeepLast) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const std::vector<float> values(2, 1.0f);
  ASSERT_TRUE(files.make_directory("/ckpt"));
  ASSERT_TRUE(files.make_directory("/ckpt/iter_0000001"));  // someone else's: no manifest
  SaveOptions options;
  options.keep_last = 2;
  for (const int iteration : {2, 3, 4, 5}) ASSERT_TRUE(save_alone(files, small(iteration, values), options));
  std::vector<std::string> names = *files.list("/ckpt");
  EXPECT_EQ(names, (std::vector<std::string>{"iter_0000001", "iter_0000004", "iter_0000005",
                                             "latest_checkpointed_iteration.txt"}));
}

TEST(Save, ConcurrentSaversAndReadOnly) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const std::vector<float> values(2, 1.0f);
  ASSERT_TRUE(save_alone(files, small(2, values)));
  {
    const auto held = files.lock(lock_path(kDirectory));
    ASSERT_TRUE(held);
    const Status second = save_alone(files, small(3, values));
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("held by another process that saves here"), std::string::npos);
  }
  ASSERT_TRUE(save_alone(files, small(3, values)));
  files.set_read_only(true);
  EXPECT_NE(save_alone(files, small(4, values)).error().message.find("Read-only"), std::string::npos);
  files.set_read_only(false);
  EXPECT_EQ(load(files)->manifest().iteration, 3);
  disk.limit_space(40);
  EXPECT_NE(save_alone(files, small(4, values)).error().message.find("No space left"), std::string::npos);
  EXPECT_EQ(load(files)->manifest().iteration, 3);
}

// One error for all ranks, before a byte is written.
TEST(Save, OffersThatDoNotFit) {
  SimulatedDisk disk;
  const auto offers = [&](const std::function<void(int, CheckpointToSave&)>& change) {
    Lockstep group(2, 1);
    std::vector<std::string> errors(2);
    const std::vector<float> values(8, 1.0f), others(8, 2.0f);
    group.run([&](int rank) {
      SimulatedFiles files(disk);
      CheckpointToSave request;
      request.pieces.push_back(
          {"p", ElementType::kF32, {4, 4}, {{2 * rank, 0}, {2, 4}, false, 0, 0}, 0, values.data()});
      request.pieces.push_back({"q", ElementType::kF32, {8}, whole_place({8}), rank, values.data()});
      change(rank, request);
      if (rank == 1 && request.pieces[1].data == nullptr) request.pieces[1].data = others.data();
      const auto saved = save_checkpoint(files, group.channel(rank), kDirectory, request);
      errors[static_cast<std::size_t>(rank)] = saved ? "" : saved.error().message;
    });
    return errors;
  };
  expect_saved(offers([](int, CheckpointToSave&) {}));
  expect_all(offers([](int rank, CheckpointToSave& r) { r.pieces[0].place.offset[0] = rank; }),
             "tensor 'p': element [1, 0] is held twice, by rank 0");
  expect_all(offers([](int rank, CheckpointToSave& r) {
               if (rank == 0) r.pieces.erase(r.pieces.begin());
             }),
             "tensor 'p': element [0, 0] is held by no one");
  expect_all(offers([](int rank, CheckpointToSave& r) { r.pieces[1].replica = 1 + rank; }),
             "tensor 'q': element [0] is held by no one");
  expect_all(offers([](int, CheckpointToSave& r) { r.pieces[1].replica = 0; }),
             "tensor 'q': element [0] is held twice");
  expect_all(offers([](int rank, CheckpointToSave& r) {
               if (rank == 1) r.pieces[1].type = ElementType::kI32;
             }),
             "tensor 'q' is F32 [8] on rank 0 and I32 [8] on rank 1");
  expect_all(offers([](int rank, CheckpointToSave& r) { r.iteration = rank; }),
             "rank 0 saves iteration 0, rank 1 iteration 1");
  expect_all(offers([](int rank, CheckpointToSave& r) {
               if (rank == 1) r.pieces[0].place.offset[0] = 3;
             }),
             "does not lie inside");
  expect_all(offers([](int rank, CheckpointToSave& r) {
               if (rank == 1) r.pieces[1].data = nullptr;
             }),
             "rank 0 and rank 1 hold different values of 'q'");
  expect_all(offers([](int, CheckpointToSave& r) { r.aliases.emplace_back("tied", "none"); }),
             "which no rank saves");
  expect_all(
      offers([](int rank, CheckpointToSave& r) { r.aliases.emplace_back("tied", rank == 0 ? "p" : "q"); }),
      "another name of");
  expect_all(offers([](int rank, CheckpointToSave& r) {
               r.objects.push_back({"o", JsonValue(JsonValue::Content(std::int64_t{rank})), rank});
             }),
             "object 'o' differs between rank 0 and rank 1");
  expect_all(offers([](int, CheckpointToSave& r) {
               r.objects.push_back({"o", JsonValue(JsonValue::Content(std::int64_t{1})), 0});
             }),
             "object 'o' is saved by rank 0 and by rank 1");
}

}  // namespace
}  // namespace plumbline::test
