// The data-only reader against hostile pickles, and reader and writer against each other. Files of a real
// Python are in tests/engine/checkpoint/torch_file_test.cc.
#include "engine/storage/pickle.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/covers.h"
#include "tests/support/property.h"

namespace plumbline::test {
namespace {

using Kind = PickleNode::Kind;

std::string bytes(const std::string& body, int protocol = 2) {
  return std::string("\x80") + static_cast<char>(protocol) + body + ".";
}

std::string message(const std::string& data, const PickleLimits& limits = {}) {
  const auto pickle = parse_pickle(data, "p", limits);
  return pickle ? "" : pickle.error().message;
}

std::string little(std::uint64_t value, int width) {
  std::string out;
  for (int i = 0; i < width; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
  return out;
}

TEST(Pickle, NothingIsCalled) {
  // os.system("...") as a pickle bomb makes it: a node, and no more.
  const auto pickle = parse_pickle(bytes("cos\nsystem\nX" + little(4, 4) + "ls /\x85R"), "p");
  ASSERT_TRUE(pickle) << pickle.error().message;
  const PickleNode& root = pickle->at(pickle->root);
  EXPECT_EQ(root.kind, Kind::kCall);
  EXPECT_TRUE(pickle->at(root.items[0]).is_global("os", "system"));
  EXPECT_EQ(pickle->at(pickle->at(root.items[1]).items[0]).text, "ls /");
  EXPECT_EQ(describe_pickle(*pickle, 10), "call\n  global os.system\n  tuple of 1\n    text 'ls /'\n");
}

TEST(Pickle, ReadsScalars) {
  const auto one = [](const std::string& body) {
    const auto pickle = parse_pickle(bytes(body, 5), "p");
    EXPECT_TRUE(pickle) << pickle.error().message;
    return pickle->at(pickle->root);
  };
  EXPECT_EQ(one("J" + little(0xFFFFFFFF, 4)).integer, -1);
  EXPECT_EQ(one("M\xff\xff").integer, 65535);
  EXPECT_EQ(one(std::string("\x8a\x00", 2)).integer, 0);
  EXPECT_EQ(one(std::string("\x8a\x06\x00\x00\x00\x00\x00\xff", 8)).integer, -(std::int64_t{1} << 40));
  EXPECT_EQ(one("\x8a\x08" + little(INT64_MAX, 8)).integer, INT64_MAX);
  EXPECT_EQ(one("\x8a\x09" + little(0, 8) + "\x01").kind, Kind::kBigInt);
  EXPECT_EQ(one(std::string("G\x3f\xf8\x00\x00\x00\x00\x00\x00", 9)).real, 1.5);
  EXPECT_EQ(one("\x8c\x02hi").text, "hi");
  EXPECT_EQ(one("\x8c\x03\xed\xa0\x80").kind, Kind::kText);  // a lone surrogate
  EXPECT_EQ(one("C\x02\xff" + std::string(1, '\0')).text, std::string("\xff\0", 2));
  EXPECT_EQ(one("N").kind, Kind::kNone);
  EXPECT_EQ(one("\x88").integer, 1);
}

struct Attack {
  const char* name;
  std::string data;
  const char* why;
};

std::vector<Attack> attacks() {
  return {
      {"empty", "", "1 bytes are wanted"},
      {"no stop", "\x80\x02N", "1 bytes are wanted"},
      {"empty stack", bytes(""), "the stack is empty"},
      {"two values left", bytes("NN"), "something is left"},
      {"mark left", bytes("(N"), "something is left"},
      {"protocol 1", std::string("\x80\x01N."), "protocol 1"},
      {"protocol 6", std::string("\x80\x06N."), "protocol 6"},
      {"opcode of protocol 0", bytes("I1\n"), "protocol 0 or 1"},
      {"extension", bytes("\x82\x01"), "not an opcode"},
      {"buffer out of band", bytes("\x97", 5), "not an opcode"},
      {"text of 4 GB", bytes("X\xff\xff\xff\xff"), "bytes are wanted"},
      {"text of 2^63", bytes("\x8d" + little(INT64_MAX, 8), 4), "bytes are wanted"},
      {"text of 2^64 - 1", bytes("\x8d" + little(UINT64_MAX, 8), 4), "bytes are wanted"},
      {"number of 2 GB", bytes("\x8b\xff\xff\xff\x7f"), "bytes are wanted"},
      {"memo missing", bytes("h\x05"), "no object 5 in the memo"},
      {"pop through a mark", bytes("N(R"), "the stack is empty"},
      {"tuple of too few", bytes("N\x86"), "the stack is empty"},
      {"no mark", bytes("]Ne"), "no mark"},
      {"odd dict", bytes("}(NNNu"), "a key without value"},
      {"list as key", bytes("}]Ns"), "a key that cannot be one"},
      {"append to a dict", bytes("}Na"), "append to what is no list"},
      {"set in a list", bytes("]NNs"), "set in what is no dict"},
      {"build on a number", bytes("K\x01}b"), "no object to give a state"},
      {"build twice", bytes("ca\nb\n)R}b}b"), "no object to give a state"},
      {"call without tuple", bytes("ca\nb\n]R"), "arguments must be a tuple"},
      {"names that are no texts", bytes("K\x01K\x02\x93", 4), "names must be texts"},
      {"name without end", bytes("c" + std::string(5000, 'a')), "a name without end"},
      {"text not UTF-8", bytes("\x8c\x01\xff", 4), "not UTF-8"},
      {"overlong text", bytes("\x8c\x02\xc0\xaf", 4), "not UTF-8"},
  };
}

TEST(Pickle, RefusesEveryAttack) {
  for (const Attack& attack : attacks()) {
    const std::string text = message(attack.data);
    EXPECT_NE(text.find(attack.why), std::string::npos) << attack.name << ": " << text;
    EXPECT_EQ(text.find("p: byte "), 0u) << text;
  }
}

TEST(Pickle, BombsStayInsideTheLimits) {
  const PickleLimits small{.bytes = 1 << 20, .operations = 100000, .nodes = 1000, .text = 1000};
  std::string lists;
  for (int i = 0; i < 2000; ++i) lists += ']';
  EXPECT_NE(message(bytes(lists), small).find("more than 1000 objects"), std::string::npos);
  EXPECT_NE(message(bytes(std::string(200000, 'N') + std::string(1, '0')), small)
                .find("more than 100000 operations"),
            std::string::npos);
  std::string texts;
  for (int i = 0; i < 100; ++i) texts += "\x8c\x14" + std::string(20, 'x');
  EXPECT_NE(message(bytes(texts, 4), small).find("more than 1000 bytes of text"), std::string::npos);
  // A billion laughs: 40 levels of a list that holds the one below twice. 40 nodes, however often they are
  // used.
  std::string laughs = "]q" + std::string(1, '\0');
  for (char i = 0; i < 40; ++i) laughs += std::string("](h") + i + "h" + i + "eq" + static_cast<char>(i + 1);
  for (int i = 0; i < 40; ++i) laughs = laughs + "\x85";
  const auto pickle = parse_pickle(bytes("(" + laughs + "l"), "p");
  // Left lists are collected by the mark; what matters is the size.
  ASSERT_TRUE(pickle) << pickle.error().message;
  EXPECT_LT(pickle->nodes.size(), 200u);
  // Deep nesting costs the reader no stack; the writer refuses it.
  const auto deep = parse_pickle(bytes(std::string(1 << 20, ']') + std::string((1 << 20) - 1, 'a')), "p");
  ASSERT_TRUE(deep) << deep.error().message;
  EXPECT_NE(print_pickle(*deep).error().message.find("nested deeper"), std::string::npos);
  EXPECT_EQ(describe_pickle(*deep, 2), "list of 1\n  list of 1\n...\n");
}

// A random graph, with sharing.
PickleRef any_node(Pickle& pickle, int depth) {
  PickleNode node;
  const auto children = [&](int most) {
    std::vector<PickleRef> refs;
    for (int i = below(most + 1); i > 0; --i) refs.push_back(any_node(pickle, depth - 1));
    return refs;
  };
  if (!pickle.nodes.empty() && below(6) == 0)
    return static_cast<PickleRef>(below(static_cast<int>(pickle.nodes.size())));
  constexpr Kind kLeaves[] = {Kind::kNone, Kind::kBool,   Kind::kInt,   Kind::kFloat,
                              Kind::kText, Kind::kGlobal, Kind::kBigInt};
  constexpr Kind kInner[] = {Kind::kTuple, Kind::kList, Kind::kDict, Kind::kCall};
  node.kind = depth == 0 || below(3) == 0 ? kLeaves[below(7)] : kInner[below(4)];
  if (node.kind == Kind::kBool) node.integer = below(2);
  if (node.kind == Kind::kInt) node.integer = *rc::gen::resize(100, rc::gen::arbitrary<std::int64_t>());
  if (node.kind == Kind::kFloat) node.real = 0.25 * below(9);
  if (node.kind == Kind::kText) node.text = std::string(static_cast<std::size_t>(below(4)), 'x') + "\xc3\xa9";
  if (node.kind == Kind::kGlobal) node.text = "module\nName";
  if (node.kind == Kind::kBigInt) node.text = std::string(static_cast<std::size_t>(9 + below(300)), 'b');
  if (node.kind == Kind::kTuple || node.kind == Kind::kList) node.items = children(5);
  if (node.kind == Kind::kDict) {
    for (int i = below(4); i > 0; --i) {
      PickleNode key;
      key.kind = Kind::kText;
      key.text = "k" + std::to_string(i);
      pickle.nodes.push_back(key);
      node.items.push_back(static_cast<PickleRef>(pickle.nodes.size() - 1));
      node.items.push_back(any_node(pickle, depth - 1));
    }
  }
  if (node.kind == Kind::kCall) {
    PickleNode callable, args;
    callable.kind = Kind::kGlobal;
    callable.text = "torch\nthing";
    args.kind = Kind::kTuple;
    args.items = children(3);
    pickle.nodes.push_back(callable);
    pickle.nodes.push_back(args);
    const auto count = static_cast<PickleRef>(pickle.nodes.size());
    node.items = {count - 2, count - 1};
    node.new_object = below(2) == 1;
    if (below(2) == 1) node.state = any_node(pickle, depth - 1);
    node.appended = children(2);
  }
  pickle.nodes.push_back(node);
  return static_cast<PickleRef>(pickle.nodes.size() - 1);
}

TEST(PickleProperty, WrittenReadWrittenIsTheSame) {
  check_cases(5000, [] {
    Pickle pickle;
    pickle.root = any_node(pickle, 4);
    const auto first = print_pickle(pickle);
    RC_ASSERT(first.has_value());
    const auto again = parse_pickle(*first, "p");
    if (!again) RC_FAIL(again.error().message);
    RC_ASSERT(describe_pickle(*again, 10000) == describe_pickle(pickle, 10000));
    const auto second = print_pickle(*again);
    RC_ASSERT(second.has_value());
    RC_ASSERT(describe_pickle(*parse_pickle(*second, "p"), 10000) == describe_pickle(*again, 10000));
  });
}

// Random bytes and damaged pickles: refused or read, never worse. The fuzz target does the same for longer.
TEST(PickleProperty, AnyBytes) {
  check_cases(20000, [] {
    Pickle pickle;
    pickle.root = any_node(pickle, 3);
    std::string data = *print_pickle(pickle);
    for (int i = below(4); i > 0; --i)
      data[static_cast<std::size_t>(below(static_cast<int>(data.size())))] = static_cast<char>(below(256));
    data.resize(data.size() - static_cast<std::size_t>(below(2)));
    const auto got =
        parse_pickle(data, "p", {.bytes = 1 << 16, .operations = 10000, .nodes = 10000, .text = 1 << 16});
    if (got) (void)print_pickle(*got);
  });
}

}  // namespace
}  // namespace plumbline::test
