// The data block of the HTML report: a JSON head and integer columns, gzip, base64. Format: docs/report.md,
// "Data block".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

// Integers as LEB128 varints, zigzag, so that any time fits and small numbers take one byte before
// compression.
class Column {
 public:
  explicit Column(std::string name) : name_(std::move(name)) {}
  void add(std::int64_t value);
  const std::string& name() const { return name_; }
  const std::string& bytes() const { return bytes_; }
  std::int64_t count() const { return count_; }

 private:
  std::string name_;
  std::string bytes_;
  std::int64_t count_ = 0;
};

// Reads back what Column wrote; an error when the bytes end inside a number or do not hold exactly `count` of
// them.
Result<std::vector<std::int64_t>> read_column(std::string_view bytes, std::int64_t count);

// 4 bytes length of `head` (little-endian), `head`, then the columns one after another.
std::string pack_block(std::string_view head, const std::vector<const Column*>& columns);

std::string gzip(std::string_view bytes);  // no time stamp: equal input, equal output
Result<std::string> gunzip(std::string_view bytes);
std::string base64(std::string_view bytes);
Result<std::string> from_base64(std::string_view text);

}  // namespace plumbline
