// One rank a driver, as in a run of one process a rank: trainers in threads that meet over a store, on one machine of
// doubles. The doubles know one thread, so that the ranks take turns: each holds the baton except while it has nothing
// to do.
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/program/run_plan.h"
#include "engine/runtime/run_record.h"
#include "tests/backends/cuda/tensors/on_doubles.h"
#include "tests/engine/train/small_run.h"

#if PLUMBLINE_HAVE_PROCESSES

#include "backends/cuda/tensors/store_ids.h"
#include "backends/processes/channel.h"
#include "backends/processes/stall.h"
#include "backends/processes/watchdog.h"

namespace plumbline::cuda {
namespace {

using test::Layout;

// First come, first served.
class Baton {
 public:
  void take() {
    std::unique_lock lock(mutex_);
    const std::uint64_t own = next_++;
    wake_.wait(lock, [&] { return serving_ == own; });
  }
  void pass() {
    const std::lock_guard lock(mutex_);
    ++serving_;
    wake_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::uint64_t next_ = 0, serving_ = 0;
};

class TurnClock final : public HostClock {
 public:
  TurnClock(Baton& baton, std::unique_ptr<HostClock> clock) : baton_(baton), clock_(std::move(clock)) {}
  Nanoseconds now() override { return clock_->now(); }
  void idle() override {
    baton_.pass();
    baton_.take();
  }

 private:
  Baton& baton_;
  std::unique_ptr<HostClock> clock_;
};

// Lets the others go on while this rank waits for them.
class TurnChannel final : public ControlChannel {
 public:
  TurnChannel(Baton& baton, std::unique_ptr<ControlChannel> inner)
      : baton_(baton), inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Result<std::vector<std::string>> exchange(const std::string& message) override {
    baton_.pass();
    Result<std::vector<std::string>> all = inner_->exchange(message);
    baton_.take();
    return all;
  }

 private:
  Baton& baton_;
  std::unique_ptr<ControlChannel> inner_;
};

struct RankRun {
  RankStatus status;
  std::optional<Result<TrainOutcome>> outcome;
  RunRecord record;
};

struct RanksRun {
  explicit RanksRun(const RunConfig& run_config)
      : config(run_config), ranks(static_cast<std::size_t>(config.parallel.pp * config.parallel.dp)) {}

  // A rank's whole life.
  void live(Rank rank, const Doubles& on) {
    RankRun& own = ranks[static_cast<std::size_t>(rank)];
    const auto connect = [&] {
      Result<std::unique_ptr<processes::Store>> joined =
          processes::Store::join({"127.0.0.1", store->port(), {}}, 20.0);
      EXPECT_TRUE(joined) << joined.error().text();
      return std::move(*joined);
    };
    TurnChannel channel(
        baton, processes::store_channel(connect(), "run", rank, static_cast<int>(ranks.size()), &own.status));
    StoreIds ids(*store);
    CudaRunOptions run;
    const std::string file = PLUMBLINE_DOUBLES;
    run.libraries = {.cudart = file, .driver = file, .nccl = file, .nvtx = file};
    run.timeout = 1000000000;
    run.one = OneRank{rank, rank, 0, &ids, &own.status, {}};
    run.make_clock = [&](const Libraries&) { return std::make_unique<TurnClock>(baton, steady_clock(0)); };
    Trainer::Options options;
    options.driver = driver_of(run);
    options.channel = &channel;
    baton.take();
    on.polls_step(1);
    if (std::unique_ptr<Trainer> trainer = test::make_trainer(config, std::move(options));
        trainer != nullptr) {
      own.outcome = trainer->run();
      own.record = trainer->record();
    }
    baton.pass();
  }

  void start() {
    Result<std::unique_ptr<processes::Store>> served = processes::Store::serve(0);
    ASSERT_TRUE(served) << served.error().text();
    store = std::move(*served);
    const Doubles& on = doubles(static_cast<int>(ranks.size()));
    for (Rank rank = 0; rank < static_cast<Rank>(ranks.size()); ++rank)
      threads.emplace_back([this, rank, &on] { live(rank, on); });
  }
  void join() {
    for (std::thread& thread : threads) thread.join();
  }

  // Until nothing has moved for a while although all are watched, as a watchdog sees it.
  bool stands_still() const {
    std::uint64_t seen = 0;
    int quiet = 0;
    for (int look = 0; look < 600 && quiet < 20; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      std::uint64_t now = 0;
      bool watched = true;
      for (const RankRun& rank : ranks) {
        now += rank.status.progress();
        watched = watched && rank.status.watched();
      }
      quiet = watched && now == seen ? quiet + 1 : 0;
      seen = now;
    }
    return quiet == 20;
  }
  std::map<Rank, std::string> words() const {
    std::map<Rank, std::string> out;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      out[static_cast<Rank>(rank)] = processes::position_json(ranks[rank].status, static_cast<Rank>(rank));
    return out;
  }

