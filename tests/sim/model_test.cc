// The knobs of the model, one by one: what each is called, what configuration sets it, what it changes, and how a
// hang under it is explained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/config/option_text.h"
#include "sim/rules.h"
#include "sim/scenario/examine.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

ModeVerdict examine(std::string_view lines, std::string_view mode) {
  NcclRule rule;
  rule.number = "test";
  rule.example.program = lines;
  const auto verdict = examine_scenario(example_scenario(rule), {model_named(mode).value()});
  EXPECT_TRUE(verdict) << verdict.error().text();
  return verdict ? verdict->modes.front() : ModeVerdict{};
}
std::string value(std::string_view lines, std::string_view mode) {
  return reference_value(examine(lines, mode));
}

const Finding& deadlock(const ModeVerdict& verdict) {
  static const Finding kNone;
  for (const Finding& finding : verdict.findings) {
    if (finding.kind == FindingKind::kDeadlock) return finding;
  }
  ADD_FAILURE() << "no deadlock";
  return kNone;
}

// `count` sends of `size`, of which the receiver waits for a word that comes after them.
std::string run_ahead(int count, const std::string& size) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += "0: send C to 1 " + size + " on S\n";
  lines += "0: send D to 1 8 on S\n1: recv D from 0 8 on T\n1: sync_stream T";
  for (int i = 0; i < count; ++i) lines += "\n1: recv C from 0 " + size + " on S";
  return lines;
}

TEST(Model, NamesReadBack) {
  for (const char* name :
       {"rendezvous", "rendezvous+registered+strict+cold", "eager_1000B", "eager_2MiB_x8", "eager_h100",
        "eager_ib_nodes_of_8+launch_order", "always_eager+queues_4+sms_132", "rendezvous+sms_16_by_4",
        "rendezvous+cold+cold_collectives+group_order_by_call", "rendezvous+batched+split_63",
        "rendezvous+batched_across+split_restart_2+launch_blocking+lazy_modules+emulate_mismatch"}) {
    const auto model = model_named(name);
    ASSERT_TRUE(model) << name;
    EXPECT_EQ(model->name(), name);
  }
  for (const char* bad :
       {"eager_2MiB_x0", "eager_same", "eager_h100_x2", "rendezvous+queues_0", "rendezvous+queues_",
        "rendezvous+sms_1_by_", "rendezvous+strict+launch_order", "rendezvous+split_2+split_3",
        "rendezvous+batched+batched_across", "rendezvous+split_restart_", "rendezvous+cold+cold"})
    EXPECT_FALSE(model_named(bad)) << bad;
}

TEST(Model, ConfigurationSetsEveryKnob) {
  SimConfig config;
  EXPECT_EQ(model_of(config), default_model());
  ASSERT_TRUE(option_text::SendText::read("eager:2MiB:8", config));
  EXPECT_EQ(model_of(config).name(), "eager_2MiB_x8");
  ASSERT_TRUE(option_text::SendText::read("eager:h100", config));
  config.ranks_per_node = 8;
  EXPECT_EQ(model_of(config).name(), "eager_h100_nodes_of_8");
  config = SimConfig{};
  config.registered = true;
  config.cross = CrossComm::kLaunchOrder;
  config.hw_queues = 1;
  config.sms = 132;
  config.channels = 4;
  config.connect = Connect::kCold;
  config.connect_collectives = CollectiveConnect::kCold;
  config.group_order = GroupOrder::kCall;
  ASSERT_TRUE(option_text::ProgressText::read("batched+split-restart:63", config));
  config.launch_blocking = config.lazy_modules = true;
  config.mismatch = Mismatch::kEmulate;
  EXPECT_EQ(
      model_of(config).name(),
      "rendezvous+registered+launch_order+queues_1+sms_132_by_4+cold+cold_collectives+group_order_by_call+"
      "batched+split_restart_63+launch_blocking+lazy_modules+emulate_mismatch");
}

TEST(Model, ReleasesDecideWhatSaysAuto) {
  const auto name = [](NcclVersion version, Connect connect) {
    SimConfig config;
    config.nccl = version;
    config.connect = connect;
    return model_of(config).name();
  };
  EXPECT_EQ(name(NcclVersion::kNone, Connect::kCold), "rendezvous+cold");
  EXPECT_EQ(name(NcclVersion::k2_18, Connect::kCold),
            "rendezvous+cold+group_order_by_call+batched_across+split_restart_63");
  EXPECT_EQ(name(NcclVersion::k2_22, Connect::kCold),
            "rendezvous+cold+cold_collectives+group_order_by_call+batched_across+split_restart_63");
  EXPECT_EQ(name(NcclVersion::k2_26, Connect::kWarm), "rendezvous+batched_across+split_restart_63");
  EXPECT_EQ(name(NcclVersion::k2_28_9, Connect::kCold),
            "rendezvous+cold+cold_collectives+batched_across+split_restart_63");
  EXPECT_EQ(name(NcclVersion::k2_29_2, Connect::kWarm), "rendezvous+batched+split_restart_63");
  EXPECT_EQ(name(NcclVersion::k2_29_7, Connect::kWarm), "rendezvous+batched+split_63");
  EXPECT_EQ(name(NcclVersion::k2_30, Connect::kWarm), name(NcclVersion::k2_29_7, Connect::kWarm));
  SimConfig given;
  given.nccl = NcclVersion::k2_28_9;
  ASSERT_TRUE(option_text::ProgressText::read("documented", given));
  given.connect = Connect::kCold;
  given.connect_collectives = CollectiveConnect::kWarm;
  EXPECT_EQ(model_of(given).name(), "rendezvous+cold");
}

