// States into pickles that torch.load(weights_only=True) takes: nothing but plain containers, tensors, and
// whatever opaque objects came in.
#include <algorithm>
#include <map>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/checkpoint/python_names.h"
#include "engine/checkpoint/python_value.h"
#include "engine/checkpoint/tensor_types.h"
#include "engine/storage/utf8.h"

namespace plumbline {
namespace {

using Kind = PickleNode::Kind;

class Writer {
 public:
  explicit Writer(const StorageSink& sink) : sink_(sink) {}

  Result<Pickle> run(const StateValue& value) {
    count_storages(value);
    out_.root = write(value);
    if (!error_.empty()) return fail(ErrorCode::kUnsupported, error_);
    return std::move(out_);
  }

 private:
  PickleRef make(Kind kind) {
    out_.nodes.emplace_back();
    out_.nodes.back().kind = kind;
    return static_cast<PickleRef>(out_.nodes.size() - 1);
  }
  PickleRef refuse(const std::string& why) {
    if (error_.empty()) error_ = why;
    return make(Kind::kNone);
  }
  PickleRef integer(std::int64_t value) {
    const PickleRef ref = make(Kind::kInt);
    out_.nodes[ref].integer = value;
    return ref;
  }
  PickleRef text(std::string value) {
    if (!valid_utf8(value)) return refuse("a text that is not UTF-8 cannot be a Python str");
    const PickleRef ref = make(Kind::kText);
    out_.nodes[ref].text = std::move(value);
    return ref;
  }
  PickleRef collection(Kind kind, std::vector<PickleRef> items) {
    const PickleRef ref = make(kind);
    out_.nodes[ref].items = std::move(items);
    return ref;
  }
  PickleRef global(const std::string& name) {
    const auto known = globals_.find(name);
    if (known != globals_.end()) return known->second;
    const std::size_t dot = name.rfind('.');
    if (dot == std::string::npos || dot == 0) return refuse("'" + name + "' is no name of a Python object");
    const PickleRef ref = make(Kind::kGlobal);
    out_.nodes[ref].text = name.substr(0, dot) + "\n" + name.substr(dot + 1);
    return globals_[name] = ref;
  }
  PickleRef call(const std::string& name, std::vector<PickleRef> args) {
    const PickleRef callable = global(name), tuple = collection(Kind::kTuple, std::move(args));
    return collection(Kind::kCall, {callable, tuple});
  }

  PickleRef write(const StateValue& value) {
    if (const auto* flag = value.get<bool>()) {
      const PickleRef ref = make(Kind::kBool);
      out_.nodes[ref].integer = *flag ? 1 : 0;
      return ref;
    }
    if (const auto* whole = value.get<std::int64_t>()) return integer(*whole);
    if (const auto* real = value.get<double>()) {
      const PickleRef ref = make(Kind::kFloat);
      out_.nodes[ref].real = *real;
      return ref;
    }
    if (const auto* characters = value.get<std::string>()) return text(*characters);
    if (const auto* bytes = value.get<std::vector<std::uint8_t>>()) {
      const PickleRef ref = make(Kind::kBytes);
      out_.nodes[ref].text.assign(bytes->begin(), bytes->end());
      return ref;
    }
    if (const auto* tensor = value.get<at::Tensor>()) return write_tensor(*tensor);
    if (const auto* list = value.get<StateList>()) return collection(Kind::kList, refs_of(*list));
    if (const auto* dict = value.get<StateDict>()) return write_dict(*dict);
    return make(Kind::kNone);
  }

  std::vector<PickleRef> refs_of(const StateList& list) {
    std::vector<PickleRef> refs;
    for (const StateValue& entry : list) refs.push_back(write(entry));
    return refs;
  }

  static bool decimal(const std::string& key) {
    const Result<std::int64_t> value = parse_integer(key);
    return value && std::to_string(*value) == key;
  }

  PickleRef write_dict(const StateDict& dict) {
    if (dict.contains(kPythonKey)) return write_python(dict);
    const bool numbers = !dict.empty() && std::all_of(dict.begin(), dict.end(),
                                                      [](const auto& e) { return decimal(e.first); });
    std::vector<PickleRef> items;
    for (const auto& [key, entry] : dict) {
      items.push_back(numbers ? integer(*parse_integer(key)) : text(key));
      items.push_back(write(entry));
    }
    return collection(Kind::kDict, std::move(items));
  }

  std::vector<PickleRef> list_of(const StateDict& dict, const char* key) {
    const StateValue* found = dict.find(key);
    if (found == nullptr) return {};
    if (found->get<StateList>() == nullptr)
      return refuse(fmt::format("'{}' of a Python object must be a list", key)), std::vector<PickleRef>{};
    return refs_of(*found->get<StateList>());
  }

  std::vector<PickleRef> pairs_of(const StateDict& dict) {
    std::vector<PickleRef> items;
    const StateValue* found = dict.find("pairs");
    if (found == nullptr) return items;
    const auto* list = found->get<StateList>();
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      const auto* pair = (*list)[i].get<StateList>();
      if (pair == nullptr || pair->size() != 2)
        return refuse("a pair of a Python object must be a list of two"), items;
      items.push_back(write((*pair)[0]));
      items.push_back(write((*pair)[1]));
    }
    return items;
  }

