// ProxyDict: several dictionaries seen as one, whose keys are (which dictionary, its key) - the state of a
// chain of optimizers (megatron/core/optimizer/optimizer.py). A view: it owns nothing, and what is written
// through it is written into the dictionaries, which must outlive it and stay where they are.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "engine/optim/state_dict.h"

namespace plumbline {

class ProxyDict {
 public:
  using Key = std::pair<std::size_t, std::string>;
  using Item = std::pair<Key, const StateValue*>;

  explicit ProxyDict(std::vector<StateDict*> inner);

  // A missing key is None, as upstream has it (no error, nothing added); so is a dictionary that is not
  // there.
  const StateValue& operator[](const Key& key) const;
  bool contains(const Key& key) const { return find(key) != nullptr; }
  // Asserts that the dictionary is there.
  void set(const Key& key, StateValue value);

  std::size_t size() const;  // of all dictionaries together
  bool empty() const { return size() == 0; }

  // In order: the dictionaries, and each one's entries as they were inserted. An iterator is valid as long as
  // no entry is added to or erased from a dictionary.
  class Iterator {
   public:
    Item operator*() const;
    Iterator& operator++();
    bool operator==(const Iterator& other) const { return index_ == other.index_ && entry_ == other.entry_; }

   private:
    friend class ProxyDict;
    Iterator(const ProxyDict* proxy, std::size_t index, std::size_t entry);
    void skip_empty();
    const ProxyDict* proxy_;
    std::size_t index_, entry_;
  };
  Iterator begin() const { return Iterator(this, 0, 0); }
  Iterator end() const { return Iterator(this, inner_.size(), 0); }
  std::vector<Key> keys() const;
  std::vector<Item> items() const;

 private:
  const StateValue* find(const Key& key) const;
  std::vector<StateDict*> inner_;
};

}  // namespace plumbline
