// Four ranks on one simulated disk that save small tensors, and what a fresh process then finds there.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/storage/read.h"
#include "engine/storage/save.h"
#include "engine/storage/simulated_disk.h"
#include "tests/support/lockstep.h"

namespace plumbline::test {

inline constexpr int kRanks = 4;
inline const std::string kDirectory = "/ckpt";

// w [8, 6] by rows, v [8, 6] by columns where 6 = 2 + 1 + 2 + 1, m [37] flattened, n [5] copied on all ranks.
// Values are drawn from `salt`, so that two checkpoints never share bytes.
struct RankState {
  std::vector<float> w, v, m, n;

  RankState(int rank, int salt) {
    const auto fill = [&](std::vector<float>& into, std::size_t count, int kind) {
      for (std::size_t i = 0; i < count; ++i)
        into.push_back(static_cast<float>(salt * 10000 + kind * 1000 + rank * 100) + static_cast<float>(i));
    };
    fill(w, 12, 1);
    fill(v, static_cast<std::size_t>(8 * columns(rank)), 2);
    fill(m, static_cast<std::size_t>(end(rank) - begin(rank)), 3);
    n.assign(5, static_cast<float>(salt));
  }
  static std::int64_t columns(int rank) { return rank % 2 == 0 ? 2 : 1; }
  static std::int64_t first_column(int rank) { return rank / 2 * 3 + rank % 2 * 2; }
  static std::int64_t begin(int rank) { return 37 * rank / kRanks; }
  static std::int64_t end(int rank) { return 37 * (rank + 1) / kRanks; }
};

inline CheckpointToSave request_of(const RankState& state, int rank, std::int64_t iteration, int salt) {
  CheckpointToSave request;
  request.iteration = iteration;
  request.pieces.push_back(
      {"w", ElementType::kF32, {8, 6}, {{2 * rank, 0}, {2, 6}, false, 0, 0}, 0, state.w.data()});
  request.pieces.push_back({"v",
                            ElementType::kF32,
                            {8, 6},
                            {{0, RankState::first_column(rank)}, {8, RankState::columns(rank)}, false, 0, 0},
                            0,
                            state.v.data()});
  request.pieces.push_back(
      {"m",
       ElementType::kF32,
       {37},
       {{0}, {37}, true, RankState::begin(rank), RankState::end(rank) - RankState::begin(rank)},
       0,
       state.m.data()});
  request.pieces.push_back(
      {"n", ElementType::kF32, {5}, whole_place({5}), rank == 2 ? 0 : 1, state.n.data()});
  request.objects.push_back({"step", JsonValue(JsonValue::Content(std::int64_t{salt})), rank == 0 ? 0 : 1});
  request.aliases.emplace_back("tied", "w");
  return request;
}

// Ranks' own processes.
struct Processes {
  explicit Processes(SimulatedDisk& disk, std::uint64_t seed = 1) : group(kRanks, seed) {
    for (int rank = 0; rank < kRanks; ++rank) {
      files.push_back(std::make_unique<SimulatedFiles>(disk));
      files.back()->set_hook([this, rank](const std::string&) { on_call(rank); });
    }
    group.set_gone([this](int rank) {
      const bool now = rank == kill_rank && group.exchanges(rank) == kill_exchange;
      if (now) at(rank).kill();
      return at(rank).dead();
    });
  }
  SimulatedFiles& at(int rank) { return *files[static_cast<std::size_t>(rank)]; }

  void on_call(int rank) {
    if (rank == power_rank && at(rank).calls() == power_call) {
      for (auto& one : files) one->kill();
    }
    group.yield(rank);
  }

  // Everyone's outcome: empty, or the error.
  std::vector<std::string> save(std::int64_t iteration, int salt, const SaveOptions& options = {}) {
    std::vector<std::string> errors(kRanks);
    group.run([&](int rank) {
      const RankState state(rank, salt);
      const Result<Saved> saved = save_checkpoint(at(rank), group.channel(rank), kDirectory,
                                                  request_of(state, rank, iteration, salt), options);
      errors[static_cast<std::size_t>(rank)] = saved ? "" : saved.error().message;
    });
    return errors;
  }

  Lockstep group;
  std::vector<std::unique_ptr<SimulatedFiles>> files;
  int power_rank = -1, kill_rank = -1, kill_exchange = 0;
  std::uint64_t power_call = 0;
};

// The salt of the checkpoint that a restarted run finds, all of it checked; -1 when there is none. Anything
// else - part of one, of two - fails the test.
inline int found_salt(SimulatedDisk& disk, const std::string& where) {
  SimulatedFiles files(disk);
  const auto kind = files.kind(kDirectory);
  if (!kind || *kind == PathKind::kAbsent) return -1;
  const auto found = find_checkpoint(files, lone_channel(), kDirectory);
  EXPECT_TRUE(found) << where << ": " << (found ? "" : found.error().message);
  if (!found || !*found) return -1;
  const auto reader = open_verified(files, lone_channel(), kDirectory, **found);
  EXPECT_TRUE(reader) << where << ": " << (reader ? "" : reader.error().message);
  if (!reader) return -2;
  const ManifestObject* step = reader->manifest().find_object("step");
  if (step == nullptr) return -2;
  const int salt = static_cast<int>(*step->value.get<std::int64_t>());
  for (int rank = 0; rank < kRanks; ++rank) {
    const RankState state(rank, salt);
    for (const PieceToSave& piece : request_of(state, rank, 0, salt).pieces) {
      std::vector<float> got(static_cast<std::size_t>(piece.place.elements()));
      const Status read = reader->read_place(*reader->manifest().find(piece.key), piece.place, got.data());
      EXPECT_TRUE(read) << where;
      EXPECT_EQ(std::memcmp(got.data(), piece.data, got.size() * sizeof(float)), 0)
          << where << ": " << piece.key;
    }
  }
  return salt;
}

inline void expect_all(const std::vector<std::string>& errors, const std::string& part) {
  for (const std::string& error : errors) {
    EXPECT_EQ(error, errors.front());
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

inline void expect_saved(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace plumbline::test
