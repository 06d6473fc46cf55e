// The reader: a stack machine over nodes, no recursion. Sources of the opcodes' meaning: Python's
// Lib/pickletools.py.
#include "engine/storage/pickle.h"

#include <bit>
#include <map>

#include <fmt/format.h>

#include "engine/storage/pickle_opcodes.h"
#include "engine/storage/utf8.h"

namespace plumbline {
namespace {

using Kind = PickleNode::Kind;
constexpr PickleRef kNone = 0, kTrue = 1, kFalse = 2;  // these three nodes are shared by all

class Reader {
 public:
  Reader(std::string_view data, const std::string& what, const PickleLimits& limits)
      : data_(data), what_(what), limits_(limits) {
    out_.nodes.resize(3);
    out_.nodes[kTrue].kind = out_.nodes[kFalse].kind = Kind::kBool;
    out_.nodes[kTrue].integer = 1;
  }

  Result<Pickle> run(std::size_t* used) {
    if (data_.size() > limits_.bytes) data_ = data_.substr(0, limits_.bytes);
    for (std::size_t operations = 0; !stopped_; ++operations) {
      if (operations == limits_.operations) refuse(fmt::format("more than {} operations", operations));
      start_ = at_;
      opcode_ = number(1);
      if (error_.empty()) step(static_cast<unsigned char>(opcode_));
      if (!error_.empty())
        return fail(ErrorCode::kParse,
                    fmt::format("{}: byte {}, opcode 0x{:02x}: {}", what_, start_, opcode_, error_));
    }
    if (used != nullptr) *used = at_;
    return std::move(out_);
  }

 private:
  void refuse(std::string why) {
    if (error_.empty()) error_ = std::move(why);
  }

