#include "sim/sensitivity.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "engine/base/units.h"
#include "engine/config/names.h"
#include "sim/examine.h"

namespace plumbline {
namespace {

// "8 MiB", "100 B": exact.
std::string exact_size(Bytes bytes) {
  constexpr std::array<std::pair<Bytes, const char*>, 3> kUnits{
      {{Bytes{1} << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes >= unit && bytes % unit == 0) return fmt::format("{} {}", bytes / unit, name);
  }
  return fmt::format("{} B", bytes);
}

class Turning {
 public:
  Turning(const LinkedProgram& linked, const TimeModel& time)
      : linked_(linked), program_(*linked.program), time_(time) {
    measure();
  }

  Result<std::vector<SensitivityRow>> run() {
    base_ = default_model();
    Result<bool> fine = completes(base_);
    if (!fine) return tl::unexpected(fine.error());
    if (!*fine) {
      base_.send = SendCompletion::kAlwaysEager;
      const Result<bool> helped = completes(base_);
      if (!helped) return tl::unexpected(helped.error());
      if (!*helped) {
        add("send", "rendezvous", false,
            fmt::format("{} with buffers of any size as well: no knob of the model hides it",
                        hangs_ ? "hangs" : "fails"));
        return std::move(rows_);
      }
      PL_TRY(buffers());
    } else {
      add("send", "", true, "sends may wait for their receives");
    }
    for (const auto knob :
         {&Turning::cross, &Turning::hw_queues, &Turning::processors, &Turning::connections,
          &Turning::group_order, &Turning::progress, &Turning::host, &Turning::registered}) {
      PL_TRY((this->*knob)());
    }
    return std::move(rows_);
  }

 private:
  using Change = std::function<void(NcclModel&)>;

  // What the searches are bounded by.
  void measure() {
    std::map<std::pair<std::size_t, unsigned>, Bytes> sent;  // thread, endpoint
    std::size_t group = 0;
    std::set<unsigned> streams;
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      for (const Item item : program_.thread_items(t)) {
        if (item_op(item) != ItemOp::kOp) continue;
        const Endpoint& endpoint = program_.endpoints[item_ref(item)];
        if (endpoint.kind == EndpointKind::kSend) sent_ += endpoint.bytes;
        streams.insert(static_cast<unsigned>(item_stream(item)));
        ++group;
        largest_group_ = std::max(largest_group_, group);
        if ((item_flags(item) & kMore) == 0) group = 0;
        kernels_.insert({t, endpoint.family});
      }
    }
    streams_ = static_cast<int>(streams.size()) + 1;
  }

  // Completes, and no call fails on the way. Why not is kept for the words.
  Result<bool> completes(const NcclModel& model) {
    const Result<ModeVerdict> verdict = examine_mode(linked_, model, time_);
    if (!verdict) return tl::unexpected(verdict.error());
    hangs_ = !verdict->completes;
    return verdict->completes &&
           std::none_of(verdict->findings.begin(), verdict->findings.end(), [](const Finding& finding) {
             return finding.kind == FindingKind::kCrossWired || finding.kind == FindingKind::kNcclError;
           });
  }
  Result<bool> completes(const Change& change) {
    NcclModel model = base_;
    change(model);
    return completes(model);
  }

  void add(std::string knob, std::string breaks, bool holds, std::string words) {
    rows_.push_back({std::move(knob), std::move(breaks), holds, std::move(words)});
  }

  // A switch: breaks or not.
  Status turn(const char* knob, const char* setting, const Change& change, const char* when) {
    const Result<bool> fine = completes(change);
    if (!fine) return tl::unexpected(fine.error());
    add(knob, *fine ? "" : setting, *fine,
        fmt::format("{} {}",
                    *fine    ? "completes"
                    : hangs_ ? "hangs"
                             : "fails",
                    when));
    return {};
  }

  // The largest value in [low, high] that breaks, where every smaller one does too; nothing: none.
  Result<std::optional<std::int64_t>> largest_breaking(
      std::int64_t low, std::int64_t high, const std::function<void(NcclModel&, std::int64_t)>& set) {
    const auto fine = [&](std::int64_t value) {
      return completes([&](NcclModel& model) { set(model, value); });
    };
    const Result<bool> smallest = fine(low);
    if (!smallest) return tl::unexpected(smallest.error());
    if (*smallest) return std::optional<std::int64_t>();
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      const Result<bool> there = fine(middle);
      if (!there) return tl::unexpected(there.error());
      if (*there) {
        high = middle - 1;
      } else {
        low = middle;
      }
    }
    return std::optional<std::int64_t>(low);
  }

