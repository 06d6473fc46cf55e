// LibTorch's ProcessGroupGloo as a Transport. Of Gloo only send and receive are used.
//
// A wait that times out breaks Gloo's connection for good, so its own limit is out of reach and the watchdog
// ends what hangs.
#define USE_C10D_GLOO
#include "backends/gloo/transport.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace plumbline::gloo {
namespace {

using Group = ::c10d::ProcessGroupGloo;
constexpr std::chrono::hours kNever(24 * 30);
constexpr std::chrono::seconds kGiveWay(2);

// LibTorch's messages carry a stack trace behind the first line.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

Nanoseconds steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class GlooTransport final : public Transport {
 public:
  GlooTransport(c10::intrusive_ptr<::c10d::Store> store, Rank rank, int world,
                c10::intrusive_ptr<Group::Options> options)
      : rank_(rank),
        size_(world),
        group_(c10::make_intrusive<Group>(store, rank, world, std::move(options))) {}

  Rank rank() const override { return rank_; }
  int size() const override { return size_; }

  Status exchange(std::span<Message> messages) override {
    // An empty message has one byte on the wire: it has to meet its counterpart as any other.
    std::byte nothing{};
    std::vector<std::pair<Message*, c10::intrusive_ptr<::c10d::Work>>> posted;
    posted.reserve(messages.size());
    const Message* at = nullptr;
    try {
      for (const bool send : {false, true}) {
        for (Message& message : messages) {
          if (message.send != send || message.peer == rank_) continue;
          at = &message;
          void* data = message.bytes == 0 ? &nothing : message.data;
          const std::int64_t bytes = std::max<Bytes>(message.bytes, 1);
          std::vector<at::Tensor> tensors{at::from_blob(data, {bytes}, at::TensorOptions().dtype(at::kByte))};
          const int tag = static_cast<int>(message.tag);
          posted.emplace_back(&message, send ? group_->send(tensors, message.peer, tag)
                                             : group_->recv(tensors, message.peer, tag));
        }
      }
      PL_TRY(to_self(messages));
      for (auto& [message, work] : posted) {
        at = message;
        work->wait();
        message->end = steady_now();
      }
    } catch (const std::exception& error) {
      // Who ended first has the error to show; whoever started the ranks ends this one before it says anything.
      std::this_thread::sleep_for(kGiveWay);
      return fail(ErrorCode::kState,
                  fmt::format("rank {}: {} rank {} broke off ({}) - that rank has ended or cannot be reached",
                              rank_, at != nullptr && at->send ? "the send to" : "the receive from",
                              at == nullptr ? -1 : at->peer, first_line(error)));
    }
    return {};
  }

 private:
  Status to_self(std::span<Message> messages) const {
    const auto own = [&](Message& message, bool send) {
      return message.peer == rank_ && message.send == send;
    };
    auto receive = messages.begin();
    for (auto send = messages.begin(); send != messages.end(); ++send) {
      if (!own(*send, true)) continue;
      receive = std::find_if(receive, messages.end(), [&](Message& message) { return own(message, false); });
      if (receive == messages.end() || receive->bytes != send->bytes)
        return fail(ErrorCode::kState,
                    fmt::format("rank {} sends itself {} bytes that no receive of the same group takes",
                                rank_, send->bytes));
      if (send->bytes > 0) std::memcpy(receive->data, send->data, static_cast<std::size_t>(send->bytes));
      send->end = receive->end = steady_now();
      ++receive;
    }
    return {};
  }

  Rank rank_;
  int size_;
  c10::intrusive_ptr<Group> group_;
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// Every rank leaves a word; then all are waited for, so that the one that is missing can be named.
Status gather_ranks(::c10d::Store& store, Rank rank, int world, double seconds) {
  const auto key = [](Rank of) { return fmt::format("here/{}", of); };
  store.set(key(rank), std::vector<std::uint8_t>{1});
  using Clock = std::chrono::steady_clock;
  const Clock::time_point limit =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (Rank other = 0; other < world; ++other) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::max(limit - Clock::now(), Clock::duration::zero()));
    try {
      store.wait({key(other)}, std::max(left, std::chrono::milliseconds(50)));
    } catch (const std::exception&) {
      std::string missing;
      for (Rank r = 0; r < world; ++r)
        if (!store.check({key(r)})) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
      return fail(ErrorCode::kTimeout,
                  fmt::format("rank {} of {} waited {} s, and these ranks did not come: {} - start them, or "
                              "give the true --world-size",
                              rank, world, seconds, missing));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Transport>> connect(const processes::StoreAddress& address, const std::string& prefix,
                                           Rank rank, int world, double seconds,
                                           const std::string& interface_host) {
  try {
    ::c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(address.port);
    options.waitWorkers = false;
    options.timeout = std::chrono::seconds(static_cast<std::int64_t>(std::ceil(std::max(seconds, 1.0))));
    auto tcp = c10::make_intrusive<::c10d::TCPStore>(address.host, options);
    auto store = c10::make_intrusive<::c10d::PrefixStore>(address.prefix + prefix, tcp);
    PL_TRY(gather_ranks(*store, rank, world, seconds));
    tcp->setTimeout(kNever);
    auto gloo_options = Group::Options::create(kNever);
    gloo_options->devices.push_back(!interface_host.empty() ? Group::createDeviceForHostname(interface_host)
                                    : is_loopback(address.host) ? Group::createDeviceForHostname("127.0.0.1")
                                                                : Group::createDefaultDevice());
    return std::unique_ptr<Transport>(
        std::make_unique<GlooTransport>(std::move(store), rank, world, std::move(gloo_options)));
  } catch (const std::exception& error) {
    return fail(ErrorCode::kState, fmt::format("rank {} cannot join the run at {}:{}: {}", rank, address.host,
                                               address.port, first_line(error)));
  }
}

}  // namespace plumbline::gloo
