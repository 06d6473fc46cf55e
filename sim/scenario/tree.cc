#include "sim/scenario/tree.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "engine/base/text.h"

namespace plumbline::scenario {
namespace {

constexpr int kDeepestGroup = 4;

// The way from the root to a value, kept on the stack of the reading functions.
struct Path {
  const Path* parent = nullptr;
  std::string_view key;
  std::size_t index = 0;

  std::string text() const {
    if (parent == nullptr) return {};
    std::string out = parent->text();
    if (key.empty()) return out + fmt::format("[{}]", index);
    if (!out.empty()) out += '.';
    return out.append(key);
  }
};

std::string_view type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a text";
    case Json::value_t::boolean:
      return "true or false";
    default:
      return "a number";
  }
}

class Reader {
 public:
  explicit Reader(const Source& source) : source_(source) {}

  Result<Scenario> run(const Json& root) {
    const Path path;
    PL_TRY(keys(root, path,
                {"id", "source", "class", "note", "communicators", "threads", "model_options",
                 "legacy_stream", "verdict"}));
    PL_TRY(text(root, path, "id", true, out_.id));
    if (out_.id.empty()) return bad(path, "an id is a text of at least one character");
    PL_TRY(text(root, path, "source", false, out_.source));
    PL_TRY(text(root, path, "class", false, out_.category));
    PL_TRY(text(root, path, "note", false, out_.note));
    PL_TRY(text(root, path, "legacy_stream", false, out_.legacy_stream));
    PL_TRY(communicators(root, path));
    members_ = out_.communicators;
    PL_TRY(created(root, path));
    PL_TRY(options(root, path));
    PL_TRY(expected(root, path));
    PL_TRY(threads(root, path));
    out_.line = source_.line;
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> bad(const Path& path, const std::string& message) const {
    const std::string place = path.text();
    return fail(ErrorCode::kParse, place.empty() ? message : place + ": " + message, source_.where(place));
  }

  // An object with no other keys than these.
  Status keys(const Json& value, const Path& path, const std::vector<std::string>& allowed) const {
    if (!value.is_object()) return bad(path, fmt::format("is {}; an object was expected", type_of(value)));
    for (const auto& [key, member] : value.items()) {
      if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
      const std::string near = nearest(key, allowed);
      return bad({&path, key},
                 fmt::format("is not known here; {}",
                             near.empty() ? fmt::format("known are {}", fmt::join(allowed, ", "))
                                          : fmt::format("did you mean '{}'?", near)));
    }
    return {};
  }

  Result<const Json*> member(const Json& object, const Path& path, std::string_view key) const {
    const auto found = object.find(std::string(key));
    if (found == object.end()) return bad(path, fmt::format("lacks '{}'", key));
    return &*found;
  }

  // A text; null counts as absent where the text is not needed.
  Status text(const Json& object, const Path& path, std::string_view key, bool needed,
              std::string& out) const {
    const auto found = object.find(std::string(key));
    if (found == object.end() || (found->is_null() && !needed))
      return needed ? Status(bad(path, fmt::format("lacks '{}'", key))) : Status();
    if (!found->is_string())
      return bad({&path, key}, fmt::format("is {}; a text was expected", type_of(*found)));
    out = found->get<std::string>();
    return {};
  }

  Status name(const Json& object, const Path& path, std::string_view key, std::string& out) const {
    PL_TRY(text(object, path, key, true, out));
    if (out.empty()) return bad({&path, key}, "is empty; a name has at least one character");
    return {};
  }

  template <typename T>
  Status number(const Json& value, const Path& path, std::int64_t least, std::int64_t most, T& out) const {
    if (!value.is_number_integer())
      return bad(path, fmt::format("is {}; a whole number was expected", type_of(value)));
    const bool too_large =
        value.is_number_unsigned() && value.get<std::uint64_t>() > (std::uint64_t{1} << 62);
    if (too_large || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
      return bad(path, fmt::format("{} is not from {} to {}", value.dump(), least, most));
    out = static_cast<T>(value.get<std::int64_t>());
    return {};
  }

  Status rank(const Json& value, const Path& path, Rank& out) const {
    return number(value, path, 0, kMostScenarioRanks - 1, out);
  }

  Status ranks(const Json& value, const Path& path, std::vector<Rank>& out, bool twice = false) const {
    if (!value.is_array() || value.empty())
      return bad(path, fmt::format("is {}; a list of ranks was expected",
                                   value.is_array() ? "empty" : type_of(value)));
    std::set<Rank> seen;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const Path at{&path, {}, i};
      Rank member = 0;
      PL_TRY(rank(value[i], at, member));
      if (!seen.insert(member).second && !twice)
        return bad(at, fmt::format("names rank {} a second time", member));
      out.push_back(member);
    }
    return {};
  }

  // In the order of their first mention.
  static std::vector<Rank> distinct(std::vector<Rank> ranks) {
    std::vector<Rank> out;
    for (const Rank rank : ranks) {
      if (std::find(out.begin(), out.end(), rank) == out.end()) out.push_back(rank);
    }
    return out;
  }

  // "2.28.9".
  Status release(const Json& object, const Path& path, std::string& out) const {
    PL_TRY(text(object, path, "release", false, out));
    if (object.find("release") == object.end() || nccl_release(out) > 0) return {};
    return bad({&path, "release"}, fmt::format("'{}' is no release of NCCL; write 2.28.9", out));
  }

  Status communicators(const Json& root, const Path& path) {
    const Result<const Json*> all = member(root, path, "communicators");
    if (!all) return tl::unexpected(all.error());
    const Path at{&path, "communicators"};
    if (!(*all)->is_object())
      return bad(at, fmt::format("is {}; an object from name to ranks was expected", type_of(**all)));
    for (const auto& [name, members] : (*all)->items()) {
      const Path one{&at, name};
      if (name.empty()) return bad(at, "a communicator's name has at least one character");
      PL_TRY(ranks(members, one, out_.communicators[name]));
    }
    return {};
  }

  Status flag(const Json& object, const Path& path, const char* key, bool& out) const {
    const auto found = object.find(key);
    if (found == object.end()) return {};
    if (!found->is_boolean())
      return bad({&path, key}, fmt::format("is {}; true or false was expected", type_of(*found)));
    out = found->get<bool>();
    return {};
  }

  Status options(const Json& root, const Path& path) {
    const auto found = root.find("model_options");
    if (found == root.end()) return {};
    const Path at{&path, "model_options"};
    PL_TRY(keys(*found, at,
                {"launch_blocking", "max_ops_per_kernel", "plan_restarts_rounds", "ranks_per_node"}));
    PL_TRY(flag(*found, at, "launch_blocking", out_.options.launch_blocking));
    PL_TRY(flag(*found, at, "plan_restarts_rounds", out_.options.plan_restarts_rounds));
    if (const auto node = found->find("ranks_per_node"); node != found->end())
      PL_TRY(number(*node, {&at, "ranks_per_node"}, 1, kMostScenarioRanks, out_.options.ranks_per_node));
    const auto most = found->find("max_ops_per_kernel");
    if (most == found->end()) return {};
    return number(*most, {&at, "max_ops_per_kernel"}, 1, 1 << 20, out_.options.max_ops_per_kernel);
  }

  Status expected(const Json& root, const Path& path) {
    const auto found = root.find("verdict");
    if (found == root.end()) return {};
    const Path at{&path, "verdict"};
    if (!found->is_object())
      return bad(at, fmt::format("is {}; an object from mode to value was expected", type_of(*found)));
    for (const auto& [mode, value] : found->items()) {
      if (!value.is_string())
        return bad({&at, mode}, fmt::format("is {}; a text was expected", type_of(value)));
      out_.expected[mode] = value.get<std::string>();
    }
    return {};
  }

  Status threads(const Json& root, const Path& path) {
    const Result<const Json*> all = member(root, path, "threads");
    if (!all) return tl::unexpected(all.error());
    const Path at{&path, "threads"};
    if (!(*all)->is_array() || (*all)->empty())
      return bad(at, (*all)->is_array()
                         ? "is empty; at least one thread was expected"
                         : fmt::format("is {}; a list of threads was expected", type_of(**all)));
    for (std::size_t i = 0; i < (*all)->size(); ++i) PL_TRY(thread((**all)[i], {&at, {}, i}));
    return {};
  }

  Status thread(const Json& value, const Path& path) {
    PL_TRY(keys(value, path, {"rank", "host_ops"}));
    ScenarioThread& out = out_.threads.emplace_back();
    const Result<const Json*> rank = member(value, path, "rank");
    if (!rank) return tl::unexpected(rank.error());
    PL_TRY(this->rank(**rank, {&path, "rank"}, out.rank));
    const Result<const Json*> ops = member(value, path, "host_ops");
    if (!ops) return tl::unexpected(ops.error());
    const Path at{&path, "host_ops"};
    if (!(*ops)->is_array()) return bad(at, fmt::format("is {}; a list was expected", type_of(**ops)));
    for (std::size_t i = 0; i < (*ops)->size(); ++i) {
      PL_TRY(host_op((**ops)[i], {&at, {}, i}, out.rank, out.host_ops.emplace_back()));
    }
    return {};
  }

  Status host_op(const Json& value, const Path& path, Rank rank, HostOp& out) const {
    if (!value.is_object()) return bad(path, fmt::format("is {}; an object was expected", type_of(value)));
    std::string what;
    PL_TRY(name(value, path, "host", what));
    std::vector<std::string> known;
    for (int kind = 0; kind < kHostOpKinds; ++kind)
      known.emplace_back(host_op_name(static_cast<HostOpKind>(kind)));
    const auto at = std::find(known.begin(), known.end(), what);
    if (at == known.end())
      return bad({&path, "host"},
                 fmt::format("'{}' is no host operation ({})", what, fmt::join(known, ", ")));
    out.kind = static_cast<HostOpKind>(at - known.begin());
    switch (out.kind) {
      case HostOpKind::kGroup:
        return group(value, path, rank, out);
      case HostOpKind::kLaunch:
      case HostOpKind::kSyncStream:
        PL_TRY(keys(value, path, {"host", "stream"}));
        return name(value, path, "stream", out.stream);
      case HostOpKind::kRecord:
      case HostOpKind::kWait:
        PL_TRY(keys(value, path, {"host", "stream", "event"}));
        PL_TRY(name(value, path, "stream", out.stream));
        return name(value, path, "event", out.event);
      case HostOpKind::kSyncEvent:
        PL_TRY(keys(value, path, {"host", "event"}));
        return name(value, path, "event", out.event);
      case HostOpKind::kSyncDevice:
        return keys(value, path, {"host"});
      case HostOpKind::kGraphBegin:
        PL_TRY(keys(value, path, {"host", "stream"}));
        return name(value, path, "stream", out.stream);
      case HostOpKind::kGraphEnd:
      case HostOpKind::kExit:
        return keys(value, path, {"host"});
      case HostOpKind::kFault:
        PL_TRY(keys(value, path, {"host", "stream"}));
        return name(value, path, "stream", out.stream);
      case HostOpKind::kCommInit:
      case HostOpKind::kCommSplit:
      case HostOpKind::kCommShrink:
      case HostOpKind::kCommGrow:
      case HostOpKind::kCommInitAll:
        return create(value, path, rank, out);
      case HostOpKind::kCommFinalize:
      case HostOpKind::kCommDestroy:
        PL_TRY(keys(value, path, {"host", "comm", "nonblocking"}));
        PL_TRY(flag(value, path, "nonblocking", out.nonblocking));
        PL_TRY(name(value, path, "comm", out.communicator));
        return holds({&path, "comm"}, out.communicator, rank);
      case HostOpKind::kCommAbort:
      case HostOpKind::kCommReady:
      case HostOpKind::kCommSync:
      case HostOpKind::kCommRevoke:
      case HostOpKind::kTurn:
        PL_TRY(keys(value, path, {"host", "comm"}));
        PL_TRY(name(value, path, "comm", out.communicator));
        return holds({&path, "comm"}, out.communicator, rank);
    }
    return {};
  }

  // The communicators that some call creates, ahead of everything that may name them. Their shape is checked
  // where they are read.
  Status created(const Json& root, const Path& path) {
    const auto threads = root.find("threads");
    if (threads == root.end() || !threads->is_array()) return {};
    const Path at{&path, "threads"};
    for (std::size_t t = 0; t < threads->size(); ++t) {
      const Path thread{&at, {}, t};
      const Json& one = (*threads)[t];
      const auto ops = one.is_object() ? one.find("host_ops") : one.end();
      if (!one.is_object() || ops == one.end() || !ops->is_array()) continue;
      const Path list{&thread, "host_ops"};
      for (std::size_t i = 0; i < ops->size(); ++i) PL_TRY(created_by((*ops)[i], {&list, {}, i}));
    }
    return {};
  }

  Status created_by(const Json& op, const Path& path) {
    const auto what = op.is_object() ? op.find("host") : op.end();
    if (!op.is_object() || what == op.end() || !what->is_string()) return {};
    const auto text = what->get<std::string>();
    const bool all = text == "comm_init_all";
    if (!all && text != "comm_init" && text != "comm_split" && text != "comm_shrink" && text != "comm_grow")
      return {};
    std::string comm;
    PL_TRY(name(op, path, "comm", comm));
    const Result<const Json*> list = member(op, path, "ranks");
    if (!list) return tl::unexpected(list.error());
    std::vector<Rank> members;
    PL_TRY(ranks(**list, {&path, "ranks"}, members, all));
    members = distinct(std::move(members));
    if (out_.communicators.count(comm) != 0) {
      return bad({&path, "comm"},
                 fmt::format("communicator {} exists from the start; give this one another name", comm));
    }
    const auto [at, fresh] = members_.try_emplace(comm, members);
    if (at->second != members)
      return bad({&path, "ranks"},
                 fmt::format("differ from those that communicator {} is created with elsewhere", comm));
    return {};
  }

  Status create(const Json& value, const Path& path, Rank rank, HostOp& out) const {
    const bool split = out.kind == HostOpKind::kCommSplit;
    const bool shrink = out.kind == HostOpKind::kCommShrink;
    const bool grow = out.kind == HostOpKind::kCommGrow;
    const bool all = out.kind == HostOpKind::kCommInitAll;
    std::vector<std::string> allowed{"host", "comm", "ranks"};
    if (!all) allowed.emplace_back("nonblocking");
    if (split || shrink || grow) allowed.emplace_back("parent");
    if (split || shrink) allowed.emplace_back(split ? "share" : "abort");
    if (out.kind == HostOpKind::kCommInit) allowed.emplace_back("release");
    PL_TRY(keys(value, path, allowed));
    PL_TRY(name(value, path, "comm", out.communicator));
    const Result<const Json*> members = member(value, path, "ranks");
    if (!members) return tl::unexpected(members.error());
    const Path at{&path, "ranks"};
    PL_TRY(ranks(**members, at, out.ranks, all));
    PL_TRY(flag(value, path, "nonblocking", out.nonblocking));
    PL_TRY(release(value, path, out.release));
    if (grow) return grown(value, path, rank, out);
    if (!split && !shrink) return holds(at, out.communicator, rank);
    PL_TRY(flag(value, path, split ? "share" : "abort", split ? out.share : out.abort));
    PL_TRY(name(value, path, "parent", out.parent));
    const Path parent{&path, "parent"};
    PL_TRY(holds(parent, out.parent, rank));
    if (out.parent == out.communicator) return bad(parent, "a communicator is not made from itself");
    for (const Rank one : out.ranks) PL_TRY(holds(at, out.parent, one));
    return {};
  }

  // A rank of what is made calls it, and the parent's are all among them.
  Status grown(const Json& value, const Path& path, Rank rank, HostOp& out) const {
    PL_TRY(name(value, path, "parent", out.parent));
    const Path at{&path, "ranks"}, parent{&path, "parent"};
    PL_TRY(holds(at, out.communicator, rank));
    if (out.parent == out.communicator) return bad(parent, "a communicator is not made from itself");
    const auto known = members_.find(out.parent);
    if (known == members_.end()) return holds(parent, out.parent, rank);
    for (const Rank one : known->second) PL_TRY(holds(at, out.communicator, one));
    return {};
  }

  // The communicator is known and holds the rank.
  Status holds(const Path& path, const std::string& communicator, Rank rank) const {
    const auto found = members_.find(communicator);
    if (found == members_.end()) {
      std::vector<std::string> known;
      for (const auto& [name, ranks] : members_) known.push_back(name);
      const std::string near = nearest(communicator, known);
      return bad(path, fmt::format("no communicator is named '{}'{}", communicator,
                                   near.empty() ? "; list it under communicators, or create it"
                                                : fmt::format("; did you mean '{}'?", near)));
    }
    if (std::find(found->second.begin(), found->second.end(), rank) != found->second.end()) return {};
    return bad(path, fmt::format("communicator {} does not hold rank {}", communicator, rank));
  }

  Status group(const Json& value, const Path& path, Rank rank, HostOp& out) const {
    PL_TRY(keys(value, path, {"host", "stream", "ops"}));
    PL_TRY(name(value, path, "stream", out.stream));
    const Result<const Json*> ops = member(value, path, "ops");
    if (!ops) return tl::unexpected(ops.error());
    const Path at{&path, "ops"};
    if (!(*ops)->is_array() || (*ops)->empty())
      return bad(at, (*ops)->is_array() ? "is empty; a group holds at least one call"
                                        : fmt::format("is {}; a list of calls was expected", type_of(**ops)));
    return calls(**ops, at, rank, 0, out);
  }

  // A group inside a group is a part of it (N8).
  Status calls(const Json& ops, const Path& path, Rank rank, int depth, HostOp& out) const {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Path at{&path, {}, i};
      const auto kind = ops[i].is_object() ? ops[i].find("op") : ops[i].end();
      if (!ops[i].is_object() || kind == ops[i].end() || *kind != "group") {
        PL_TRY(call(ops[i], at, rank, out.ops.emplace_back()));
        continue;
      }
      PL_TRY(keys(ops[i], at, {"op", "ops"}));
      const Result<const Json*> inner = member(ops[i], at, "ops");
      if (!inner) return tl::unexpected(inner.error());
      const Path below{&at, "ops"};
      if (!(*inner)->is_array() || (*inner)->empty() || depth >= kDeepestGroup)
        return bad(below, fmt::format("a list of calls was expected, at most {} groups deep", kDeepestGroup));
      PL_TRY(calls(**inner, below, rank, depth + 1, out));
    }
    return {};
  }

