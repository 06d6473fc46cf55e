// Where each value of a configuration comes from. Messages quote it, `plumbline config --explain` lists it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/base/result.h"

namespace plumbline {

// In rising precedence.
enum class Layer : std::uint8_t { kDefault, kFile, kEnvironment, kCommandLine };

struct Origin {
  Layer layer = Layer::kDefault;
  std::string text = "default";  // "cfg.toml:12", "environment PLUMBLINE_PARALLEL_PP", "--pp"
  Where where;                   // of a value in a file
};

class Origins {
 public:
  void set(const std::string& option, Origin origin) { entries_[option] = std::move(origin); }
  void erase(const std::string& option) { entries_.erase(option); }

  // The default origin for an option nobody set. Names are "section.key".
  const Origin& of(const std::string& option) const {
    static const Origin kUnset;
    const auto found = entries_.find(option);
    return found == entries_.end() ? kUnset : found->second;
  }
  bool given(const std::string& option) const { return entries_.count(option) != 0; }

 private:
  std::map<std::string, Origin> entries_;
};

}  // namespace plumbline
