// The writer: protocol 2, whose opcodes every reader takes - torch.load(weights_only=True) among them.
#include <bit>
#include <cstdint>

#include <fmt/format.h>

#include "engine/storage/pickle.h"
#include "engine/storage/pickle_opcodes.h"
#include "engine/storage/utf8.h"

namespace plumbline {
namespace {

using Kind = PickleNode::Kind;
constexpr int kMaxDepth = 500;  // Python's own unpickled objects are limited to about twice that

class Writer {
 public:
  explicit Writer(const Pickle& pickle)
      : pickle_(pickle), uses_(pickle.nodes.size()), put_(uses_.size(), -1) {}

  Result<std::string> run() {
    count_uses();
    out_ = {static_cast<char>(op::kProto), 2};
    PL_TRY(write(pickle_.root, 0));
    byte(op::kStop);
    return std::move(out_);
  }

 private:
  void count_uses() {
    const auto use = [this](const std::vector<PickleRef>& refs) {
      for (const PickleRef ref : refs) ++uses_[ref];
    };
    for (const PickleNode& node : pickle_.nodes) {
      use(node.items);
      use(node.appended);
      use(node.set_items);
      if (node.state != PickleNode::kNoRef) ++uses_[node.state];
    }
  }

  void byte(unsigned char value) { out_ += static_cast<char>(value); }
  void number(std::uint64_t value, int width) {
    for (int i = 0; i < width; ++i) byte(static_cast<unsigned char>(value >> (8 * i)));
  }
  void text(std::string_view value) {
    byte(op::kBinUnicode);
    number(value.size(), 4);
    out_ += value;
  }
  void global(std::string_view module, std::string_view name) {
    byte(op::kGlobal);
    out_ += fmt::format("{}\n{}\n", module, name);
  }
  void integer(std::int64_t value) {
    if (value >= 0 && value < 256) {
      byte(op::kBinInt1);
      return number(static_cast<std::uint64_t>(value), 1);
    }
    if (value >= INT32_MIN && value <= INT32_MAX) {
      byte(op::kBinInt);
      return number(static_cast<std::uint64_t>(value), 4);
    }
    byte(op::kLong1);
    byte(8);
    number(static_cast<std::uint64_t>(value), 8);
  }
  // Protocol 2 has no bytes: Python's way is to encode a text whose characters are the bytes.
  void bytes(std::string_view value) {
    global("_codecs", "encode");
    std::string utf8;
    for (const char c : value) {
      const auto code = static_cast<unsigned char>(c);
      if (code < 0x80) {
        utf8 += c;
      } else {
        utf8 += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
      }
    }
    text(utf8);
    text("latin1");
    byte(op::kTuple2);
    byte(op::kReduce);
  }
  void put(PickleRef ref) {
    if (uses_[ref] < 2) return;
    put_[ref] = memo_++;
    if (put_[ref] < 256) {
      byte(op::kBinPut);
      number(static_cast<std::uint64_t>(put_[ref]), 1);
    } else {
      byte(op::kLongBinPut);
      number(static_cast<std::uint64_t>(put_[ref]), 4);
    }
  }

  Status write_items(const std::vector<PickleRef>& items, unsigned char opcode, int depth) {
    if (items.empty()) return {};
    byte(op::kMark);
    for (const PickleRef item : items) PL_TRY(write(item, depth + 1));
    byte(opcode);
    return {};
  }

  Status write(PickleRef ref, int depth) {
    if (depth > kMaxDepth)
      return fail(ErrorCode::kUnsupported,
                  fmt::format("objects nested deeper than {} cannot be pickled", kMaxDepth));
    if (put_[ref] >= 0) {
      byte(put_[ref] < 256 ? op::kBinGet : op::kLongBinGet);
      number(static_cast<std::uint64_t>(put_[ref]), put_[ref] < 256 ? 1 : 4);
      return {};
    }
    const PickleNode& node = pickle_.at(ref);
    switch (node.kind) {
      case Kind::kNone:
        byte(op::kNone);
        return {};
      case Kind::kBool:
        byte(node.integer != 0 ? op::kNewTrue : op::kNewFalse);
        return {};
      case Kind::kInt:
        integer(node.integer);
        return {};
      case Kind::kBigInt:
        byte(node.text.size() < 256 ? op::kLong1 : op::kLong4);
        number(node.text.size(), node.text.size() < 256 ? 1 : 4);
        out_ += node.text;
        return {};
      case Kind::kFloat: {
        byte(op::kBinFloat);
        const auto bits = std::bit_cast<std::uint64_t>(node.real);
        for (int i = 7; i >= 0; --i) byte(static_cast<unsigned char>(bits >> (8 * i)));
        return {};
      }
      case Kind::kText:
        if (node.text.size() > UINT32_MAX) return fail(ErrorCode::kUnsupported, "a text of over 4 GB");
        text(node.text);
        break;
      case Kind::kBytes:
        bytes(node.text);
        break;
      case Kind::kByteArray:
        global("__builtin__", "bytearray");
        bytes(node.text);
        byte(op::kTuple1);
        byte(op::kReduce);
        break;
      case Kind::kGlobal: {
        const std::size_t line = node.text.find('\n');
        global(std::string_view(node.text).substr(0, line), std::string_view(node.text).substr(line + 1));
        break;
      }
      default:
        return write_object(ref, node, depth);
    }
    put(ref);
    return {};
  }