  std::string_view take(std::uint64_t count) {
    if (count > data_.size() - at_) {
      refuse(fmt::format("{} bytes are wanted, {} are left", count, data_.size() - at_));
      return {};
    }
    const std::string_view bytes = data_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return bytes;
  }
  std::uint64_t number(int width) {
    const std::string_view bytes = take(static_cast<std::uint64_t>(width));
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::string_view line() {
    const std::size_t end = data_.find('\n', at_);
    if (end == std::string_view::npos || end - at_ > 1000) {
      refuse("a name without end");
      return {};
    }
    const std::string_view text = data_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  PickleRef make(Kind kind) {
    if (out_.nodes.size() >= limits_.nodes) {
      refuse(fmt::format("more than {} objects", limits_.nodes));
      return kNone;
    }
    out_.nodes.emplace_back();
    out_.nodes.back().kind = kind;
    return static_cast<PickleRef>(out_.nodes.size() - 1);
  }
  PickleNode& node(PickleRef ref) { return out_.nodes[ref]; }
  void push(PickleRef ref) { stack_.push_back(ref); }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleRef pop() {
    if (stack_.size() <= floor()) {
      refuse("the stack is empty");
      return kNone;
    }
    const PickleRef ref = stack_.back();
    stack_.pop_back();
    return ref;
  }
  PickleRef top() {
    if (stack_.size() <= floor()) {
      refuse("the stack is empty");
      return kNone;
    }
    return stack_.back();
  }
  std::vector<PickleRef> pop_mark() {
    if (marks_.empty()) {
      refuse("no mark");
      return {};
    }
    std::vector<PickleRef> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void integer(std::int64_t value) {
    const PickleRef ref = make(Kind::kInt);
    node(ref).integer = value;
    push(ref);
  }
  void text(Kind kind, std::uint64_t length) {
    const std::string_view bytes = take(length);
    texts_ += bytes.size();
    if (texts_ > limits_.text) return refuse(fmt::format("more than {} bytes of text", limits_.text));
    if (kind == Kind::kText && !valid_utf8(bytes) && !surrogates(bytes))
      return refuse("text that is not UTF-8");
    if (!error_.empty()) return;
    const PickleRef ref = make(kind);
    node(ref).text.assign(bytes);
    push(ref);
  }
  // Python pickles lone surrogates as three bytes each.
  static bool surrogates(std::string_view bytes) {
    std::string rest;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '\xed' && i + 2 < bytes.size() && static_cast<unsigned char>(bytes[i + 1]) >= 0xA0) {
        i += 2;
      } else {
        rest += bytes[i];
      }
    }
    return rest.size() < bytes.size() && valid_utf8(rest);
  }
  void big_int(std::uint64_t length) {
    const std::string_view bytes = take(length);
    if (bytes.size() <= 8) {
      std::uint64_t value =
          bytes.empty() || static_cast<unsigned char>(bytes.back()) < 0x80 ? 0 : ~std::uint64_t{0};
      for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
      return integer(static_cast<std::int64_t>(value));
    }
    texts_ += bytes.size();
    if (texts_ > limits_.text) return refuse(fmt::format("more than {} bytes of text", limits_.text));
    const PickleRef ref = make(Kind::kBigInt);
    node(ref).text.assign(bytes);
    push(ref);
  }
  void real() {
    const std::string_view bytes = take(8);
    std::uint64_t bits = 0;
    for (const char byte : bytes) bits = bits << 8 | static_cast<unsigned char>(byte);
    const PickleRef ref = make(Kind::kFloat);
    node(ref).real = std::bit_cast<double>(bits);
    push(ref);
  }
  void collection(Kind kind, std::vector<PickleRef> items) {
    const PickleRef ref = make(kind);
    node(ref).items = std::move(items);
    push(ref);
  }
  void tuple_of(std::size_t count) {
    std::vector<PickleRef> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    collection(Kind::kTuple, std::move(items));
  }
  void global(std::string_view module, std::string_view name) {
    if (module.find('\n') != std::string_view::npos || name.find('\n') != std::string_view::npos ||
        module.size() > 1000 || name.size() > 1000 || !valid_utf8(module) || !valid_utf8(name))
      return refuse("no name of a global");
    const PickleRef ref = make(Kind::kGlobal);
    node(ref).text = fmt::format("{}\n{}", module, name);
    push(ref);
  }
  void stack_global() {
    const PickleRef name = pop(), module = pop();
    if (node(name).kind != Kind::kText || node(module).kind != Kind::kText)
      return refuse("names must be texts");
    global(std::string(node(module).text), std::string(node(name).text));
  }
  void call(bool new_object, PickleRef keywords) {
    const PickleRef arguments = pop(), callable = pop();
    if (node(arguments).kind != Kind::kTuple) return refuse("arguments must be a tuple");
    if (keywords != PickleNode::kNoRef && node(keywords).kind != Kind::kDict)
      return refuse("keywords must be a dict");
    const PickleRef ref = make(Kind::kCall);
    node(ref).new_object = new_object;
    node(ref).keywords = keywords;
    node(ref).items = {callable, arguments};
    push(ref);
  }
  void append(const std::vector<PickleRef>& items) {
    PickleNode& target = node(top());
    if (target.kind != Kind::kList && target.kind != Kind::kCall) return refuse("append to what is no list");
    std::vector<PickleRef>& into = target.kind == Kind::kList ? target.items : target.appended;
    into.insert(into.end(), items.begin(), items.end());
  }
  void set_items(const std::vector<PickleRef>& items) {
    if (items.size() % 2 != 0) return refuse("a key without value");
    for (std::size_t i = 0; i < items.size(); i += 2) {
      const Kind key = node(items[i]).kind;
      if (key == Kind::kList || key == Kind::kDict || key == Kind::kSet || key == Kind::kByteArray)
        return refuse("a key that cannot be one");
    }
    PickleNode& target = node(top());
    if (target.kind != Kind::kDict && target.kind != Kind::kCall) return refuse("set in what is no dict");
    std::vector<PickleRef>& into = target.kind == Kind::kDict ? target.items : target.set_items;
    into.insert(into.end(), items.begin(), items.end());
  }
  void dict_of(std::vector<PickleRef> items) {
    push(make(Kind::kDict));
    set_items(items);
  }
  void add_to_set(const std::vector<PickleRef>& items) {
    PickleNode& target = node(top());
    if (target.kind != Kind::kSet) return refuse("add to what is no set");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }
  void build() {
    const PickleRef state = pop();
    PickleNode& target = node(top());
    if (target.kind != Kind::kCall || target.state != PickleNode::kNoRef)
      return refuse("no object to give a state");
    target.state = state;
  }
  void get(std::uint64_t id) {
    const auto found = memo_.find(id);
    if (found == memo_.end()) return refuse(fmt::format("no object {} in the memo", id));
    push(found->second);
  }
  void protocol(std::uint64_t version) {
    if (version < 2 || version > 5) refuse(fmt::format("protocol {}, 2 to 5 are read", version));
  }
  void stop() {
    out_.root = pop();
    if (!stack_.empty() || !marks_.empty()) refuse("something is left on the stack");
    stopped_ = true;
  }

  void step(unsigned char code) {
    if (!step_scalar(code) && !step_collection(code) && !step_object(code))
      refuse(code == op::kInt || code == op::kLong || code == op::kFloat || code == op::kString ||
                     code == op::kUnicode || code == op::kGet || code == op::kPut || code == op::kPersId ||
                     code == op::kInst || code == op::kObj
                 ? "an opcode of protocol 0 or 1"
                 : "not an opcode that data needs");
  }

  bool step_scalar(unsigned char code) {
    switch (code) {
      case op::kProto:
        protocol(number(1));
        return true;
      case op::kFrame:
        (void)number(8);
        return true;  // frames say where to read from, not what
      case op::kNone:
        push(kNone);
        return true;
      case op::kNewTrue:
        push(kTrue);
        return true;
      case op::kNewFalse:
        push(kFalse);
        return true;
      case op::kBinInt:
        integer(static_cast<std::int32_t>(number(4)));
        return true;
      case op::kBinInt1:
        integer(static_cast<std::int64_t>(number(1)));
        return true;
      case op::kBinInt2:
        integer(static_cast<std::int64_t>(number(2)));
        return true;
      case op::kLong1:
        big_int(number(1));
        return true;
      case op::kLong4:
        big_int(number(4));
        return true;
      case op::kBinFloat:
        real();
        return true;
      case op::kShortBinUnicode:
        text(Kind::kText, number(1));
        return true;
      case op::kBinUnicode:
        text(Kind::kText, number(4));
        return true;
      case op::kBinUnicode8:
        text(Kind::kText, number(8));
        return true;
      case op::kShortBinString:
        text(Kind::kBytes, number(1));
        return true;  // str of Python 2
      case op::kBinString:
        text(Kind::kBytes, number(4));
        return true;
      case op::kShortBinBytes:
        text(Kind::kBytes, number(1));
        return true;
      case op::kBinBytes:
        text(Kind::kBytes, number(4));
        return true;
      case op::kBinBytes8:
        text(Kind::kBytes, number(8));
        return true;
      case op::kByteArray8:
        text(Kind::kByteArray, number(8));
        return true;
      default:
        return false;
    }
  }

  bool step_collection(unsigned char code) {
    switch (code) {
      case op::kMark:
        marks_.push_back(stack_.size());
        return true;
      case op::kEmptyTuple:
        tuple_of(0);
        return true;
      case op::kTuple1:
        tuple_of(1);
        return true;
      case op::kTuple2:
        tuple_of(2);
        return true;
      case op::kTuple3:
        tuple_of(3);
        return true;
      case op::kTuple:
        collection(Kind::kTuple, pop_mark());
        return true;
      case op::kEmptyList:
        collection(Kind::kList, {});
        return true;
      case op::kList:
        collection(Kind::kList, pop_mark());
        return true;
      case op::kAppend: {
        const PickleRef item = pop();
        append({item});
        return true;
      }
      case op::kAppends:
        append(pop_mark());
        return true;
      case op::kEmptyDict:
        collection(Kind::kDict, {});
        return true;
      case op::kDict:
        dict_of(pop_mark());
        return true;
      case op::kSetItem: {
        const PickleRef value = pop(), key = pop();
        set_items({key, value});
        return true;
      }
      case op::kSetItems:
        set_items(pop_mark());
        return true;
      case op::kEmptySet:
        collection(Kind::kSet, {});
        return true;
      case op::kAddItems:
        add_to_set(pop_mark());
        return true;
      case op::kFrozenSet:
        collection(Kind::kFrozenSet, pop_mark());
        return true;
      default:
        return false;
    }
  }

  bool step_object(unsigned char code) {
    switch (code) {
      case op::kStop:
        stop();
        return true;
      case op::kPop:
        if (stack_.size() == floor() && !marks_.empty()) {
          marks_.pop_back();
        } else {
          (void)pop();
        }
        return true;
      case op::kPopMark:
        (void)pop_mark();
        return true;
      case op::kDup:
        push(top());
        return true;
      case op::kGlobal: {
        const std::string_view module = line();
        global(module, line());
        return true;
      }
      case op::kStackGlobal:
        stack_global();
        return true;
      case op::kReduce:
        call(false, PickleNode::kNoRef);
        return true;
      case op::kNewObj:
        call(true, PickleNode::kNoRef);
        return true;
      case op::kNewObjEx: {
        const PickleRef keywords = pop();
        call(true, keywords);
        return true;
      }
      case op::kBuild:
        build();
        return true;
      case op::kBinPersId: {
        const PickleRef id = pop();
        collection(Kind::kPersistent, {id});
        return true;
      }
      case op::kBinGet:
        get(number(1));
        return true;
      case op::kLongBinGet:
        get(number(4));
        return true;
      case op::kBinPut:
        memo_[number(1)] = top();
        return true;
      case op::kLongBinPut:
        memo_[number(4)] = top();
        return true;
      case op::kMemoize:
        memo_[memo_.size()] = top();
        return true;
      default:
        return false;
    }
  }

  std::string_view data_;
  const std::string& what_;
  PickleLimits limits_;
  Pickle out_;
  std::size_t at_ = 0, start_ = 0, texts_ = 0;
  std::uint64_t opcode_ = 0;
  bool stopped_ = false;
  std::string error_;
  std::vector<PickleRef> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, PickleRef> memo_;
};

}  // namespace

bool PickleNode::is_global(std::string_view module, std::string_view name) const {
  return kind == Kind::kGlobal && text.size() == module.size() + 1 + name.size() &&
         text.starts_with(module) && text.ends_with(name) && text[module.size()] == '\n';
}

Result<Pickle> parse_pickle(std::string_view data, const std::string& what, const PickleLimits& limits,
                            std::size_t* used) {
  return Reader(data, what, limits).run(used);
}

}  // namespace plumbline
