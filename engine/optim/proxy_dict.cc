#include "engine/optim/proxy_dict.h"

#include "engine/base/assert.h"

namespace plumbline {

ProxyDict::ProxyDict(std::vector<StateDict*> inner) : inner_(std::move(inner)) {
  for (const StateDict* dict : inner_) PL_ASSERT(dict != nullptr);
}

const StateValue* ProxyDict::find(const Key& key) const {
  return key.first < inner_.size() ? std::as_const(*inner_[key.first]).find(key.second) : nullptr;
}

const StateValue& ProxyDict::operator[](const Key& key) const {
  static const StateValue none;
  const StateValue* value = find(key);
  return value == nullptr ? none : *value;
}

void ProxyDict::set(const Key& key, StateValue value) {
  PL_ASSERT(key.first < inner_.size());
  (*inner_[key.first])[key.second] = std::move(value);
}

std::size_t ProxyDict::size() const {
  std::size_t total = 0;
  for (const StateDict* dict : inner_) total += dict->size();
  return total;
}

std::vector<ProxyDict::Key> ProxyDict::keys() const {
  std::vector<Key> out;
  for (const Item& item : *this) out.push_back(item.first);
  return out;
}

std::vector<ProxyDict::Item> ProxyDict::items() const {
  std::vector<Item> out;
  for (const Item& item : *this) out.push_back(item);
  return out;
}

ProxyDict::Iterator::Iterator(const ProxyDict* proxy, std::size_t index, std::size_t entry)
    : proxy_(proxy), index_(index), entry_(entry) {
  skip_empty();
}

void ProxyDict::Iterator::skip_empty() {
  while (index_ < proxy_->inner_.size() && entry_ == proxy_->inner_[index_]->size()) {
    ++index_;
    entry_ = 0;
  }
}

ProxyDict::Item ProxyDict::Iterator::operator*() const {
  const StateDict& dict = *proxy_->inner_[index_];
  const StateDict::Entry& entry = *(dict.begin() + static_cast<std::ptrdiff_t>(entry_));
  return {{index_, entry.first}, &entry.second};
}

ProxyDict::Iterator& ProxyDict::Iterator::operator++() {
  ++entry_;
  skip_empty();
  return *this;
}

}  // namespace plumbline