  Status call(const Json& value, const Path& path, Rank rank, ScenarioOp& out) const {
    if (!value.is_object()) return bad(path, fmt::format("is {}; an object was expected", type_of(value)));
    std::string what;
    PL_TRY(name(value, path, "op", what));
    std::vector<std::string> known;
    for (int kind = 0; kind < kScenarioOpKinds; ++kind)
      known.emplace_back(scenario_op_name(static_cast<ScenarioOpKind>(kind)));
    const auto at = std::find(known.begin(), known.end(), what);
    if (at == known.end())
      return bad({&path, "op"}, fmt::format("'{}' is no operation ({})", what, fmt::join(known, ", ")));
    out.kind = static_cast<ScenarioOpKind>(at - known.begin());
    const bool p2p = out.kind == ScenarioOpKind::kSend || out.kind == ScenarioOpKind::kRecv;
    const bool rooted = is_rooted(out.kind);
    std::vector<std::string> allowed{"op", "comm", "bytes", "stream", "uncaptured"};
    if (p2p) allowed.insert(allowed.end(), {"peer", "label"});
    if (rooted) allowed.emplace_back("root");
    PL_TRY(keys(value, path, allowed));
    PL_TRY(name(value, path, "comm", out.communicator));
    PL_TRY(text(value, path, "stream", false, out.stream));
    PL_TRY(flag(value, path, "uncaptured", out.uncaptured));
    const Result<const Json*> bytes = member(value, path, "bytes");
    if (!bytes) return tl::unexpected(bytes.error());
    PL_TRY(number(**bytes, {&path, "bytes"}, 0, kMostScenarioBytes, out.bytes));
    if (p2p) {
      std::string label;
      PL_TRY(text(value, path, "label", false, label));
      const auto given = value.find("label");
      if (given != value.end() && !given->is_null()) out.label = std::move(label);
    }
    return members(value, path, rank, p2p ? "peer" : rooted ? "root" : "", out);
  }

  // The caller and its peer or root are members of the communicator.
  Status members(const Json& value, const Path& path, Rank rank, std::string_view key,
                 ScenarioOp& out) const {
    PL_TRY(holds({&path, "comm"}, out.communicator, rank));
    if (key.empty()) return {};
    const Result<const Json*> other = member(value, path, key);
    if (!other) return tl::unexpected(other.error());
    const Path at{&path, key};
    PL_TRY(this->rank(**other, at, out.peer));
    return holds(at, out.communicator, out.peer);
  }

  const Source& source_;
  Scenario out_;
  std::map<std::string, std::vector<Rank>> members_;  // of all communicators, created ones included
};

}  // namespace

Where Source::where(std::string path) const {
  while (true) {
    const auto found = places.find(path);
    if (found != places.end()) return found->second;
    const std::size_t cut = path.find_last_of(".[");
    if (path.empty() || cut == std::string::npos) return {file, line, 0};
    path.resize(cut);
  }
}

Result<Scenario> scenario_of(const Json& tree, const Source& source) { return Reader(source).run(tree); }

}  // namespace plumbline::scenario
