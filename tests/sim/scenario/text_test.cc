// Both texts of a scenario: what is written reads back as the same, and what is wrong is refused with its place.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/scenario/examine.h"
#include "tests/support/oracle.h"

namespace plumbline::test {
namespace {

TEST(ScenarioText, AllOracleLinesReadBackFromBothForms) {
  int scenarios = 0;
  for (const char* file : {"oracles/nccl/scenarios.jsonl", "oracles/nccl/random_programs.jsonl.gz"}) {
    const auto all = parse_scenarios(read_data(file), file);
    ASSERT_TRUE(all) << all.error().text();
    for (const Scenario& scenario : *all) {
      const auto json = parse_scenario_lines(print_scenario_json(scenario), "again");
      ASSERT_TRUE(json) << json.error().text();
      ASSERT_EQ(json->size(), 1U);
      ASSERT_EQ(json->front(), scenario) << scenario.id;
      const std::string text = print_scenario_toml(scenario);
      const auto toml = parse_scenario_toml(text, "again");
      ASSERT_TRUE(toml) << toml.error().text() << "\n" << text;
      ASSERT_EQ(*toml, scenario) << text;
      ++scenarios;
    }
  }
  EXPECT_EQ(scenarios, 4040);
}

TEST(ScenarioText, FormsAreToldApartByContent) {
  EXPECT_EQ(scenario_form("a.jsonl", ""), ScenarioForm::kJsonLines);
  EXPECT_EQ(scenario_form("-", "\n {\"id\":1}"), ScenarioForm::kJsonLines);
  EXPECT_EQ(scenario_form("a.toml", "id = \"x\"\n[communicators]\n"), ScenarioForm::kToml);
  EXPECT_EQ(scenario_form("a.toml", "  [[threads]]  # first\nrank = 0\n"), ScenarioForm::kToml);
  EXPECT_EQ(scenario_form("a.toml", "[parallel]\npp = 4\n"), ScenarioForm::kNone);
  EXPECT_EQ(scenario_form("a.txt", "plumbline-program 1\n"), ScenarioForm::kNone);
  EXPECT_EQ(scenario_form("", ""), ScenarioForm::kNone);
}

constexpr const char* kSwap = R"(id = "swap"
[communicators]
C = [0, 1]
"odd name" = [1, 0]

[[threads]]
rank = 0
host_ops = [
  "group on S: send C to 1 4KiB as a; recv C from 1 4KiB",  # a comment
  'all_reduce "odd name" 8 on S',
  "record e on S",
  "wait e on T",
  "sync_event e",
]

[[threads]]
rank = 1
host_ops = [
  "group on S: recv C from 0 4KiB as b; send C to 0 4KiB",
  'all_reduce "odd name" 8 on S',
  "sync_device",
]
)";

TEST(ScenarioText, ReadableForm) {
  const auto scenario = parse_scenario_toml(kSwap, "swap.toml");
  ASSERT_TRUE(scenario) << scenario.error().text();
  ASSERT_EQ(scenario->threads.size(), 2U);
  const HostOp& group = scenario->threads[0].host_ops.at(0);
  EXPECT_EQ(group.ops.size(), 2U);
  EXPECT_EQ(group.ops[0].label, "a");
  EXPECT_EQ(group.ops[1].label, std::nullopt);
  EXPECT_EQ(group.ops[1].bytes, 4096);
  const auto verdict = examine_scenario(*scenario, {NcclModel{}});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(reference_value(verdict->modes.front()), "WRONGDATA");
  EXPECT_NE(verdict->modes.front().findings.front().why.find("carries a@C"), std::string::npos)
      << verdict->modes.front().findings.front().why;
}

Scenario of_words(const std::string& host_op) {
  const auto scenario = parse_scenario_toml(
      "id = \"x\"\n[communicators]\nC = [0, 1]\n[[threads]]\nrank = 0\nhost_ops = ['" + host_op + "']\n",
      "f");
  EXPECT_TRUE(scenario) << scenario.error().text();
  return scenario ? *scenario : Scenario{};
}

TEST(ScenarioText, GroupsInsideGroups) {
  const Scenario flat = of_words("group on S: recv C from 1 8; send C to 1 8 as a on T; all_reduce C 8");
  for (const char* nested :
       {"group on S: {recv C from 1 8; {send C to 1 8 as a on T}}; all_reduce C 8",
        "group on S: recv C from 1 8; { send C to 1 8 as a on T; all_reduce C 8 }",
        "group on S: { { { { recv C from 1 8 } } } }; send C to 1 8 as a on T; all_reduce C 8"})
    EXPECT_EQ(of_words(nested), flat) << nested;
  // The same, whichever text it stands in; a name with a brace is quoted.
  Scenario braces = of_words("send C to 1 8 as \"pair{0,1}\" on S");
  EXPECT_EQ(braces.threads[0].host_ops[0].ops[0].label, "pair{0,1}");
  EXPECT_EQ(parse_scenario_toml(print_scenario_toml(braces), "again").value(), braces);
}

TEST(ScenarioText, CallsThatCreateReadBackFromBothForms) {
  for (const char* words :
       {"group on S: send C to 1 8 uncaptured", "group on S: barrier C 1 on T uncaptured; barrier C 1",
        "comm_init X 0 1 release 2.28.9", "comm_init X 0 1 release 2.30.0 nonblocking",
        "comm_init_all X 0 1 1", "comm_init_all X 1 0", "comm_grow C into X 0 1 2",
        "comm_grow C into X 2 1 0 nonblocking"}) {
    const Scenario scenario = of_words(words);
    EXPECT_NE(print_scenario_toml(scenario).find(std::string("\"") + words + '"'), std::string::npos)
        << words;
    EXPECT_EQ(parse_scenario_toml(print_scenario_toml(scenario), "again").value(), scenario) << words;
    EXPECT_EQ(parse_scenario_lines(print_scenario_json(scenario), "again").value().front(), scenario)
        << words;
  }
  EXPECT_EQ(nccl_release("2.28.9"), 22809);
  for (const char* none : {"", "2.28", "2.28.9.1", "2..9", "2.280.1", "2.x.1", "-2.28.9", "2.+8.9"})
    EXPECT_EQ(nccl_release(none), 0) << none;
}

struct Fault {
  const char* text;
  const char* message;  // the error's text contains this
};

std::string around(const std::string& host_op) {
  return R"({"id":"x","communicators":{"C":[0,1]},"threads":[{"rank":0,"host_ops":[)" + host_op + "]}]}";
}

TEST(ScenarioText, FaultsOfJsonLinesHaveTheirPlace) {
  const std::vector<Fault> faults = {
      {"", "f: no scenario in this file"},
      {"\n\n{", "f:3:2: this line is not a JSON object"},
      {"[1]", "f:1: is a list; an object was expected"},
      {"{\"id\":\"x\"} {\"id\":\"y\"}", "f:1:12: this line is not a JSON object"},
      {"{\"id\":\"x\",\"id\":\"y\"}", "f:1: the scenario has the key 'id' twice"},
      {"{\"id\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}", "is nested more than 12 deep"},
      {"{\"id\":\"\",\"communicators\":{},\"threads\":[]}", "an id is a text"},
      {"{\"id\":7}", "f:1: id: is a number; a text was expected"},
      {"{\"id\":\"x\"}", "f:1: lacks 'communicators'"},
      {"{\"id\":\"x\",\"communicator\":{}}",
       "communicator: is not known here; did you mean 'communicators'?"},
      {"{\"id\":\"x\",\"communicators\":{\"C\":[]}}", "communicators.C: is empty"},
      {"{\"id\":\"x\",\"communicators\":{\"C\":[0,0]}}", "communicators.C[1]: names rank 0 a second time"},
      {"{\"id\":\"x\",\"communicators\":{\"C\":[1000000000]}}",
       "communicators.C[0]: 1000000000 is not from 0 to 4095"},
      {"{\"id\":\"x\",\"communicators\":{\"C\":[1.5]}}", "communicators.C[0]: is a number; a whole number"},
      {"{\"id\":\"x\",\"communicators\":{}}", "f:1: lacks 'threads'"},
      {"{\"id\":\"x\",\"communicators\":{},\"threads\":[]}", "threads: is empty"},
      {"{\"id\":\"x\",\"communicators\":{},\"threads\":[{\"rank\":-1,\"host_ops\":[]}]}",
       "threads[0].rank: -1 is not from 0 to 4095"},
      {"{\"id\":\"x\",\"communicators\":{},\"threads\":[{\"rank\":18446744073709551615,\"host_ops\":[]}]}",
       "threads[0].rank: 18446744073709551615 is not from 0"},
      {"{\"id\":\"x\",\"communicators\":{},\"threads\":[{\"rank\":0}]}", "threads[0]: lacks 'host_ops'"},
      {"{\"id\":\"x\",\"communicators\":{},\"threads\":[],\"model_options\":{\"max_ops_per_kernel\":0}}",
       "model_options.max_ops_per_kernel: 0 is not from 1"},
      {"{\"id\":\"x\",\"communicators\":{},\"threads\":[],\"verdict\":{\"rendezvous\":1}}",
       "verdict.rendezvous: is a number; a text was expected"},
  };
  for (const Fault& fault : faults) {
    const auto result = parse_scenario_lines(fault.text, "f");
    ASSERT_FALSE(result) << fault.text;
    EXPECT_NE(result.error().text().find(fault.message), std::string::npos)
        << fault.text << "\n-> " << result.error().text();
  }
}

TEST(ScenarioText, FaultsOfHostOperationsHaveTheirPlace) {
  const std::vector<Fault> faults = {
      {"7", "threads[0].host_ops[0]: is a number; an object was expected"},
      {"{}", "threads[0].host_ops[0]: lacks 'host'"},
      {R"({"host":"gruop"})", "threads[0].host_ops[0].host: 'gruop' is no host operation (group, launch,"},
      {R"({"host":"group","stream":"S"})", "lacks 'ops'"},
      {R"({"host":"group","stream":"S","ops":[]})", "ops: is empty; a group holds at least one call"},
      {R"({"host":"group","ops":[{}]})", "lacks 'stream'"},
      {R"({"host":"launch","stream":""})", "stream: is empty; a name"},
      {R"({"host":"launch","stream":"S","event":"e"})", "event: is not known here"},
      {R"({"host":"group","stream":"S","ops":[{"op":"put","comm":"C","bytes":1}]})",
       "host_ops[0].ops[0].op: 'put' is no operation (send, recv,"},
      {R"({"host":"group","stream":"S","ops":[{"op":"send","comm":"D","peer":1,"bytes":1}]})",
       "ops[0].comm: no communicator is named 'D'"},
      {R"({"host":"group","stream":"S","ops":[{"op":"send","comm":"C","peer":2,"bytes":1}]})",
       "ops[0].peer: communicator C does not hold rank 2"},
      {R"({"host":"group","stream":"S","ops":[{"op":"send","comm":"C","bytes":1}]})", "lacks 'peer'"},
      {R"({"host":"group","stream":"S","ops":[{"op":"send","comm":"C","peer":1,"bytes":-1}]})",
       "bytes: -1 is not from 0"},
      {R"({"host":"group","stream":"S","ops":[{"op":"all_reduce","comm":"C","peer":1,"bytes":1}]})",
       "peer: is not known here"},
      {R"({"host":"group","stream":"S","ops":[{"op":"broadcast","comm":"C","bytes":1}]})", "lacks 'root'"},
      {R"({"host":"comm_init","comm":"X","ranks":[1]})", "ranks: communicator X does not hold rank 0"},
      {R"({"host":"comm_init","comm":"X","ranks":3})", "ranks: is a number; a list of ranks"},
      {R"({"host":"comm_init","comm":"X","ranks":[0,0]})", "ranks[1]: names rank 0 a second time"},
      {R"({"host":"comm_init","comm":"X","ranks":[0],"release":"new"})",
       "release: 'new' is no release of NCCL; write 2.28.9"},
      {R"({"host":"comm_init_all","comm":"X","ranks":[0],"nonblocking":true})",
       "nonblocking: is not known here"},
      {R"({"host":"comm_grow","comm":"X","ranks":[0,2],"parent":"C"})",
       "ranks: communicator X does not hold rank 1"},
      {R"({"host":"comm_grow","comm":"X","ranks":[0,1,2],"parent":"X"})",
       "parent: a communicator is not made from itself"},
      {R"({"host":"comm_grow","comm":"X","ranks":[0,1,2],"parent":"B"})", "no communicator is named 'B'"},
      {R"({"host":"exit","stream":"S"})", "stream: is not known here"},
      {R"({"host":"fault"})", "lacks 'stream'"},
      {R"({"host":"comm_sync","comm":"C","nonblocking":true})", "nonblocking: is not known here"},
      {R"({"host":"group","stream":"S","ops":[{"op":"scatter","comm":"C","bytes":1}]})", "lacks 'root'"},
  };
  for (const Fault& fault : faults) {
    const std::string text = around(fault.text);
    const auto result = parse_scenario_lines(text, "f");
    ASSERT_FALSE(result) << text;
    EXPECT_NE(result.error().text().find(fault.message), std::string::npos)
        << text << "\n-> " << result.error().text();
  }
  const std::string two = around("") + "\n" + around("");
  EXPECT_NE(parse_scenario_lines(two, "f").error().text().find("f:2: id 'x' stands in line 1"),
            std::string::npos);
}

TEST(ScenarioText, FaultsOfTomlHaveTheirPlace) {
  const std::string head = "id = \"x\"\n[communicators]\nC = [0, 1]\n[[threads]]\nrank = 0\nhost_ops = [\n";
  const std::vector<Fault> faults = {
      {"\"send C to 1 4KiB on S\", \"send C to 1 on S\"",
       "f:7:26: \"send C to 1 on S\": word 5 is 'on'; a size"},
      {"\"send C from 1 4KiB on S\"", "word 3 is 'from'; 'to' was expected"},
      {"\"send C to 5 4KiB on S\"",
       "f:7:1: threads[0].host_ops[0].ops[0].peer: communicator C does not hold rank 5"},
      {"\"send C to 1 4KiB\"", "it ends where 'on' was expected"},
      {"\"send C to 1 4KiB on S now\"", "word 8 is 'now'; the end was expected"},
      {"\"group on S:\"", "it ends where a call was expected"},
      {"\"group on S: launch on S\"", "word 5 is 'launch'; a host operation or a call was expected"},
      {"\"group on S: send C to 1 8 send C to 1 8\"", "'send'; ';' was expected"},
      {"\"\"", "a host operation is empty"},
      {"'launch on \"S'", "a quoted name is not closed"},
      {"7", "f:7:1: threads[0].host_ops[0]: a host operation is a text"},
      {"\"comm_init X zero\"", "word 3 is 'zero'; a rank was expected"},
      {"\"group on S: {}\"", "word 6 is '}'; a host operation or a call was expected"},
      {"\"group on S: { send C to 1 8\"", "it ends where ';' was expected"},
      {"\"group on S: send C to 1 8 }\"", "word 10 is '}'; ';' was expected"},
      {"\"group on S: { send C to 1 8 } on T\"", "'on'; ';' was expected"},
      {"\"group on S: {{{{{ send C to 1 8 }}}}}\"",
       "threads[0].host_ops[0].ops[0].ops[0].ops[0].ops[0].ops[0].ops: a list of calls was expected, at most "
       "4"},
      {"\"group on S: {{{{{{{{{{{{{{{{{\"", "a call, 16 groups deep was expected"},
      {"\"fault\"", "it ends where 'on' was expected"},
      {"\"exit now\"", "word 2 is 'now'; the end was expected"},
      {"\"comm_sync D\"", "no communicator is named 'D'"},
      {"\"gather C 8 on S\"", "word 3 is '8'; 'root' was expected"},
  };
  for (const Fault& fault : faults) {
    const std::string text = head + fault.text + "]\n";
    const auto result = parse_scenario_toml(text, "f");
    ASSERT_FALSE(result) << text;
    EXPECT_NE(result.error().text().find(fault.message), std::string::npos)
        << text << "\n-> " << result.error().text();
  }
  EXPECT_NE(parse_scenario_toml("id = \n", "f").error().text().find("f:1:"), std::string::npos);
  EXPECT_NE(parse_scenario_toml("id = 1.5\n", "f").error().text().find("f:1:6: id: a text"),
            std::string::npos);
}

// Cut anywhere, a text is refused or read, and never more.
TEST(ScenarioText, EveryPrefixIsRefusedOrRead) {
  const std::string line =
      R"({"id":"x","communicators":{"C":[0,1]},"threads":[{"rank":0,"host_ops":[)"
      R"({"host":"group","stream":"S","ops":[{"op":"send","comm":"C","peer":1,"bytes":8,)"
      R"("label":null}]},{"host":"comm_init","comm":"X","ranks":[0,1]}]}]})";
  for (std::size_t n = 0; n < line.size(); ++n) EXPECT_FALSE(parse_scenario_lines(line.substr(0, n), "f"));
  EXPECT_TRUE(parse_scenario_lines(line, "f"));
  const std::string toml = kSwap;
  int read = 0;
  for (std::size_t n = 0; n < toml.size(); ++n) read += parse_scenario_toml(toml.substr(0, n), "f") ? 1 : 0;
  EXPECT_LT(read, 40);
}

TEST(ScenarioText, ModesByName) {
  EXPECT_EQ(reference_models().size(), 8U);
  for (const NcclModel& model : reference_models()) EXPECT_EQ(model_named(model.name()).value(), model);
  EXPECT_EQ(model_named("eager_2MiB+cold+strict").value().name(), "eager_2MiB+strict+cold");
  EXPECT_EQ(model_named("always_eager").value().send, SendCompletion::kAlwaysEager);
  for (const char* bad : {"", "eager", "eager_", "eager_x", "strict", "rendezvous+",
                          "rendezvous+strict+strict", "rendezvous+eager_2MiB", "Rendezvous"})
    EXPECT_FALSE(model_named(bad)) << bad;
}

}  // namespace
}  // namespace plumbline::test