TEST(Model, ProgressTextReadsBack) {
  SimConfig config;
  for (const char* text : {"auto", "documented", "batched", "batched-across", "split:63", "split-restart:2",
                           "batched+split:7", "batched-across+split-restart:1"}) {
    ASSERT_TRUE(option_text::ProgressText::read(text, config)) << text;
    EXPECT_EQ(option_text::ProgressText::print(config), text);
  }
  for (const char* bad :
       {"", "split", "split:0", "split:x", "batched:8", "auto+batched", "split:1+split:2", "fast"})
    EXPECT_FALSE(option_text::ProgressText::read(bad, config)) << bad;
}

TEST(Model, N36LimitsOfMachines) {
  const auto most = [](const char* mode, const std::string& size) {
    int count = 0;
    while (count < 20 && value(run_ahead(count + 1, size), mode) == "OK") ++count;
    return count;
  };
  EXPECT_EQ(most("eager_h100", "1KiB"), 8);
  EXPECT_EQ(most("eager_h100", "8MiB"), 8);
  EXPECT_EQ(most("eager_h100", "16MiB"), 4);
  EXPECT_EQ(most("eager_h100", "32MiB"), 2);
  EXPECT_EQ(most("eager_h100", "64MiB"), 1);
  EXPECT_EQ(most("eager_h100", "67108865"), 0);
  EXPECT_EQ(most("eager_a100", "8MiB"), 4);
  EXPECT_EQ(most("eager_pcie", "1MiB"), 1);
  EXPECT_EQ(most("eager_pcie", "2MiB"), 0);
  EXPECT_EQ(most("eager_ib", "2MiB"), 1);
  EXPECT_EQ(most("eager_ib", "64KiB"), 8);
  EXPECT_EQ(most("eager_h100_nodes_of_1", "2MiB"), 1);
  EXPECT_EQ(most("eager_64MiB_x3", "8"), 3);
  EXPECT_EQ(most("eager_16B", "8"), 2);
  EXPECT_EQ(most("always_eager", "1GiB"), 20);
  EXPECT_EQ(most("always_eager+registered", "8"), 0);
  // A third rank in the communicator: its members share the channels.
  const auto with_third = [&](int count, const std::string& size) {
    return value(run_ahead(count, size) + "\n2: launch on S", "eager_h100");
  };
  EXPECT_EQ(with_third(1, "16MiB"), "OK");
  EXPECT_EQ(with_third(1, "32MiB"), "DEADLOCK");
  EXPECT_EQ(with_third(4, "4MiB"), "OK");
  EXPECT_EQ(with_third(5, "4MiB"), "DEADLOCK");
}

constexpr const char* kOpposite =
    "0: all_reduce C 8 on S\n0: all_reduce D 8 on T\n1: all_reduce D 8 on T\n1: all_reduce C 8 on S";

TEST(Model, N45ProcessorsGoToTheFirstThatFits) {
  EXPECT_EQ(value(kOpposite, "rendezvous+sms_2_by_1"), "OK");
  const ModeVerdict verdict = examine(kOpposite, "rendezvous+sms_3_by_2");
  EXPECT_FALSE(verdict.completes);
  const Finding& finding = deadlock(verdict);
  EXPECT_EQ(finding.cycle.size(), 4U);
  EXPECT_THAT(rules_behind(finding), testing::Contains("N45"));
  // A kernel larger than the device is as large as the device.
  EXPECT_EQ(value("0: send C to 1 1GiB on S\n1: recv C from 0 1GiB on S", "rendezvous+sms_2"), "OK");
  // By size: 16 channels for 1 MiB, 1 for 8 bytes.
  EXPECT_EQ(NcclModel{}.channels_of(8), 1);
  EXPECT_EQ(NcclModel{}.channels_of(Bytes{1} << 20), 16);
  EXPECT_EQ(NcclModel{}.channels_of(Bytes{1} << 30), 32);
  // Processors that are given back serve the next in line.
  std::string many;
  for (int i = 0; i < 6; ++i) {
    many +=
        "0: send C to 1 8 on S\n0: all_reduce D 8 on T\n1: recv C from 0 8 on S\n1: all_reduce D 8 on T\n";
  }
  many.pop_back();
  EXPECT_EQ(value(many, "rendezvous+sms_1"), "OK");
}

