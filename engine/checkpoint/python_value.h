// Python objects as states: what a pickle says, without a Python. Known ones become what they mean - tensors
// (sharing their storage as they did), OrderedDict and Namespace dictionaries, numpy arrays tensors - and all
// others stay opaque, as a dictionary that begins with the key "__python__" and is written back as it was:
//
//   {"__python__": "module.name"}                                  a global: a class, a dtype
//   {"__python__": "module.name", "args": [..], "new": bool,       an object: made by calling it, then given a state,
//    "state": .., "items": [..], "pairs": [[key, value], ..]}      list items, dictionary items (each one optional)
//   {"__python__": "int", "hex": "0x-1f.."}                        an integer of more than 64 bits
//   {"__python__": "set" or "frozenset", "items": [..]}
//   {"__python__": "tuple", "items": [..]}                         with keep_python; else tuples are lists
//   {"__python__": "dict", "pairs": [[key, value], ..]}            with keep_python, or keys of other kinds
//
// Without keep_python, integer keys become decimal texts: a torch optimizer's {0: {..}} is {"0": {..}}.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "engine/base/result.h"
#include "engine/optim/state_dict.h"
#include "engine/storage/pickle.h"

namespace plumbline {

// One storage of a torch file: all its elements as a tensor of one dimension. Called once a key.
struct StorageRequest {
  std::string key;
  at::ScalarType type;
  std::int64_t elements = 0;
};
using StorageSource = std::function<Result<at::Tensor>(const StorageRequest&)>;

struct PythonOptions {
  bool keep_python = false;
  std::size_t values = 16u << 20;  // of the result: shared objects count each time they are used
};

// Errors (kParse) name `what` and the path inside.
Result<StateValue> state_from_pickle(const Pickle& pickle, const std::string& what,
                                     const StorageSource& storages, const PythonOptions& options = {});

// For the way out: a storage is met the first time; returns its key.
using StorageSink = std::function<std::string(const at::Tensor& whole)>;

// Dictionaries whose keys are all decimal integers get integer keys, as torch optimizers want them; other
// dictionaries are plain dicts. Tensors that share memory share a storage.
Result<Pickle> pickle_from_state(const StateValue& value, const StorageSink& sink);

}  // namespace plumbline
