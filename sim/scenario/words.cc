#include "sim/scenario/words.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/base/text.h"

namespace plumbline::scenario {
namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool mark(char c) { return c == ':' || c == ';' || c == '{' || c == '}'; }
constexpr int kDeepest = 16;  // braces inside each other that are read; how many make sense, the tree says

struct Word {
  std::string text;
  bool quoted = false;
  bool is(std::string_view other) const { return !quoted && text == other; }
};

Result<std::vector<Word>> words_of(std::string_view text) {
  std::vector<Word> words;
  std::size_t at = 0;
  while (true) {
    while (at < text.size() && blank(text[at])) ++at;
    if (at == text.size()) return words;
    Word& word = words.emplace_back();
    if (mark(text[at])) {
      word.text = text[at++];
    } else if (text[at] != '"') {
      while (at < text.size() && !blank(text[at]) && !mark(text[at]) && text[at] != '"')
        word.text += text[at++];
    } else {
      word.quoted = true;
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\' && at + 1 < text.size() && (text[at + 1] == '"' || text[at + 1] == '\\')) ++at;
        word.text += text[at];
      }
      if (at == text.size()) return fail(ErrorCode::kParse, "a quoted name is not closed");
      ++at;
    }
  }
}

class Sentence {
 public:
  explicit Sentence(std::vector<Word> words) : words_(std::move(words)) {}

  Result<Json> host_op() {
    if (words_.empty()) return fail(ErrorCode::kParse, "a host operation is empty");
    const std::string head = take().text;
    Json out = Json::object();
    if (head == "group") {
      out["host"] = head;
      PL_TRY(on_stream(out));
      PL_TRY(expect(":"));
      PL_TRY(calls(out, 0));
    } else if (head == "graph_end" || head == "exit") {
      out["host"] = head;
    } else if (head == "launch" || head == "graph_begin" || head == "fault") {
      out["host"] = head;
      PL_TRY(on_stream(out));
    } else if (head == "record" || head == "wait") {
      out["host"] = head;
      PL_TRY(name(out, "event"));
      PL_TRY(on_stream(out));
    } else if (head == "sync_stream" || head == "sync_event") {
      out["host"] = head;
      PL_TRY(name(out, head == "sync_stream" ? "stream" : "event"));
    } else if (head == "sync_device") {
      out["host"] = head;
    } else if (head == "comm_init" || head == "comm_split" || head == "comm_shrink" || head == "comm_grow" ||
               head == "comm_init_all") {
      out["host"] = head;
      PL_TRY(create(out, head));
    } else if (head.substr(0, 5) == "comm_" || head == "turn") {
      out["host"] = head;
      PL_TRY(name(out, "comm"));
      if (head != "turn") PL_TRY(flags(out, {"nonblocking"}));
    } else {
      out["host"] = "group";
      --at_;
      Json call;
      PL_TRY(this->call(call));
      out["ops"] = Json::array({std::move(call)});
      PL_TRY(on_stream(out));
    }
    if (at_ < words_.size()) return unexpected("the end");
    return out;
  }

 private:
  tl::unexpected<Error> unexpected(std::string_view wanted) const {
    return fail(ErrorCode::kParse,
                at_ < words_.size()
                    ? fmt::format("word {} is '{}'; {} was expected", at_ + 1, words_[at_].text, wanted)
                    : fmt::format("it ends where {} was expected", wanted));
  }

  const Word& take() { return words_[at_++]; }

  Status expect(std::string_view text) {
    if (at_ == words_.size() || !words_[at_].is(text)) return unexpected(fmt::format("'{}'", text));
    ++at_;
    return {};
  }

  Status name(Json& out, const char* key) {
    if (at_ == words_.size() || (!words_[at_].quoted && mark(words_[at_].text[0])))
      return unexpected("a name");
    out[key] = take().text;
    return {};
  }

  Status on_stream(Json& out) {
    PL_TRY(expect("on"));
    return name(out, "stream");
  }

