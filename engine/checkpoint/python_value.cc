#include "engine/checkpoint/python_value.h"

#include <cstring>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/checkpoint/numpy_value.h"
#include "engine/checkpoint/python_names.h"

namespace plumbline {
namespace {

using Kind = PickleNode::Kind;
constexpr int kMaxDepth = 400;

class Reader {
 public:
  Reader(const Pickle& pickle, const std::string& what, const StorageSource& storages,
         const PythonOptions& options)
      : pickle_(pickle), what_(what), storages_(storages), options_(options) {}

  Result<StateValue> run() {
    StateValue value = convert(pickle_.root);
    if (!error_.empty()) return fail(ErrorCode::kParse, fmt::format("{}: {}", what_, error_));
    return value;
  }

 private:
  StateValue refuse(std::string why) {
    if (error_.empty()) {
      std::string path;
      for (const std::string& part : path_) path += (path.empty() ? "" : ".") + part;
      error_ = path.empty() ? why : path + ": " + why;
    }
    return {};
  }

  StateValue convert(PickleRef ref) {
    if (!error_.empty()) return {};
    if (++values_ > options_.values) return refuse(fmt::format("more than {} values", options_.values));
    const PickleNode& node = pickle_.at(ref);
    switch (node.kind) {
      case Kind::kNone:
        return {};
      case Kind::kBool:
        return node.integer != 0;
      case Kind::kInt:
        return node.integer;
      case Kind::kFloat:
        return node.real;
      case Kind::kText:
        return node.text;
      case Kind::kBytes:
      case Kind::kByteArray:
        return std::vector<std::uint8_t>(node.text.begin(), node.text.end());
      case Kind::kBigInt:
        return StateDict{{kPythonKey, "int"}, {"hex", big_int_text(node.text)}};
      case Kind::kGlobal:
        return StateDict{{kPythonKey, dotted(node)}};
      default:
        break;
    }
    if (open_.size() >= kMaxDepth) return refuse(fmt::format("nested deeper than {}", kMaxDepth));
    if (!open_.insert(ref).second) return refuse("an object that contains itself");
    StateValue value = compound(node);
    open_.erase(ref);
    return value;
  }

  StateValue compound(const PickleNode& node) {
    switch (node.kind) {
      case Kind::kTuple:
        if (options_.keep_python) return StateDict{{kPythonKey, "tuple"}, {"items", list(node.items)}};
        return list(node.items);
      case Kind::kList:
        return list(node.items);
      case Kind::kDict:
        return dict(node.items);
      case Kind::kSet:
      case Kind::kFrozenSet:
        return StateDict{{kPythonKey, node.kind == Kind::kSet ? "set" : "frozenset"},
                         {"items", list(node.items)}};
      case Kind::kCall:
        return call(node);
      default:
        return refuse("a persistent id that is no storage's");
    }
  }

  StateList list(const std::vector<PickleRef>& items) {
    StateList out;
    for (std::size_t i = 0; i < items.size() && error_.empty(); ++i) {
      path_.push_back(std::to_string(i));
      out.push_back(convert(items[i]));
      path_.pop_back();
    }
    return out;
  }

  // A dictionary, or its pairs when a key has no form as a text.
  StateValue dict(const std::vector<PickleRef>& items) {
    StateDict out;
    bool plain = true;
    for (std::size_t i = 0; i < items.size(); i += 2) {
      const PickleNode& key = pickle_.at(items[i]);
      plain = plain && (key.kind == Kind::kText || (key.kind == Kind::kInt && !options_.keep_python));
    }
    if (!plain) return StateDict{{kPythonKey, "dict"}, {"pairs", pairs(items)}};
    std::set<std::string> seen;
    for (std::size_t i = 0; i < items.size() && error_.empty(); i += 2) {
      const PickleNode& key = pickle_.at(items[i]);
      const std::string name = key.kind == Kind::kText ? key.text : std::to_string(key.integer);
      path_.push_back(name);
      if (name == kPythonKey) return refuse("this key is taken");
      StateValue value = convert(items[i + 1]);
      // Python's dict keeps the last value at the first place; two keys that only look alike are an error.
      if (!seen.insert(name).second) {
        if (key.kind == Kind::kInt) return refuse("this key comes as a number and as a text, or twice");
        out[name] = std::move(value);
      } else {
        // Appended without a search.
        append(out, name, std::move(value));
      }
      path_.pop_back();
    }
    return out;
  }
  static void append(StateDict& dict, const std::string& name, StateValue value) {
    dict[name] = std::move(value);
  }

  StateList pairs(const std::vector<PickleRef>& items) {
    StateList out;
    for (std::size_t i = 0; i + 1 < items.size() && error_.empty(); i += 2)
      out.push_back(StateList{convert(items[i]), convert(items[i + 1])});
    return out;
  }

