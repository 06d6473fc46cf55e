// A data-only reader and writer of Python's pickles, protocols 2 to 5. Nothing in a pickle is ever resolved,
// imported or called: a global is its two names, a call is a node that says what would have been called with
// what. Everything is limited before memory is spent, so that no pickle - a bomb included - costs more than a
// small multiple of its size plus the limits below.
//
// The result is a graph: memoized objects are shared, and may contain themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

// Index into Pickle::nodes.
using PickleRef = std::uint32_t;

struct PickleNode {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,        // integer: 0 or 1
    kInt,         // integer
    kBigInt,      // text: little-endian two's complement, as in the pickle
    kFloat,       // real
    kText,        // text: UTF-8 (lone surrogates as Python's surrogatepass has them)
    kBytes,       // text
    kByteArray,   // text
    kTuple,       // items
    kList,        // items
    kDict,        // items: key, value, key, value ...
    kSet,         // items
    kFrozenSet,   // items
    kGlobal,      // text: "module\nname"
    kCall,        // items: callable, arguments (a tuple), then what was done to the result: see below
    kPersistent,  // items: the id
  };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;
  double real = 0.0;
  std::string text;
  std::vector<PickleRef> items;
  // Of kCall. NEWOBJ: cls.__new__(cls, *args) instead of callable(*args); its keywords (a dict) if NEWOBJ_EX.
  bool new_object = false;
  PickleRef keywords = kNoRef;
  // What was done to the object afterwards, on kCall and on any other object: BUILD's state, APPENDS' items,
  // SETITEMS' keys and values. Lists and dicts hold theirs in `items`.
  PickleRef state = kNoRef;
  std::vector<PickleRef> appended;
  std::vector<PickleRef> set_items;

  static constexpr PickleRef kNoRef = UINT32_MAX;

  bool is_global(std::string_view module, std::string_view name) const;
};

struct Pickle {
  std::vector<PickleNode> nodes;
  PickleRef root = 0;

  const PickleNode& at(PickleRef ref) const { return nodes[ref]; }
};

struct PickleLimits {
  std::size_t bytes = std::size_t{1} << 30;
  std::size_t operations = 64u << 20;
  std::size_t nodes = 4u << 20;             // about 150 bytes each
  std::size_t text = std::size_t{1} << 30;  // bytes of texts and bytes in all
};

// Reads one pickle from the begin of `data`; what follows its STOP is not looked at, `used` says how much was
// read. Errors (kParse) name `what`, the byte offset and the opcode.
Result<Pickle> parse_pickle(std::string_view data, const std::string& what, const PickleLimits& limits = {},
                            std::size_t* used = nullptr);

// The graph as a pickle of protocol 2, in the opcodes that Python's weights_only unpickler takes. Shared
// nodes stay shared. Same graph, same bytes. Refuses (kUnsupported) a graph that has no such form: a tuple
// inside itself.
Result<std::string> print_pickle(const Pickle& pickle);

// One line a node, indented, for tools: no more than `lines`.
std::string describe_pickle(const Pickle& pickle, std::size_t lines);

}  // namespace plumbline