  RunConfig config;
  Baton baton;
  std::unique_ptr<processes::Store> store;
  std::vector<RankRun> ranks;
  std::vector<std::thread> threads;
};

void expect_equal_runs(const RunConfig& config) {
  const std::unique_ptr<Trainer> simulated = test::make_trainer(config);
  ASSERT_NE(nullptr, simulated);
  const Result<TrainOutcome> expected = simulated->run();
  ASSERT_TRUE(expected) << expected.error().text();
  RanksRun run(config);
  run.start();
  run.join();
  std::vector<RunRecord> records;
  for (RankRun& rank : run.ranks) {
    ASSERT_TRUE(rank.outcome && *rank.outcome)
        << (rank.outcome ? rank.outcome->error().text() : "no trainer");
    EXPECT_EQ(expected->exit_code, (*rank.outcome)->exit_code);
    records.push_back(std::move(rank.record));
  }
  for (const RunRecord& record : records) {
    ASSERT_EQ(simulated->record().steps.size(), record.steps.size());
    for (std::size_t i = 0; i < record.steps.size(); ++i) {
      StepRow row = record.steps[i];
      row.begin = simulated->record().steps[i].begin;
      row.end = simulated->record().steps[i].end;
      EXPECT_EQ(simulated->record().steps[i], row) << "step " << i;
    }
  }
  const Result<RunRecord> merged = merge_records(records);
  ASSERT_TRUE(merged) << merged.error().text();
  EXPECT_EQ(simulated->record().events.size(), merged->events.size());
  EXPECT_EQ("cuda-nccl", merged->backend);
}

RunConfig short_config(const Layout& layout, Precision precision) {
  RunConfig config = test::small_config(layout, precision);
  config.train.iterations = 3;
  config.train.eval_iterations = 1;
  return config;
}

TEST(CudaRanks, ADriverARankGivesTheSimulatorsNumbers) {
  expect_equal_runs(short_config({ScheduleKind::kOneFOneB, 2, 1, 4, 1}, Precision::kFp32));
  expect_equal_runs(short_config({ScheduleKind::kOneFOneB, 2, 1, 4, 2}, Precision::kBf16));
  expect_equal_runs(short_config({ScheduleKind::kInterleaved, 4, 2, 4, 1}, Precision::kFp32));
}

TEST(CudaRanks, AnInjectedOverflowIsSkippedOnAllRanks) {
  RunConfig config = short_config({ScheduleKind::kOneFOneB, 2, 1, 4, 2}, Precision::kFp16);
  config.faults.overflow.push_back({1, 2});
  expect_equal_runs(config);
}

// No rank knows where the others stand; put together, their words are the simulator's circle. Then each lets go.
TEST(CudaRanks, AStandstillIsTheSimulatorsCircle) {
  const std::string csv = testing::TempDir() + "cuda_ranks_dead.csv";
  ASSERT_TRUE(write_file(csv,
                         "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                         "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"));
  RunConfig config = short_config({ScheduleKind::kCsv, 2, 1, 2, 1}, Precision::kFp32);
  config.schedule.csv = csv;
  config.schedule.comm_map = CommMap::kOne;
  config.train.eval_iterations = 0;
  const std::unique_ptr<Trainer> simulated = test::make_trainer(config);
  ASSERT_NE(nullptr, simulated);
  const Result<TrainOutcome> expected = simulated->run();
  ASSERT_TRUE(expected) << expected.error().text();
  ASSERT_EQ(1u, expected->findings.size());

  RanksRun run(config);
  run.start();
  EXPECT_TRUE(run.stands_still());
  const auto family = find_model(config.model.name);
  ASSERT_TRUE(family);
  const Result<RunConfig> valid = validate(config, {}, Purpose::kRun);
  ASSERT_TRUE(valid);
  const Result<RunPlan> plan = plan_run(*valid, (*family)->sizes(*valid), {});
  ASSERT_TRUE(plan) << plan.error().text();
  const auto stall = processes::explain_stall(*valid, *plan, default_model(), run.words());
  std::vector<std::string> recorders;
  for (const RankRun& rank : run.ranks)
    recorders.push_back(
        processes::flight_recorder_json(rank.status, static_cast<Rank>(recorders.size()), "nccl"));
  for (RankRun& rank : run.ranks) rank.status.give_up();
  run.join();

  ASSERT_TRUE(stall) << stall.error().text();
  ASSERT_TRUE(stall->stall.deadlock);
  const auto circle = [](const Finding& finding) {
    std::vector<std::string> operations;
    for (const WaitEdge& edge : finding.cycle)
      operations.push_back(std::to_string(edge.from.rank) + " " + edge.from.text + ": " + edge.reason);
    return operations;
  };
  EXPECT_EQ(4u, circle(expected->findings.front()).size());
  EXPECT_EQ(circle(expected->findings.front()), circle(*stall->stall.deadlock));
  for (const RankRun& rank : run.ranks) {
    ASSERT_TRUE(rank.outcome);
    ASSERT_FALSE(*rank.outcome);
    EXPECT_EQ("the run was given up", rank.outcome->error().message);
  }
  // Rank 1 has had one message and waits for the second, which has begun; its host has enqueued what comes after it.
  const auto entries = nlohmann::json::parse(recorders[1])["entries"];
  ASSERT_LE(3u, entries.size()) << recorders[1];
  EXPECT_EQ("completed", entries[0]["state"]);
  EXPECT_LT(0, entries[0]["time_discovered_completed_ns"]);
  EXPECT_EQ("started", entries[1]["state"]) << recorders[1];
  EXPECT_EQ("nccl:recv 1<-0", entries[1]["profiling_name"]);
  EXPECT_EQ("scheduled", entries[2]["state"]);
  EXPECT_EQ("nccl:send 1->0", entries[2]["profiling_name"]);
}

// Rank 1 never comes: rank 0 makes communicators until it is told that the run is given up.
TEST(CudaRanks, CommunicatorsThatDoNotComeAreWatched) {
  const RunConfig config = short_config({ScheduleKind::kOneFOneB, 2, 1, 4, 1}, Precision::kFp32);
  RanksRun run(config);
  Result<std::unique_ptr<processes::Store>> served = processes::Store::serve(0);
  ASSERT_TRUE(served) << served.error().text();
  run.store = std::move(*served);
  const Doubles& on = doubles(2);
  std::thread alone([&] { run.live(0, on); });
  RankStatus& status = run.ranks[0].status;
  for (int i = 0; i < 500 && !status.watched(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_THAT(status.position().awaits, testing::HasSubstr("makes communicators: "));
  EXPECT_FALSE(status.position().in_step);
  status.give_up();
  alone.join();
  ASSERT_TRUE(run.ranks[0].outcome);
  ASSERT_FALSE(*run.ranks[0].outcome);
  EXPECT_EQ("the run was given up", run.ranks[0].outcome->error().message);
}

TEST(StoreIds, AnIdArrivesAndGoes) {
  Result<std::unique_ptr<processes::Store>> served = processes::Store::serve(0);
  ASSERT_TRUE(served) << served.error().text();
  Result<std::unique_ptr<processes::Store>> other =
      processes::Store::join({"127.0.0.1", (*served)->port(), {}}, 20.0);
  ASSERT_TRUE(other) << other.error().text();
  StoreIds first(**served), second(**other);
  UniqueId id{};
  for (std::size_t i = 0; i < sizeof id.internal; ++i) id.internal[i] = static_cast<char>(i * 3);
  EXPECT_FALSE(second.look_up("pp[0](0,1)#0").value());
  ASSERT_TRUE(first.publish("pp[0](0,1)#0", id));
  EXPECT_TRUE(first.look_up("pp[0](0,1)#0").value()) << "at once where it was published";
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::optional<UniqueId> got = second.look_up("pp[0](0,1)#0").value();
  ASSERT_TRUE(got);
  EXPECT_EQ(0, std::memcmp(id.internal, got->internal, sizeof id.internal));
  EXPECT_FALSE(second.look_up("pp[0](0,1)#1").value());
  ASSERT_TRUE(first.retire("pp[0](0,1)#0"));
  EXPECT_FALSE(second.look_up("pp[0](0,1)#0").value());
  ASSERT_TRUE((*served)->set("nccl/short", "x"));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(second.look_up("short"));
}

TEST(CudaDevices, ARankTakesTheDeviceOfItsPlace) {
  const std::string file = PLUMBLINE_DOUBLES;
  const LibraryPaths paths{.cudart = file, .driver = file, .nccl = file, .nvtx = file};
  doubles(4);
  EXPECT_EQ(3, device_of_rank(3, 4, true, paths)->device);
  EXPECT_EQ(Level::kNccl, device_of_rank(3, 4, true, paths)->level);
  const auto outside = device_of_rank(5, 2, true, paths);
  ASSERT_FALSE(outside);
  EXPECT_THAT(outside.error().message, testing::HasSubstr("local rank 5 has no device: there are 4"));
  doubles(1);
  EXPECT_EQ(0, device_of_rank(3, 4, true, paths)->device) << "a process that sees its own device alone";
  const auto few = device_of_rank(3, 4, false, paths);
  ASSERT_FALSE(few);
  EXPECT_THAT(few.error().message, testing::HasSubstr("there are 1 for 4 ranks"));
}

}  // namespace
}  // namespace plumbline::cuda

#endif