  Status number(Json& out, std::string_view wanted) {
    const auto value = at_ < words_.size() && !words_[at_].quoted ? parse_integer(words_[at_].text)
                                                                  : Result<std::int64_t>(unexpected(wanted));
    if (!value) return unexpected(wanted);
    ++at_;
    out = *value;
    return {};
  }

  Status create(Json& out, const std::string& head) {
    const bool init = head == "comm_init" || head == "comm_init_all";
    if (!init) {
      PL_TRY(name(out, "parent"));
      PL_TRY(expect("into"));
    }
    PL_TRY(name(out, "comm"));
    out["ranks"] = Json::array();
    while (at_ < words_.size() && parse_integer(words_[at_].text))
      PL_TRY(number(out["ranks"].emplace_back(), "a rank"));
    if (out["ranks"].empty()) return unexpected("a rank");
    if (head == "comm_init" && at_ < words_.size() && words_[at_].is("release")) {
      ++at_;
      PL_TRY(name(out, "release"));
    }
    if (head == "comm_init_all") return {};
    return flags(out, {"nonblocking", head == "comm_split" ? "share" : head == "comm_shrink" ? "abort" : ""});
  }

  Status flags(Json& out, const std::vector<std::string_view>& known) {
    for (; at_ < words_.size(); ++at_) {
      const auto is = [&](std::string_view flag) { return words_[at_].is(flag); };
      if (words_[at_].text.empty() || std::none_of(known.begin(), known.end(), is))
        return unexpected("the end");
      out[words_[at_].text] = true;
    }
    return {};
  }

  // Up to the end, or inside of braces up to theirs.
  Status calls(Json& out, int depth) {
    out["ops"] = Json::array();
    while (true) {
      Json call;
      if (at_ < words_.size() && words_[at_].is("{")) {
        if (depth == kDeepest) return unexpected(fmt::format("a call, {} groups deep", depth));
        ++at_;
        call = {{"op", "group"}};
        PL_TRY(calls(call, depth + 1));
        PL_TRY(expect("}"));
      } else {
        PL_TRY(this->call(call));
        if (at_ < words_.size() && words_[at_].is("on")) PL_TRY(on_stream(call));
        if (at_ < words_.size() && words_[at_].is("uncaptured")) {
          call["uncaptured"] = true;
          ++at_;
        }
      }
      out["ops"].push_back(std::move(call));
      if (depth > 0 && at_ < words_.size() && words_[at_].is("}")) return {};
      if (depth == 0 && at_ == words_.size()) return {};
      PL_TRY(expect(";"));
    }
  }

  Status call(Json& out) {
    if (at_ == words_.size()) return unexpected("a call");
    out = Json::object();
    const std::string kind = words_[at_].text;
    const bool send = words_[at_].is("send");
    const bool p2p = send || words_[at_].is("recv");
    std::optional<ScenarioOpKind> known;
    for (int k = 0; k < kScenarioOpKinds; ++k) {
      if (words_[at_].is(scenario_op_name(static_cast<ScenarioOpKind>(k))))
        known = static_cast<ScenarioOpKind>(k);
    }
    if (!known) return unexpected("a host operation or a call");
    ++at_;
    out["op"] = kind;
    PL_TRY(name(out, "comm"));
    if (p2p) {
      PL_TRY(expect(send ? "to" : "from"));
      PL_TRY(number(out["peer"], "a rank"));
    } else if (is_rooted(*known)) {
      PL_TRY(expect("root"));
      PL_TRY(number(out["root"], "a rank"));
    }
    const auto size = at_ < words_.size() && !words_[at_].quoted ? parse_bytes(words_[at_].text)
                                                                 : Result<Bytes>(unexpected("a size"));
    if (!size) return unexpected("a size such as 4096 or 100MiB");
    ++at_;
    out["bytes"] = *size;
    if (!p2p || at_ == words_.size() || !words_[at_].is("as")) return {};
    ++at_;
    return name(out, "label");
  }

  std::vector<Word> words_;
  std::size_t at_ = 0;
};

