// A key is eleven optional settings, each a byte 0 (absent) or 1 and its value, and a byte for expert. Numbers are
// their 64 bits, little-endian; texts a 64-bit length and their bytes.
#include "engine/optim/group_agreement.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace plumbline {
namespace {

class Writer {
 public:
  void number(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<std::uint8_t>(value >> shift));
  }
  void put(double value) { number(std::bit_cast<std::uint64_t>(value)); }
  void put(bool value) { bytes.push_back(value ? 1 : 0); }
  void put(const std::string& value) {
    number(value.size());
    bytes.insert(bytes.end(), value.begin(), value.end());
  }
  template <typename T>
  void setting(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }

  std::vector<std::uint8_t> bytes;
};

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }
  bool failed() const { return failed_; }

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 8) value |= static_cast<std::uint64_t>(byte()) << shift;
    return value;
  }
  void get(double& value) { value = std::bit_cast<double>(number()); }
  void get(bool& value) { value = byte() == 1; }
  void get(std::string& value) {
    const std::uint64_t size = number();
    if (size > rest_.size()) {
      failed_ = true;
      return;
    }
    value.assign(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(size));
    rest_ = rest_.subspan(size);
  }
  template <typename T>
  void setting(std::optional<T>& value) {
    bool there = false;
    get(there);
    if (there) get(value.emplace());
  }

 private:
  std::uint8_t byte() {
    if (rest_.empty()) {
      failed_ = true;
      return 0;
    }
    const std::uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }

  std::span<const std::uint8_t> rest_;
  bool failed_ = false;
};

template <typename Override, typename Visit>
void for_each_setting(Override& o, Visit visit) {
  visit(o.wd_mult);
  visit(o.lr_mult);
  visit(o.max_lr);
  visit(o.min_lr);
  visit(o.start_wd);
  visit(o.end_wd);
  visit(o.beta1);
  visit(o.beta2);
  visit(o.eps);
  visit(o.is_decoupled_lr);
  visit(o.optimizer);
}

}  // namespace

std::vector<std::uint8_t> pack_group_keys(const std::vector<GroupKey>& keys) {
  Writer writer;
  writer.number(keys.size());
  for (const GroupKey& key : keys) {
    for_each_setting(key.gives, [&](const auto& value) { writer.setting(value); });
    writer.put(key.expert);
  }
  return std::move(writer.bytes);
}

Result<std::vector<GroupKey>> unpack_group_keys(std::span<const std::uint8_t> bytes) {
  Reader reader(bytes);
  std::vector<GroupKey> keys;
  const std::uint64_t count = reader.number();
  for (std::uint64_t i = 0; i < count && !reader.failed(); ++i) {
    GroupKey key;
    for_each_setting(key.gives, [&](auto& value) { reader.setting(value); });
    reader.get(key.expert);
    keys.push_back(std::move(key));
  }
  if (reader.failed() || !reader.done()) {
    return fail(ErrorCode::kState,
                fmt::format("{} bytes are not a list of {} parameter-group keys; all ranks "
                            "must run the same version of plumbline",
                            bytes.size(), count));
  }
  return keys;
}

Result<std::vector<GroupKey>> agree_group_keys(Collective& world, const std::vector<GroupKey>& own) {
  const std::vector<std::uint8_t> mine = pack_group_keys(own);
  const auto members = static_cast<std::size_t>(world.size());
  const auto rank = static_cast<std::size_t>(world.rank());
  std::vector<std::int64_t> sizes(members, 0);
  sizes[rank] = static_cast<std::int64_t>(mine.size());
  PL_TRY(world.sum(std::span<std::int64_t>(sizes)));
  const auto part = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::uint8_t> all(part * members, 0);
  std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(part * rank));
  PL_TRY(world.all_gather(DType::kU8, reinterpret_cast<std::byte*>(all.data()), part));
  std::vector<GroupKey> keys;
  for (std::size_t member = 0; member < members; ++member) {
    const auto bytes = std::span(all).subspan(part * member, static_cast<std::size_t>(sizes[member]));
    Result<std::vector<GroupKey>> theirs = unpack_group_keys(bytes);
    if (!theirs) return theirs;
    keys.insert(keys.end(), theirs->begin(), theirs->end());
  }
  std::sort(keys.begin(), keys.end(), [](const GroupKey& a, const GroupKey& b) { return a < b; });
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

}  // namespace plumbline