  Status buffers() {
    const auto bytes = largest_breaking(0, sent_, [](NcclModel& model, std::int64_t value) {
      model.send = SendCompletion::kEager;
      model.eager_bytes = value;
    });
    if (!bytes) return tl::unexpected(bytes.error());
    if (*bytes) {
      const Bytes needed = **bytes + 1;
      add("send", fmt::format("eager:{}", **bytes), false,
          fmt::format("hangs unless sends of {} complete alone: that many bytes of a communicator and pair "
                      "of ranks have "
                      "to fit into buffers",
                      exact_size(needed)));
    }
    const auto messages = largest_breaking(1, 1 << 16, [this](NcclModel& model, std::int64_t value) {
      model.send = SendCompletion::kEager;
      model.eager_bytes = std::max<Bytes>(sent_, 1);
      model.eager_messages = static_cast<int>(value);
    });
    if (!messages) return tl::unexpected(messages.error());
    if (*messages)
      add("send messages", fmt::format("{}", **messages), false,
          fmt::format("hangs unless {} messages of a communicator and pair of ranks complete alone",
                      **messages + 1));
    for (const EagerLinks machine :
         {EagerLinks::kH100, EagerLinks::kA100, EagerLinks::kPcie, EagerLinks::kIb}) {
      const std::string_view name = plumbline::name(machine);
      PL_TRY(turn(
          fmt::format("buffers of {}", name).c_str(), fmt::format("eager:{}", name).c_str(),
          [machine](NcclModel& model) {
            model.send = SendCompletion::kEager;
            model.eager_links = machine;
          },
          fmt::format("with the buffers of {}", name).c_str()));
    }
    return {};
  }

  Status cross() {
    const Result<bool> ordered = completes([](NcclModel& model) { model.cross = CrossComm::kLaunchOrder; });
    if (!ordered) return tl::unexpected(ordered.error());
    if (!*ordered) {
      add("cross", "launch-order", false,
          "hangs when kernels of different communicators have to start in the order of their launch");
      return {};
    }
    return turn(
        "cross", "strict", [](NcclModel& model) { model.cross = CrossComm::kStrict; },
        "when kernels of different communicators run one at a time, in the order of their launch");
  }

  Status hw_queues() {
    const auto queues = largest_breaking(
        1, streams_, [](NcclModel& model, std::int64_t value) { model.hw_queues = static_cast<int>(value); });
    if (!queues) return tl::unexpected(queues.error());
    if (*queues) {
      add("hw_queues", fmt::format("{}", **queues), false,
          fmt::format("hangs with {} hardware queue{} (CUDA_DEVICE_MAX_CONNECTIONS)", **queues,
                      **queues == 1 ? "" : "s"));
    } else {
      add("hw_queues", "", true, "completes with one hardware queue");
    }
    return {};
  }

