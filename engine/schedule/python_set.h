// The order in which CPython lists a set of small integers. torch's pass for sharded parameters drops stages in the
// order of a Python set; rows that shall equal torch's to the byte have to follow it. It is no order of numbers
// beyond 7: the set is a hash table of 8 places and more, an integer's hash is the integer, and what was removed
// leaves its place to be taken again (CPython Objects/setobject.c, set_add_entry and set_table_resize; compared
// with CPython 3.11).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plumbline {

class PythonSet {
 public:
  PythonSet() : places_(kSmallest, kFree) {}

  bool has(int value) const;
  void add(int value);     // not in the set
  void remove(int value);  // in the set
  std::vector<int> values() const;

 private:
  static constexpr std::size_t kSmallest = 8;
  static constexpr int kFree = -1;
  static constexpr int kRemoved = -2;

  // Calls visit(place) along the places an integer may be at, until it returns true.
  template <typename Visit>
  void probe(int value, Visit visit) const;
  void grow();

  std::vector<int> places_;
  std::size_t filled_ = 0;  // places ever taken, removed ones too
  std::size_t used_ = 0;
};

}  // namespace plumbline
