#include "backends/processes/store.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace plumbline::processes {
namespace {

constexpr double kGreeting = 10.0;  // seconds

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000.0));
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// Asks the store for what it was just told. A service that only takes connections, or another LibTorch's store, which
// need not speak our protocol, may never answer: the call is then left behind in a thread of its own.
Status greet(const c10::intrusive_ptr<::c10d::TCPStore>& tcp, const std::string& key, double seconds) {
  auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answer = promise->get_future();
  std::thread([tcp, key, promise] {
    try {
      tcp->set(key, bytes_of("hello"));
      const std::vector<std::uint8_t> value = tcp->get(key);
      promise->set_value(std::string(value.begin(), value.end()) == "hello" ? "" : "another value came back");
    } catch (const std::exception& error) {
      promise->set_value(first_line(error));
    }
  }).detach();
  if (answer.wait_for(milliseconds_of(seconds)) != std::future_status::ready)
    return fail(ErrorCode::kTimeout, fmt::format("no answer within {:g} s", seconds));
  const std::string wrong = answer.get();
  if (!wrong.empty()) return fail(ErrorCode::kState, wrong);
  return {};
}

// Values have a byte in front: TCPStore leaves a message that ends in an empty value corked, and the kernel lets it go
// after 200 ms.
std::vector<std::uint8_t> stored(const std::string& value) { return bytes_of('=' + value); }
std::string value_of(const std::vector<std::uint8_t>& bytes) {
  return bytes.empty() ? std::string() : std::string(bytes.begin() + 1, bytes.end());
}

}  // namespace

struct Store::Impl {
  std::mutex mutex;  // the client is one connection
  c10::intrusive_ptr<::c10d::TCPStore> tcp;
  std::string prefix;  // of keys

  template <typename Call>
  auto call(Call f) -> Result<decltype(f(*tcp))> {
    const std::lock_guard lock(mutex);
    try {
      return f(*tcp);
    } catch (const std::exception& error) {
      return fail(ErrorCode::kState, "the store does not answer: " + first_line(error));
    }
  }
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::serve(int port, const std::string& prefix) {
  auto impl = std::make_unique<Impl>();
  impl->prefix = prefix;
  try {
    ::c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(port);
    options.isServer = true;
    options.waitWorkers = false;
    impl->tcp = c10::make_intrusive<::c10d::TCPStore>("127.0.0.1", options);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const bool taken = text.find("EADDRINUSE") != std::string::npos ||
                       text.find("already in use") != std::string::npos ||
                       text.find("98") != std::string::npos;
    return fail(
        ErrorCode::kIo,
        fmt::format("cannot serve the ranks' store at port {}: {} - give another --master-port, or 0 for "
                    "any free one",
                    port, taken ? "the port is in use" : first_line(error)));
  }
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Result<std::unique_ptr<Store>> Store::join(const StoreAddress& address, double seconds) {
  auto impl = std::make_unique<Impl>();
  impl->prefix = address.prefix;
  try {
    ::c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(address.port);
    options.waitWorkers = false;
    options.timeout = std::chrono::seconds(static_cast<std::int64_t>(std::ceil(std::max(seconds, 1.0))));
    impl->tcp = c10::make_intrusive<::c10d::TCPStore>(address.host, options);
  } catch (const std::exception& error) {
    return fail(
        ErrorCode::kTimeout,
        fmt::format("no store answers at {}:{} within {} s ({}) - is the process of rank 0 running there?",
                    address.host, address.port, seconds, first_line(error)));
  }
  if (const Status heard = greet(impl->tcp, address.prefix + "greeting", std::min(seconds, kGreeting));
      !heard)
    return fail(
        ErrorCode::kState,
        fmt::format("what serves {}:{} is not a store that this plumbline's LibTorch {} understands ({}) - "
                    "torchrun shares its own unless TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is set, as in what "
                    "`plumbline launch --dry-run torchrun` prints",
                    address.host, address.port, TORCH_VERSION, heard.error().message));
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

int Store::port() const { return impl_->tcp->getPort(); }

Status Store::set(const std::string& key, const std::string& value) {
  const Result<bool> done = impl_->call([&](::c10d::TCPStore& tcp) {
    tcp.set(impl_->prefix + key, stored(value));
    return true;
  });
  if (!done) return tl::unexpected(done.error());
  return {};
}

Result<std::string> Store::set_once(const std::string& key, const std::string& value) {
  return impl_->call([&](::c10d::TCPStore& tcp) {
    return value_of(tcp.compareSet(impl_->prefix + key, {}, stored(value)));
  });
}

Result<std::optional<std::string>> Store::get(const std::string& key) {
  return impl_->call([&](::c10d::TCPStore& tcp) -> std::optional<std::string> {
    const std::string full = impl_->prefix + key;
    if (!tcp.check({full})) return std::nullopt;
    return value_of(tcp.get(full));
  });
}

Status Store::remove(const std::string& key) {
  const Result<bool> done =
      impl_->call([&](::c10d::TCPStore& tcp) { return tcp.deleteKey(impl_->prefix + key); });
  if (!done) return tl::unexpected(done.error());
  return {};
}

Result<std::string> Store::wait_for(const std::string& key, double seconds) {
  const std::lock_guard lock(impl_->mutex);
  try {
    const std::string full = impl_->prefix + key;
    impl_->tcp->wait({full}, milliseconds_of(seconds));
    return value_of(impl_->tcp->get(full));
  } catch (const std::exception& error) {
    return fail(ErrorCode::kTimeout, fmt::format("'{}' did not come within {} s", key, seconds));
  }
}

}  // namespace plumbline::processes