std::string quoted_name(const std::string& name) {
  bool plain = !name.empty();
  for (const char c : name) plain = plain && !blank(c) && !mark(c) && c != '"' && c != '\\';
  if (plain) return name;
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// The largest unit that divides evenly.
std::string size_text(Bytes bytes) {
  constexpr std::array<std::pair<Bytes, const char*>, 3> kUnits{
      {{Bytes{1} << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}}};
  for (const auto& [size, unit] : kUnits) {
    if (bytes >= size && bytes % size == 0) return fmt::format("{}{}", bytes / size, unit);
  }
  return fmt::format("{}", bytes);
}

std::string call_text(const ScenarioOp& op) {
  std::string out = fmt::format("{} {}", scenario_op_name(op.kind), quoted_name(op.communicator));
  if (op.kind == ScenarioOpKind::kSend) out += fmt::format(" to {}", op.peer);
  if (op.kind == ScenarioOpKind::kRecv) out += fmt::format(" from {}", op.peer);
  if (is_rooted(op.kind)) out += fmt::format(" root {}", op.peer);
  out += ' ' + size_text(op.bytes);
  if (op.label) out += " as " + quoted_name(*op.label);
  if (!op.stream.empty()) out += " on " + quoted_name(op.stream);
  if (op.uncaptured) out += " uncaptured";
  return out;
}

std::string flags_text(const HostOp& op) {
  std::string out;
  if (op.nonblocking) out += " nonblocking";
  if (op.share) out += " share";
  if (op.abort) out += " abort";
  return out;
}

}  // namespace

Result<Json> host_op_of_words(std::string_view text) {
  Result<std::vector<Word>> words = words_of(text);
  if (!words) return tl::unexpected(words.error());
  return Sentence(std::move(*words)).host_op();
}

std::string words_of_host_op(const HostOp& op) {
  const std::string_view head = host_op_name(op.kind);
  switch (op.kind) {
    case HostOpKind::kGroup: {
      if (op.ops.size() == 1 && op.ops.front().stream.empty() && !op.ops.front().uncaptured)
        return call_text(op.ops.front()) + " on " + quoted_name(op.stream);
      std::string out = fmt::format("group on {}:", quoted_name(op.stream));
      for (std::size_t i = 0; i < op.ops.size(); ++i) out += (i == 0 ? " " : "; ") + call_text(op.ops[i]);
      return out;
    }
    case HostOpKind::kLaunch:
    case HostOpKind::kGraphBegin:
    case HostOpKind::kFault:
      return fmt::format("{} on {}", head, quoted_name(op.stream));
    case HostOpKind::kGraphEnd:
    case HostOpKind::kExit:
      return std::string(head);
    case HostOpKind::kRecord:
    case HostOpKind::kWait:
      return fmt::format("{} {} on {}", head, quoted_name(op.event), quoted_name(op.stream));
    case HostOpKind::kSyncStream:
      return fmt::format("{} {}", head, quoted_name(op.stream));
    case HostOpKind::kSyncEvent:
      return fmt::format("{} {}", head, quoted_name(op.event));
    case HostOpKind::kSyncDevice:
      return std::string(head);
    case HostOpKind::kCommInit:
    case HostOpKind::kCommSplit:
    case HostOpKind::kCommShrink:
    case HostOpKind::kCommGrow:
    case HostOpKind::kCommInitAll: {
      std::string out(head);
      if (!op.parent.empty()) out += fmt::format(" {} into", quoted_name(op.parent));
      out += fmt::format(" {} {}", quoted_name(op.communicator), fmt::join(op.ranks, " "));
      if (!op.release.empty()) out += " release " + quoted_name(op.release);
      return out + flags_text(op);
    }
    case HostOpKind::kCommFinalize:
    case HostOpKind::kCommDestroy:
    case HostOpKind::kCommAbort:
    case HostOpKind::kCommReady:
    case HostOpKind::kCommSync:
    case HostOpKind::kCommRevoke:
    case HostOpKind::kTurn:
      return fmt::format("{} {}{}", head, quoted_name(op.communicator), flags_text(op));
  }
  return {};
}

}  // namespace plumbline::scenario