TEST(Model, N47OnlyStartsAreOrdered) {
  EXPECT_EQ(value(kOpposite, "rendezvous+strict"), "DEADLOCK");
  EXPECT_EQ(value(kOpposite, "rendezvous+launch_order"), "OK");
}

TEST(Model, N48AnEventWaitHoldsBackItsQueue) {
  // Stream T of rank 0 waits for an event behind the receive; the send on U is enqueued after that wait.
  const std::string_view lines =
      "0: recv C from 1 8 on S\n0: record e on S\n0: wait e on T\n0: send D to 1 8 on U\n"
      "1: recv D from 0 8 on U\n1: sync_stream U\n1: send C to 0 8 on S";
  EXPECT_EQ(value(lines, "rendezvous"), "OK");
  EXPECT_EQ(value(lines, "rendezvous+queues_1"), "DEADLOCK");
  EXPECT_EQ(value(lines, "rendezvous+queues_8"), "OK");
  EXPECT_THAT(rules_behind(deadlock(examine(lines, "rendezvous+queues_1"))), testing::Contains("N48"));
  // What has started no longer holds anything back.
  EXPECT_EQ(value(kOpposite, "rendezvous+queues_1"), "OK");
}

TEST(Model, N51LoadedCodeStaysLoaded) {
  const std::string_view again =
      "0: launch on T\n0: recv C from 1 8 on S\n0: launch on T\n0: send D to 1 8 on T\n1: recv D from 0 8 on "
      "T\n"
      "1: sync_stream T\n1: send C to 0 8 on S";
  EXPECT_EQ(value(again, "rendezvous+lazy_modules"), "OK");
}

TEST(Model, N3OneMeetingACommunicator) {
  EXPECT_EQ(
      value("0: all_reduce C 8 on S\n0: all_reduce C 8 on S\n0: send D to 1 8 on T\n1: all_reduce C 8 on S\n"
            "1: recv D from 0 8 on T\n1: sync_stream T\n1: all_reduce C 8 on S",
            "rendezvous+cold_collectives"),
      "OK");
  const ModeVerdict verdict = examine(
      "0: all_reduce C 8 on S\n0: send D to 1 8 on T\n1: recv D from 0 8 on T\n1: sync_stream T\n1: "
      "all_reduce C 8 on S",
      "rendezvous+cold_collectives");
  EXPECT_FALSE(verdict.completes);
  EXPECT_THAT(rules_behind(deadlock(verdict)), testing::Contains("N3"));
  EXPECT_THAT(deadlock(examine("0: all_reduce C 8 on S\n1: launch on S", "rendezvous+cold_collectives")).why,
              HasSubstr("a first collective that rank 1 never posts"));
}

TEST(Model, N58MessagesGoOnInUnits) {
  const auto emulated = [](std::string_view lines) { return value(lines, "rendezvous+emulate_mismatch"); };
  // Within a unit the receive returns with a part missing; with a unit missing it waits.
  EXPECT_EQ(emulated("0: send C to 1 12 on S\n1: recv C from 0 16 on S"), "BYTES");
  EXPECT_EQ(emulated("0: send C to 1 12 on S\n1: recv C from 0 20 on S"), "DEADLOCK+BYTES");
  EXPECT_EQ(emulated("0: send C to 1 12 on S\n0: send C to 1 8 on S\n1: recv C from 0 20 on S"), "BYTES");
  // The sender of too much waits until the rest is taken.
  EXPECT_EQ(emulated("0: send C to 1 24 on S\n1: recv C from 0 8 on S"), "DEADLOCK+BYTES");
  // A small and a large end never meet.
  EXPECT_EQ(emulated("0: send C to 1 16KiB on S\n1: recv C from 0 17KiB on S"), "DEADLOCK+BYTES");
  EXPECT_EQ(emulated("0: send C to 1 1MiB on S\n1: recv C from 0 1000KiB on S"), "BYTES");
  // Equal ends are not touched.
  EXPECT_EQ(emulated("0: send C to 1 1MiB on S\n1: recv C from 0 1MiB on S"), "OK");
  EXPECT_EQ(emulated("0: all_reduce C 8 on S\n1: all_reduce C 16 on S"), "DEADLOCK+COLLMISMATCH");
  EXPECT_EQ(emulated("0: broadcast C root 0 8 on S\n1: broadcast C root 1 8 on S"), "DEADLOCK+COLLMISMATCH");
  EXPECT_EQ(emulated("0: barrier C 8 on S\n1: all_reduce C 8 on S"), "COLLMISMATCH");
  const ModeVerdict verdict =
      examine("0: send C to 1 8 on S\n1: recv C from 0 16 on S", "rendezvous+emulate_mismatch");
  EXPECT_THAT(rules_behind(deadlock(verdict)), testing::IsSupersetOf({"N23", "N24"}));
}

}  // namespace
}  // namespace plumbline::test