  PickleRef write_python(const StateDict& dict) {
    const Result<std::string> name = dict.text(kPythonKey);
    if (!name) return refuse(name.error().message);
    if (*name == "int") {
      const Result<std::string> hex = dict.text("hex");
      const auto bytes = hex ? big_int_bytes(*hex) : std::nullopt;
      if (!bytes) return refuse("a large integer without digits");
      const PickleRef ref = make(Kind::kBigInt);
      out_.nodes[ref].text = *bytes;
      return ref;
    }
    if (*name == "tuple") return collection(Kind::kTuple, list_of(dict, "items"));
    if (*name == "set") return collection(Kind::kSet, list_of(dict, "items"));
    if (*name == "frozenset") return collection(Kind::kFrozenSet, list_of(dict, "items"));
    if (*name == "dict") return collection(Kind::kDict, pairs_of(dict));
    if (!dict.contains("args")) return global(*name);
    const PickleRef ref = call(*name, list_of(dict, "args"));
    const Result<bool> made = dict.boolean("new");
    std::vector<PickleRef> items = list_of(dict, "items"), pairs = pairs_of(dict);
    const StateValue* state = dict.find("state");
    const PickleRef state_ref = state == nullptr ? PickleNode::kNoRef : write(*state);
    const StateValue* keywords = dict.find("keywords");
    const PickleRef keywords_ref = keywords == nullptr ? PickleNode::kNoRef : write(*keywords);
    PickleNode& node = out_.nodes[ref];
    node.new_object = made && *made;
    node.appended = std::move(items);
    node.set_items = std::move(pairs);
    node.state = state_ref;
    node.keywords = keywords_ref;
    return ref;
  }

  void count_storages(const StateValue& value) {
    if (const auto* tensor = value.get<at::Tensor>()) {
      if (tensor->defined() && tensor->device().is_cpu()) ++uses_[tensor->storage().unsafeGetStorageImpl()];
    }
    if (const auto* list = value.get<StateList>()) {
      for (const StateValue& entry : *list) count_storages(entry);
    }
    if (const auto* dict = value.get<StateDict>()) {
      for (const auto& [key, entry] : *dict) count_storages(entry);
    }
  }

  struct Stored {
    PickleRef id;
    at::ScalarType type;
  };

  // A storage several tensors share goes whole, once; a tensor that is alone on a larger one is cut out of
  // it.
  PickleRef write_tensor(const at::Tensor& given) {
    if (!given.defined()) return refuse("a tensor that is not defined");
    const std::string name = storage_name(given.scalar_type());
    if (name.empty())
      return refuse(fmt::format("torch files have no storage for {}", at::toString(given.scalar_type())));
    at::Tensor tensor = given.detach();
    const bool shared = tensor.device().is_cpu() && uses_[tensor.storage().unsafeGetStorageImpl()] > 1;
    if (!shared) tensor = plain_tensor(tensor);
    if (!shared &&
        static_cast<std::int64_t>(tensor.storage().nbytes()) != tensor.numel() * tensor.element_size())
      tensor = tensor.clone();
    const auto* impl = tensor.storage().unsafeGetStorageImpl();
    const auto elements = static_cast<std::int64_t>(tensor.storage().nbytes()) / tensor.element_size();
    auto known = shared ? stored_.find(impl) : stored_.end();
    if (known != stored_.end() && known->second.type != tensor.scalar_type())
      return refuse("tensors of two types share a storage");
    if (known == stored_.end()) {
      const at::Tensor whole = at::empty({0}, tensor.options()).set_(tensor.storage(), 0, {elements}, {1});
      const std::string key = sink_(whole);
      const PickleRef kind = text("storage"), type = global("torch." + name), key_ref = text(key),
                      device = text("cpu");
      const PickleRef tuple = collection(Kind::kTuple, {kind, type, key_ref, device, integer(elements)});
      const Stored stored{collection(Kind::kPersistent, {tuple}), tensor.scalar_type()};
      if (!shared) return rebuild(tensor, stored.id);
      known = stored_.emplace(impl, stored).first;
    }
    return rebuild(tensor, known->second.id);
  }

  PickleRef rebuild(const at::Tensor& tensor, PickleRef storage) {
    std::vector<PickleRef> size, stride;
    for (std::int64_t d = 0; d < tensor.dim(); ++d) {
      size.push_back(integer(tensor.size(d)));
      stride.push_back(integer(tensor.stride(d)));
    }
    const PickleRef offset = integer(tensor.storage_offset()),
                    sizes = collection(Kind::kTuple, std::move(size)),
                    strides = collection(Kind::kTuple, std::move(stride)), grad = make(Kind::kBool),
                    hooks = call("collections.OrderedDict", {});
    return call("torch._utils._rebuild_tensor_v2", {storage, offset, sizes, strides, grad, hooks});
  }

  const StorageSink& sink_;
  Pickle out_;
  std::string error_;
  std::map<std::string, PickleRef> globals_;
  std::map<const void*, int> uses_;  // looked up only, never walked: addresses decide nothing
  std::map<const void*, Stored> stored_;
};

}  // namespace

Result<Pickle> pickle_from_state(const StateValue& value, const StorageSink& sink) {
  return Writer(sink).run(value);
}

}  // namespace plumbline
