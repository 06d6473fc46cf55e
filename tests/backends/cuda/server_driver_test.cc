// The driver with a process a rank, on the doubles' server: each process runs its own CudaDriver, and all together do
// what the simulator does.
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "engine/program/graphs.h"
#include "props/faults.h"
#include "props/generators.h"
#include "tests/backends/cuda/driven.h"
#include "tests/backends/cuda/programs.h"
#include "tests/backends/cuda/server_processes.h"

namespace plumbline::cuda {
namespace {

// Ids in files of a folder, whose names appear when they are whole.
class FileIds final : public IdExchange {
 public:
  explicit FileIds(std::string folder) : folder_(std::move(folder)) {}
  Status publish(const std::string& key, const UniqueId& id) override {
    const std::string name = file_of(key);
    std::ofstream(name + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
    std::filesystem::rename(name + ".new", name);
    return {};
  }
  Result<std::optional<UniqueId>> look_up(const std::string& key) override {
    std::ifstream file(file_of(key), std::ios::binary);
    UniqueId id{};
    if (!file.read(id.internal, sizeof id.internal)) return std::optional<UniqueId>();
    return std::optional<UniqueId>(id);
  }

 private:
  std::string file_of(const std::string& key) const {
    return fmt::format("{}/{:016x}", folder_, hash64(key.data(), key.size()));
  }
  std::string folder_;
};

// What one rank did, in words: decisions, what its kernels read, its memory, and the order of each of its streams.
std::string told_by(const std::vector<SimStep>& steps, std::size_t rank, const TraceWorker& worker,
                    const RunRecord& record) {
  std::string out;
  for (const SimStep& step : steps) {
    out += step.completed ? "completed" : "stands still";
    for (const std::uint8_t decision : step.decisions.at(rank)) out += fmt::format(" {}", decision);
    out += '\n';
  }
  for (const TraceWorker::Line& line : worker.lines)
    out += fmt::format("kernel {} of {} reads {:016x}\n", line.kernel, line.microbatch, line.read);
  out += fmt::format("memory {:016x}\n", worker.digest());
  for (const MemoryPoint& point : record.memory) {
    if (point.rank == static_cast<Rank>(rank)) out += fmt::format("live {}\n", point.live);
  }
  for (const auto& [place, operations] : order_of(record)) {
    const auto& [step, own, stream] = place;
    if (own != static_cast<Rank>(rank)) continue;
    for (const auto& [label, microbatch, peer] : operations)
      out += fmt::format("step {} stream {}: {} of {} with {}\n", step, stream, label, microbatch, peer);
  }
  return out;
}

std::vector<std::string> told_by_simulator(const LinkedProgram& linked, const RunConfig& config, int steps) {
  std::vector<TraceWorker> workers(linked.program->threads.size());
  std::vector<Worker*> pointers;
  for (TraceWorker& worker : workers) pointers.push_back(&worker);
  SimOptions options;
  options.model = model_of(config.sim);
  options.time = TimeModel(config);
  Simulator simulator(linked, options, pointers);
  RunRecord record = record_for(*linked.program);
  std::vector<SimStep> outcomes;
  for (int s = 0; s < steps; ++s) outcomes.push_back(simulator.run_step(s, record).value());
  std::vector<std::string> out;
  for (std::size_t r = 0; r < workers.size(); ++r) out.push_back(told_by(outcomes, r, workers[r], record));
  return out;
}

// In a child: one rank, from its own driver.
void drive(const DoubleServer& server, const std::string& folder, const LinkedProgram& linked,
           const RunConfig& config, std::uint32_t rank, int steps, Nanoseconds timeout,
           const std::string& output) {
  const Doubles& on = called_doubles(server.socket);
  TraceWorker worker;
  TimedKernels kernels(on, worker, TimeModel(config));
  const LocalRank local{rank, {on.libraries, static_cast<int>(rank)}};
  FileIds ids(folder);
  NcclTransport transport({local}, ids);
  CudaBackend backend({{local, &kernels}}, transport, {});
  const std::unique_ptr<HostClock> clock = steady_clock();
  CudaDriver driver(backend, *clock, {timeout, model_of(config.sim)});
  const Status ready = driver.set_program(linked);
  ASSERT_TRUE(ready) << ready.error().text();
  RunRecord record = record_for(*linked.program);
  std::vector<SimStep> outcomes;
  for (int s = 0; s < steps; ++s) {
    Result<SimStep> step = driver.run_step(s, record);
    ASSERT_TRUE(step) << step.error().text();
    outcomes.push_back(std::move(*step));
    if (!outcomes.back().completed) break;
  }
  std::ofstream(output) << told_by(outcomes, rank, worker, record);
}

// A process a rank; what each wrote.
std::vector<std::string> told_by_processes(const LinkedProgram& linked, const RunConfig& config, int steps,
                                           Nanoseconds timeout, std::vector<Finding>& found) {
  const std::size_t ranks = linked.program->threads.size();
  std::string folder = "/tmp/plumbline-test.XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  DoubleServer server(static_cast<int>(ranks), config_toml(config));
  {
    Processes processes;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      processes.start([&, r] {
        drive(server, folder, linked, config, r, steps, timeout, fmt::format("{}/rank{}", folder, r));
      });
    }
    processes.finish();
  }
  found = server.finish();
  std::vector<std::string> out;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::ifstream file(fmt::format("{}/rank{}", folder, r));
    out.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::filesystem::remove_all(folder);
  return out;
}

constexpr Nanoseconds kSecond = 1000000000;

TEST(CudaDriverInProcesses, ExecutesWhatTheSimulatorDoes) {
  struct Case {
    ScheduleKind kind;
    int pp, dp, chunks;
    Precision precision;
    bool graphs = false;  // captured in the first step, launched in the others
  };
  for (const Case& row : {Case{ScheduleKind::kOneFOneB, 2, 1, 1, Precision::kFp32},
                          Case{ScheduleKind::kOneFOneB, 3, 1, 1, Precision::kFp16},
                          Case{ScheduleKind::kOneFOneB, 2, 2, 1, Precision::kBf16},
                          Case{ScheduleKind::kInterleaved, 2, 1, 2, Precision::kFp32},
                          Case{ScheduleKind::kOneFOneB, 2, 1, 1, Precision::kFp16, true},
                          Case{ScheduleKind::kGpipe, 2, 2, 1, Precision::kFp32, true}}) {
    const RunConfig config = config_of(row.kind, row.pp, row.dp, row.chunks, row.precision);
    SCOPED_TRACE(props::config_words(config));
    const Program plain = program_of(config).value();
    const Program program = row.graphs ? with_graphs(plain).value() : plain;
    const LinkedProgram linked = link_program(program).value();
    const int steps = row.graphs ? 3 : 2;
    std::vector<Finding> found;
    EXPECT_EQ(told_by_processes(linked, config, steps, kDeadline / 2 * kSecond, found),
              told_by_simulator(linked, config, steps));
    EXPECT_TRUE(found.empty()) << found.front().why;
    if (::testing::Test::HasFailure()) return;
  }
}

// Each driver gives up by itself, aborts and drains.
TEST(CudaDriverInProcesses, StandsStillWhereTheSimulatorDoes) {
  const RunConfig config = config_of(ScheduleKind::kOneFOneB, 2, 1, 1, Precision::kFp32);
  const Program whole = program_of(config).value();
  const auto stands_still = testing::Contains(testing::HasSubstr("stands still"));
  std::optional<Program> damaged;
  std::optional<LinkedProgram> linked;
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    const auto fault = props::inject(whole, props::FaultKind::kDrop, seed);
    if (!fault) continue;
    damaged = fault->program;
    linked = link_program(*damaged).value();
    if (testing::Matches(stands_still)(told_by_simulator(*linked, config, 1))) break;
  }
  ASSERT_THAT(told_by_simulator(linked.value(), config, 1), stands_still);
  std::vector<Finding> found;
  EXPECT_THAT(told_by_processes(*linked, config, 1, kSecond / 2, found), stands_still);
}

}  // namespace
}  // namespace plumbline::cuda
