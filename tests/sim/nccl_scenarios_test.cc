// The simulator against two independent reference models: every line of tests/oracles/nccl that the Program
// can express, in all eight modes. Not expressible: several host threads a rank, communicator creation as a
// host operation, and the budget of operations a kernel of old NCCL versions (N14).
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/sim/tiny_program.h"
#include "tests/support/oracle.h"

namespace plumbline::test {
namespace {

using Json = nlohmann::json;

// Empty: the line can be translated; else the reason why not.
std::string not_expressible(const Json& line) {
  if (line.contains("model_options") && line["model_options"].contains("max_ops_per_kernel"))
    return "N14 kernel budget";
  std::set<int> ranks;
  for (const Json& thread : line["threads"]) {
    if (!ranks.insert(thread["rank"].get<int>()).second) return "several host threads a rank";
    for (const Json& op : thread["host_ops"]) {
      if (op["host"] == "comm_init") return "communicator creation";
    }
  }
  return {};
}

TinyOp translate_op(const Json& op, const std::map<std::string, int>& comms,
                    std::map<std::string, int>& labels) {
  static const std::map<std::string, EndpointKind> kKinds = {
      {"send", EndpointKind::kSend},
      {"recv", EndpointKind::kRecv},
      {"all_reduce", EndpointKind::kAllReduce},
      {"reduce", EndpointKind::kReduce},
      {"broadcast", EndpointKind::kBroadcast},
      {"all_gather", EndpointKind::kAllGather},
      {"reduce_scatter", EndpointKind::kReduceScatter}};
  TinyOp out;
  const auto kind = op["op"].get<std::string>();
  // There is no barrier among our operations: an all-reduce with a reduction nothing else here uses stands
  // for it.
  const bool barrier = kind == "barrier";
  out.kind = barrier ? EndpointKind::kAllReduce : kKinds.at(kind);
  if (barrier) out.reduce = ReduceOp::kMax;
  out.comm = comms.at(op["comm"].get<std::string>());
  out.bytes = op["bytes"].get<Bytes>();
  if (op.contains("peer")) out.peer = op["peer"].get<Rank>();
  if (op.contains("root")) out.peer = op["root"].get<Rank>();
  if (op.contains("label") && op["label"].is_string()) {
    out.label =
        labels.try_emplace(op["label"].get<std::string>(), static_cast<int>(labels.size()) + 1).first->second;
  }
  return out;
}

void translate_host_op(const Json& op, Rank rank, const std::map<std::string, int>& comms,
                       std::map<std::string, int>& labels, TinyProgram& out) {
  const auto what = op["host"].get<std::string>();
  const int stream = op.contains("stream") ? out.stream(op["stream"].get<std::string>()) : 0;
  const unsigned event =
      op.contains("event") ? static_cast<unsigned>(out.event(rank, op["event"].get<std::string>())) : 0;
  const auto add = [&](ItemOp code) {
    out.add(rank, code, kNoMicrobatch, 0, event, static_cast<unsigned>(stream));
  };
  if (what == "group") {
    std::vector<TinyOp> ops;
    for (const Json& entry : op["ops"]) ops.push_back(translate_op(entry, comms, labels));
    out.group(rank, stream, ops);
  } else if (what == "launch") {
    out.launch(rank, stream);
  } else if (what == "record") {
    add(ItemOp::kRecord);
  } else if (what == "wait") {
    add(ItemOp::kWaitEvent);
  } else if (what == "sync_event") {
    add(ItemOp::kSyncEvent);
  } else if (what == "sync_stream") {
    add(ItemOp::kSyncStream);
  } else if (what == "sync_device") {
    add(ItemOp::kSyncDevice);
  } else {
    ADD_FAILURE() << "unknown host operation " << what;
  }
}

Program translate(const Json& line) {
  int ranks = 1;
  for (const Json& thread : line["threads"]) ranks = std::max(ranks, thread["rank"].get<int>() + 1);
  for (const Json& members : line["communicators"]) {
    for (const Json& member : members) ranks = std::max(ranks, member.get<int>() + 1);
  }
  TinyProgram out(ranks);
  std::map<std::string, int> comms, labels;
  for (const auto& [name, members] : line["communicators"].items()) {
    comms[name] = out.comm(name, members.get<std::vector<Rank>>());
  }
  for (const Json& thread : line["threads"]) {
    for (const Json& op : thread["host_ops"])
      translate_host_op(op, thread["rank"].get<Rank>(), comms, labels, out);
  }
  return out.finish();
}

NcclModel model_of_mode(const std::string& mode, bool blocking) {
  NcclModel model;
  model.launch_blocking = blocking || mode.find("launch_blocking") != std::string::npos;
  if (mode.find("strict") != std::string::npos) model.cross = CrossComm::kStrict;
  if (mode.find("cold") != std::string::npos) model.connect = Connect::kCold;
  if (mode.find("eager") != std::string::npos) model.send = SendCompletion::kEager;
  if (mode.find("eager_2MiB") != std::string::npos) model.eager_bytes = Bytes{2} << 20;
  if (mode.find("eager_64MiB") != std::string::npos) model.eager_bytes = Bytes{64} << 20;
  if (!blocking) EXPECT_EQ(model.name(), mode);
  return model;
}

std::set<std::string> words_of(const std::string& verdict) {
  std::set<std::string> words;
  std::size_t at = 0;
  while (at <= verdict.size()) {
    const std::size_t end = std::min(verdict.find('+', at), verdict.size());
    words.insert(verdict.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::set<std::string> words_of(const ModeVerdict& verdict) {
  std::set<std::string> words;
  if (!verdict.completes) words.insert("DEADLOCK");
  if (has(verdict, FindingKind::kSizeMismatch)) words.insert("BYTES");
  if (has(verdict, FindingKind::kLabelMismatch)) words.insert("WRONGDATA");
  if (has(verdict, FindingKind::kCollectiveMismatch)) words.insert("COLLMISMATCH");
  for (const Finding& finding : verdict.findings) {
    if (finding.kind != FindingKind::kCrossWired) continue;
    words.insert("CROSSWIRED");
    if (finding.why.find("truncated") != std::string::npos) words.insert("INTERNAL_ERROR(truncated)");
  }
  if (words.empty()) words.insert("OK");
  return words;
}

// A deadlock explains itself: a circle whose edges join, or operations that wait for what never comes.
void expect_explained(const ModeVerdict& verdict, const std::string& where) {
  for (const Finding& finding : verdict.findings) {
    if (finding.kind != FindingKind::kDeadlock) continue;
    EXPECT_FALSE(finding.operations.empty()) << where;
    EXPECT_FALSE(finding.why.empty()) << where;
    for (std::size_t i = 0; i < finding.cycle.size(); ++i) {
      EXPECT_EQ(finding.cycle[i].to.text, finding.cycle[(i + 1) % finding.cycle.size()].from.text) << where;
    }
    return;
  }
  EXPECT_TRUE(verdict.completes) << where << ": a deadlock without its finding";
}

int compare_line(const Json& line) {
  const Program program = translate(line);
  const bool blocking =
      line.contains("model_options") && line["model_options"].value("launch_blocking", false);
  int modes = 0;
  for (const auto& [mode, verdict] : line["verdict"].items()) {
    const std::string where = line["id"].get<std::string>() + " " + mode;
    const ModeVerdict ours = run_tiny(program, model_of_mode(mode, blocking));
    EXPECT_EQ(words_of(ours), words_of(verdict.get<std::string>())) << where;
    expect_explained(ours, where);
    ++modes;
  }
  return modes;
}

TEST(NcclScenarios, EveryExpressibleReportHasTheOraclesVerdict) {
  std::map<std::string, std::string> skipped;
  int modes = 0;
  const int lines = for_each_line("oracles/nccl/scenarios.jsonl", [&](const Json& line) {
    const std::string reason = not_expressible(line);
    if (reason.empty()) {
      modes += compare_line(line);
    } else {
      skipped[line["id"].get<std::string>()] = reason;
    }
  });
  EXPECT_EQ(lines, 40);
  const std::map<std::string, std::string> expected = {{"first_batch_subset", "communicator creation"},
                                                       {"init_cycle", "communicator creation"},
                                                       {"persistent_kernel_init", "communicator creation"},
                                                       {"plan_split_ragged_2.28.9", "N14 kernel budget"}};
  EXPECT_EQ(skipped, expected);
  EXPECT_EQ(modes, 8 * (40 - static_cast<int>(expected.size())));
}

TEST(NcclScenarios, RandomProgramsHaveTheOraclesVerdict) {
  int compared = 0, modes = 0;
  const int lines = for_each_line("oracles/nccl/random_programs.jsonl.gz", [&](const Json& line) {
    if (!not_expressible(line).empty() || HasFailure()) return;
    ++compared;
    modes += compare_line(line);
  });
  EXPECT_EQ(lines, 4000);
  EXPECT_EQ(compared, 3494);
  EXPECT_EQ(modes, 8 * compared);
}

}  // namespace
}  // namespace plumbline::test