  // In kernels of equal size: how many a device has to hold at one time.
  Status processors() {
    std::map<std::size_t, std::int64_t> families;
    for (const auto& [thread, family] : kernels_) ++families[thread];
    std::int64_t most = 1;
    for (const auto& [thread, count] : families) most = std::max(most, count);
    const auto kernels = largest_breaking(1, most, [](NcclModel& model, std::int64_t value) {
      model.sms = static_cast<int>(value);
      model.channels = 1;
    });
    if (!kernels) return tl::unexpected(kernels.error());
    if (*kernels) {
      add("sms", fmt::format("{}", **kernels), false,
          fmt::format("may hang unless a device has processors for {} kernels of communicators at one time",
                      **kernels + 1));
    } else {
      add("sms", "", true, "completes where a device holds one kernel of a communicator at a time");
    }
    return {};
  }

  Status connections() {
    PL_TRY(turn(
        "connect", "cold", [](NcclModel& model) { model.connect = Connect::kCold; },
        "where the first message of a link has to connect"));
    return turn(
        "connect_collectives", "cold", [](NcclModel& model) { model.collectives_connect = true; },
        "where the first collective of a communicator has to connect");
  }

  Status group_order() {
    return turn(
        "group_order", "call", [](NcclModel& model) { model.group_order_by_call = true; },
        "where the communicators of a group run in the order of the calls (before 2.26)");
  }

  Status progress() {
    PL_TRY(turn(
        "progress", "batched",
        [](NcclModel& model) { model.progress.batch = 8, model.progress.batch_epochs = true; },
        "where eight messages of a group run at a time"));
    if (largest_group_ < 2) return {};
    const auto most = static_cast<std::int64_t>(std::min<std::size_t>(largest_group_ - 1, 64));
    const auto items = largest_breaking(
        1, static_cast<std::int64_t>(largest_group_) - 1,
        [](NcclModel& model, std::int64_t value) { model.progress.plan_items = static_cast<int>(value); });
    if (!items) return tl::unexpected(items.error());
    add("progress split", *items ? fmt::format("split:{}", **items) : "", !*items,
        *items ? fmt::format("hangs with kernels of {} messages (2.29.7 and later)", **items)
               : "completes with kernels of one message (2.29.7 and later)");
    // With restarts a smaller kernel may do what a larger one does not: all sizes are tried.
    for (std::int64_t size = most; size > 0; --size) {
      const Result<bool> fine = completes([size](NcclModel& model) {
        model.progress.plan_items = static_cast<int>(size);
        model.progress.plan_restart = true;
      });
      if (!fine) return tl::unexpected(fine.error());
      if (*fine) continue;
      add("progress split-restart", fmt::format("split-restart:{}", size), false,
          fmt::format("hangs with kernels of {} messages (up to 2.29.3)", size));
      return {};
    }
    add("progress split-restart", "", true,
        most == 1 ? std::string("completes with kernels of one message (up to 2.29.3)")
                  : fmt::format("completes with kernels of 1 to {} messages (up to 2.29.3)", most));
    return {};
  }

  Status host() {
    PL_TRY(turn(
        "launch_blocking", "true", [](NcclModel& model) { model.launch_blocking = true; },
        "with CUDA_LAUNCH_BLOCKING=1"));
    return turn(
        "lazy_modules", "true", [](NcclModel& model) { model.lazy_modules = true; },
        "where a kernel's first launch waits for the device");
  }

  Status registered() {
    if (base_.send == SendCompletion::kRendezvous) return {};
    return turn(
        "registered", "true", [](NcclModel& model) { model.registered = true; },
        "with registered buffers, or captured in a CUDA graph");
  }

  const LinkedProgram& linked_;
  const Program& program_;
  const TimeModel& time_;
  NcclModel base_;
  bool hangs_ = false;  // the last that was examined
  Bytes sent_ = 0;
  std::size_t largest_group_ = 0;
  int streams_ = 1;
  std::set<std::pair<std::size_t, unsigned>> kernels_;  // thread, family
  std::vector<SensitivityRow> rows_;
};

}  // namespace

Result<std::vector<SensitivityRow>> sensitivity(const LinkedProgram& linked, const TimeModel& time) {
  return Turning(linked, time).run();
}

}  // namespace plumbline