  StateValue call(const PickleNode& node) {
    const PickleNode& callable = pickle_.at(node.items[0]);
    const std::vector<PickleRef>& args = pickle_.at(node.items[1]).items;
    if (callable.kind != Kind::kGlobal) return opaque(node);
    const std::string name = dotted(callable);
    if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_tensor")
      return tensor(args);
    if (name == "torch._utils._rebuild_parameter" || name == "torch._utils._rebuild_parameter_with_state")
      return args.empty() ? refuse("a parameter without tensor") : convert(args[0]);
    if (!options_.keep_python) {
      if (dict_like(name) && node.appended.empty()) return dict(node.set_items);
      if (namespace_like(name) && node.state != PickleNode::kNoRef &&
          pickle_.at(node.state).kind == Kind::kDict)
        return dict(pickle_.at(node.state).items);
      if (name == "torch.Size" && args.size() == 1) return convert(args[0]);
      if (const auto number = numpy_scalar(pickle_, node)) return *number;
      if (const auto array = numpy_array(pickle_, node)) return *array;
    }
    if (name == "_codecs.encode" && !args.empty() && pickle_.at(args[0]).kind == Kind::kText) {
      if (const auto bytes = latin1_bytes(pickle_.at(args[0]).text)) return *bytes;
    }
    return opaque(node);
  }

  StateValue opaque(const PickleNode& node) {
    const PickleNode& callable = pickle_.at(node.items[0]);
    if (callable.kind != Kind::kGlobal) return refuse("a call of what is no global");
    StateDict out{{kPythonKey, dotted(callable)},
                  {"args", list(pickle_.at(node.items[1]).items)},
                  {"new", node.new_object}};
    if (node.keywords != PickleNode::kNoRef) out["keywords"] = convert(node.keywords);
    if (node.state != PickleNode::kNoRef) out["state"] = convert(node.state);
    if (!node.appended.empty()) out["items"] = list(node.appended);
    if (!node.set_items.empty()) out["pairs"] = pairs(node.set_items);
    return out;
  }

  bool integers(PickleRef ref, std::vector<std::int64_t>& out) const {
    const PickleNode& node = pickle_.at(ref);
    if (node.kind == Kind::kCall && !pickle_.at(node.items[1]).items.empty()) {  // torch.Size((2, 3))
      return dotted(pickle_.at(node.items[0])) == "torch.Size" &&
             integers(pickle_.at(node.items[1]).items[0], out);
    }
    if (node.kind != Kind::kTuple && node.kind != Kind::kList) return false;
    for (const PickleRef item : node.items) {
      if (pickle_.at(item).kind != Kind::kInt || pickle_.at(item).integer < 0) return false;
      out.push_back(pickle_.at(item).integer);
    }
    return true;
  }

  StateValue tensor(const std::vector<PickleRef>& args) {
    std::vector<std::int64_t> size, stride;
    if (args.size() < 4 || pickle_.at(args[0]).kind != Kind::kPersistent ||
        pickle_.at(args[1]).kind != Kind::kInt || !integers(args[2], size) || !integers(args[3], stride) ||
        size.size() != stride.size())
      return refuse("a tensor of no known form");
    const at::Tensor whole = storage(pickle_.at(args[0]).items[0]);
    if (!error_.empty()) return {};
    // The last element must lie inside; products that overflow do not.
    const std::int64_t offset = pickle_.at(args[1]).integer;
    std::int64_t last = offset, count = 1;
    bool overflow = offset < 0;
    for (std::size_t d = 0; d < size.size(); ++d) {
      std::int64_t reach = 0;
      if (size[d] == 0) {
        count = 0;
        continue;
      }
      overflow = overflow || __builtin_mul_overflow(size[d] - 1, stride[d], &reach) ||
                 __builtin_add_overflow(last, reach, &last) ||
                 (count != 0 && __builtin_mul_overflow(count, size[d], &count));
    }
    if (overflow || offset > whole.numel() || (count > 0 && last >= whole.numel()))
      return refuse(fmt::format("a tensor that reaches beyond its storage of {} elements", whole.numel()));
    if (count > whole.numel() * 1024 + 1024) return refuse("a tensor expanded beyond all measure");
    return whole.as_strided(size, stride, offset);
  }

  // ('storage', torch.FloatStorage, key, device, elements)
  at::Tensor storage(PickleRef id) {
    const PickleNode& node = pickle_.at(id);
    const auto part = [&](std::size_t i) -> const PickleNode& { return pickle_.at(node.items[i]); };
    const bool formed = node.kind == Kind::kTuple && node.items.size() >= 5 && part(0).text == "storage" &&
                        part(1).kind == Kind::kGlobal && part(2).kind == Kind::kText &&
                        part(4).kind == Kind::kInt;
    if (!formed || part(4).integer < 0) return refuse("a storage of no known form"), at::Tensor();
    const std::optional<at::ScalarType> type = storage_type(dotted(part(1)));
    if (!type) return refuse("storage type " + dotted(part(1)) + " is not known"), at::Tensor();
    const auto known = tensors_.find(part(2).text);
    if (known != tensors_.end()) {
      if (known->second.scalar_type() == *type && known->second.numel() == part(4).integer)
        return known->second;
      return refuse("storage '" + part(2).text + "' is used as two types"), at::Tensor();
    }
    Result<at::Tensor> got = storages_({part(2).text, *type, part(4).integer});
    if (!got) return refuse(got.error().message), at::Tensor();
    return tensors_[part(2).text] = std::move(*got);
  }

  const Pickle& pickle_;
  const std::string& what_;
  const StorageSource& storages_;
  PythonOptions options_;
  std::size_t values_ = 0;
  std::string error_;
  std::vector<std::string> path_;
  std::set<PickleRef> open_;
  std::map<std::string, at::Tensor> tensors_;
};

}  // namespace

Result<StateValue> state_from_pickle(const Pickle& pickle, const std::string& what,
                                     const StorageSource& storages, const PythonOptions& options) {
  return Reader(pickle, what, storages, options).run();
}

}  // namespace plumbline
