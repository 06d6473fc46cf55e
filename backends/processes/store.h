// The store where the ranks meet, and through which they say last words. Whoever starts the ranks holds it, so
// that it outlives every one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/result.h"

namespace plumbline::processes {

// Where the ranks of a run meet.
struct StoreAddress {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string
      prefix;  // of all keys: a store that a launcher serves outlives the run, and one after it may meet there
};

// Thread-safe. Values are text.
class Store {
 public:
  // Opens a port and serves it until the object goes; 0: any free one. A port in use is an error that says so.
  static Result<std::unique_ptr<Store>> serve(int port, const std::string& prefix = {});
  // Joins a store that is, or within `seconds` will be, served elsewhere. An error too where something answers there
  // that is no such store: torchrun's of another LibTorch, for one.
  static Result<std::unique_ptr<Store>> join(const StoreAddress& address, double seconds);
  ~Store();

  int port() const;
  Status set(const std::string& key, const std::string& value);
  // Sets it unless it is set; returns what it is then.
  Result<std::string> set_once(const std::string& key, const std::string& value);
  // Empty: not there.
  Result<std::optional<std::string>> get(const std::string& key);
  // A key that is not there is no error.
  Status remove(const std::string& key);
  // Waits for it, and keeps other callers waiting meanwhile; the error after `seconds` is kTimeout.
  Result<std::string> wait_for(const std::string& key, double seconds);

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumbline::processes