  Status write_tuple(PickleRef ref, const PickleNode& node, int depth) {
    const bool marked = node.items.size() > 3;
    if (marked) byte(op::kMark);
    for (const PickleRef item : node.items) PL_TRY(write(item, depth + 1));
    static constexpr unsigned char kCodes[] = {op::kEmptyTuple, op::kTuple1, op::kTuple2, op::kTuple3};
    byte(marked ? op::kTuple : kCodes[node.items.size()]);
    put(ref);
    return {};
  }

  Status write_object(PickleRef ref, const PickleNode& node, int depth) {
    switch (node.kind) {
      case Kind::kTuple:
        return write_tuple(ref, node, depth);
      case Kind::kList:
        byte(op::kEmptyList);
        put(ref);
        return write_items(node.items, op::kAppends, depth);
      case Kind::kDict:
        byte(op::kEmptyDict);
        put(ref);
        return write_items(node.items, op::kSetItems, depth);
      case Kind::kSet:
      case Kind::kFrozenSet:
        global("__builtin__", node.kind == Kind::kSet ? "set" : "frozenset");
        byte(op::kEmptyList);
        PL_TRY(write_items(node.items, op::kAppends, depth));
        byte(op::kTuple1);
        byte(op::kReduce);
        put(ref);
        return {};
      case Kind::kPersistent:
        PL_TRY(write(node.items[0], depth + 1));
        byte(op::kBinPersId);
        put(ref);
        return {};
      default:
        return write_call(ref, node, depth);
    }
  }

  Status write_call(PickleRef ref, const PickleNode& node, int depth) {
    if (node.keywords != PickleNode::kNoRef && !pickle_.at(node.keywords).items.empty())
      return fail(ErrorCode::kUnsupported, "an object made with keywords has no form in protocol 2");
    PL_TRY(write(node.items[0], depth + 1));
    PL_TRY(write(node.items[1], depth + 1));
    byte(node.new_object ? op::kNewObj : op::kReduce);
    put(ref);
    PL_TRY(write_items(node.appended, op::kAppends, depth));
    PL_TRY(write_items(node.set_items, op::kSetItems, depth));
    if (node.state == PickleNode::kNoRef) return {};
    PL_TRY(write(node.state, depth + 1));
    byte(op::kBuild);
    return {};
  }

  const Pickle& pickle_;
  std::vector<std::uint32_t> uses_;
  std::vector<std::int64_t> put_;  // memo numbers; -1: not put yet
  std::int64_t memo_ = 0;
  std::string out_;
};

std::string line_of(const PickleNode& node) {
  static constexpr const char* kNames[] = {"None",      "bool",      "int",   "int",       "float", "text",
                                           "bytes",     "bytearray", "tuple", "list",      "dict",  "set",
                                           "frozenset", "global",    "call",  "persistent"};
  const std::string name = kNames[static_cast<int>(node.kind)];
  switch (node.kind) {
    case Kind::kInt:
      return fmt::format("int {}", node.integer);
    case Kind::kBool:
      return node.integer != 0 ? "True" : "False";
    case Kind::kFloat:
      return fmt::format("float {}", node.real);
    case Kind::kText:
      return fmt::format("text '{}'", node.text.substr(0, 60));
    case Kind::kBigInt:
    case Kind::kBytes:
    case Kind::kByteArray:
      return fmt::format("{} of {} bytes", name, node.text.size());
    case Kind::kGlobal: {
      std::string text = node.text;
      text[text.find('\n')] = '.';
      return "global " + text;
    }
    case Kind::kDict:
      return fmt::format("dict of {}", node.items.size() / 2);
    case Kind::kCall:
      return node.new_object ? "new object" : "call";
    default:
      return fmt::format("{} of {}", name, node.items.size());
  }
}

}  // namespace

Result<std::string> print_pickle(const Pickle& pickle) { return Writer(pickle).run(); }

std::string describe_pickle(const Pickle& pickle, std::size_t lines) {
  std::string out;
  std::vector<std::pair<PickleRef, int>> open{{pickle.root, 0}};
  std::vector<bool> seen(pickle.nodes.size());
  while (!open.empty() && lines-- > 0) {
    const PickleRef ref = open.back().first;
    const int depth = open.back().second;
    open.pop_back();
    const PickleNode& node = pickle.at(ref);
    const bool again = seen[ref] && !node.items.empty();
    out += fmt::format("{:{}}{}{}\n", "", std::min(depth, 40) * 2, line_of(node), again ? " (again)" : "");
    if (again) continue;
    seen[ref] = true;
    const auto children = [&](const std::vector<PickleRef>& refs) {
      for (std::size_t i = refs.size(); i-- > 0;) open.emplace_back(refs[i], depth + 1);
    };
    if (node.state != PickleNode::kNoRef) open.emplace_back(node.state, depth + 1);
    children(node.set_items);
    children(node.appended);
    children(node.items);
  }
  return open.empty() ? out : out + "...\n";
}

}  // namespace plumbline
