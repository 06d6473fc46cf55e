#include "sim/verify/matching.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline::verify {
namespace {

using Items = std::vector<std::uint32_t>;

class Matching {
 public:
  Matching(const CheckWorld& world, Arm arm) : world_(world), program_(*world.program) {
    sends_.resize(world.links.size());
    receives_.resize(world.links.size());
    collectives_.resize(world.member_thread.size());
    for (std::size_t t = 0; t < world.threads(); ++t) {
      for (const std::uint32_t item : items_where(world, t, arm, [](const Port&) { return true; })) {
        const Port& port = world.port(t, item_ref(program_.items[item]));
        if (!is_p2p(port.kind)) {
          collectives_[port.member].push_back(item);
        } else {
          (port.kind == EndpointKind::kSend ? sends_ : receives_)[port.link].push_back(item);
        }
      }
    }
  }

  std::vector<Finding> run() {
    for (std::size_t l = 0; l < world_.links.size(); ++l) link(l);
    for (std::size_t c = 0; c + 1 < world_.member_base.size(); ++c) communicator(c);
    return std::move(findings_);
  }

 private:
  const Endpoint& endpoint(std::uint32_t item) const {
    return program_.endpoints[item_ref(program_.items[item])];
  }
  std::uint64_t label(std::uint32_t item) const {
    return std::uint64_t{endpoint(item).slot} << 20 |
           static_cast<std::uint32_t>(item_microbatch(program_.items[item]));
  }
  std::string label_text(std::uint32_t item) const {
    const SlotClass& slot = program_.slots[endpoint(item).slot];
    if (!slot.per_microbatch) return slot.name;
    return fmt::format("{} of microbatch {}", slot.name, item_microbatch(program_.items[item]));
  }

  void add(FindingKind kind, std::vector<OperationRef> operations, std::string why) {
    Finding finding;
    finding.kind = kind;
    finding.operations = std::move(operations);
    finding.why = std::move(why);
    findings_.push_back(std::move(finding));
  }

  std::string channel(std::size_t number) const {
    const Link& link = world_.links[number];
    const std::uint32_t communicator = communicator_of_link(number);
    return fmt::format("from rank {} to rank {} over {}", link.source, link.destination,
                       world_.linked->communicators[communicator].name);
  }
  std::uint32_t communicator_of_link(std::size_t number) const {
    const Items& sends = sends_[number];
    const std::uint32_t item = sends.empty() ? receives_[number].front() : sends.front();
    const std::uint32_t thread =
        sends.empty() ? world_.links[number].destination : world_.links[number].source;
    return world_.port(thread, item_ref(program_.items[item])).communicator;
  }

  // Items whose label occurs more often on their side than on the other, and the rest of the side.
  struct Split {
    Items surplus, rest;
  };
  Split split(const Items& side, const Items& other) const {
    std::vector<std::uint64_t> left;
    for (const std::uint32_t item : other) left.push_back(label(item));
    std::sort(left.begin(), left.end());
    std::vector<bool> taken(left.size());
    Split out;
    for (const std::uint32_t item : side) {
      auto at =
          static_cast<std::size_t>(std::lower_bound(left.begin(), left.end(), label(item)) - left.begin());
      while (at < left.size() && left[at] == label(item) && taken[at]) ++at;
      const bool found = at < left.size() && left[at] == label(item);
      if (found) taken[at] = true;
      (found ? out.rest : out.surplus).push_back(item);
    }
    return out;
  }

  void link(std::size_t number) {
    const Items& sends = sends_[number];
    const Items& receives = receives_[number];
    if (sends.empty() && receives.empty()) return;
    if (sends.size() == receives.size()) {
      compare(number, sends, receives);
      return;
    }
    const Split of_sends = split(sends, receives);
    const Split of_receives = split(receives, sends);
    unmatched(number, of_sends.surplus, true);
    unmatched(number, of_receives.surplus, false);
    if (of_sends.rest.size() == of_receives.rest.size()) compare(number, of_sends.rest, of_receives.rest);
  }

  void unmatched(std::size_t number, const Items& surplus, bool sends) {
    if (surplus.empty()) return;
    const Link& link = world_.links[number];
    const std::uint32_t own = sends ? link.source : link.destination;
    std::vector<OperationRef> operations;
    for (std::size_t i = 0; i < std::min<std::size_t>(surplus.size(), 4); ++i) {
      operations.push_back(world_.operation(own, surplus[i]));
    }
    std::string why = fmt::format("{} on rank {} has no {} on rank {}", operations.front().text, own,
                                  sends ? "receive" : "send", sends ? link.destination : link.source);
    if (surplus.size() > 1) why += fmt::format(", nor have {} more {}", surplus.size() - 1, channel(number));
    add(FindingKind::kUnmatched, std::move(operations), std::move(why));
  }

  void compare(std::size_t number, const Items& sends, const Items& receives) {
    std::size_t labels = 0;
    std::size_t sizes = 0;
    std::size_t first_label = 0;
    std::size_t first_size = 0;
    for (std::size_t k = 0; k < sends.size(); ++k) {
      if (label(sends[k]) != label(receives[k]) && labels++ == 0) first_label = k;
      if (endpoint(sends[k]).bytes != endpoint(receives[k]).bytes && sizes++ == 0) first_size = k;
    }
    const auto report = [&](FindingKind kind, std::size_t k, std::size_t count, std::string what) {
      if (count > 1) what += fmt::format("; {} more messages {} likewise", count - 1, channel(number));
      add(kind,
          {world_.operation(world_.links[number].destination, receives[k]),
           world_.operation(world_.links[number].source, sends[k])},
          std::move(what));
    };
    if (labels > 0) {
      report(FindingKind::kLabelMismatch, first_label, labels,
             fmt::format("message {} {}: rank {} sends {}, rank {} takes it for {}", first_label + 1,
                         channel(number), world_.links[number].source, label_text(sends[first_label]),
                         world_.links[number].destination, label_text(receives[first_label])));
    }
    if (sizes > 0) {
      report(FindingKind::kSizeMismatch, first_size, sizes,
             fmt::format("message {} {}: {} bytes are sent, {} are expected", first_size + 1, channel(number),
                         endpoint(sends[first_size]).bytes, endpoint(receives[first_size]).bytes));
    }
  }

  std::string call_text(std::uint32_t thread, std::uint32_t item) const {
    const Endpoint& e = endpoint(item);
    const Port& port = world_.port(thread, item_ref(program_.items[item]));
    std::string text = fmt::format("{} ({} bytes, {}",
                                   describe_item(program_, static_cast<Rank>(thread), program_.items[item]),
                                   e.bytes, dtype_name(e.dtype));
    if (e.kind == EndpointKind::kAllReduce || e.kind == EndpointKind::kReduce ||
        e.kind == EndpointKind::kReduceScatter) {
      text += fmt::format(", {}", reduce_op_name(e.reduce));
    }
    if (e.offset != 0) text += fmt::format(", from byte {}", e.offset);
    if (port.peer != kNone32) text += fmt::format(", root {}", port.peer);
    return text + ")";
  }

  // Members are compared with the first; the first index that differs is told.
  void communicator(std::size_t number) {
    const std::uint32_t first = world_.member_base[number];
    const Items& model = collectives_[first];
    const std::uint32_t model_thread = world_.member_thread[first];
    const std::string& name = world_.linked->communicators[number].name;
    for (std::uint32_t m = first + 1; m < world_.member_base[number + 1]; ++m) {
      const Items& items = collectives_[m];
      const std::uint32_t thread = world_.member_thread[m];
      std::size_t i = 0;
      while (i < items.size() && i < model.size() && same_call(model_thread, model[i], thread, items[i])) ++i;
      if (i == items.size() && i == model.size()) continue;
      if (i < items.size() && i < model.size()) {
        add(FindingKind::kCollectiveMismatch,
            {world_.operation(thread, items[i]), world_.operation(model_thread, model[i])},
            fmt::format("collective {} of {}: rank {} calls {}, rank {} calls {}", i + 1, name, model_thread,
                        call_text(model_thread, model[i]), thread, call_text(thread, items[i])));
        continue;
      }
      const bool longer = i < items.size();
      const std::uint32_t caller = longer ? thread : model_thread;
      const std::uint32_t item = longer ? items[i] : model[i];
      add(FindingKind::kCollectiveMismatch, {world_.operation(caller, item)},
          fmt::format("collective {} of {}: rank {} calls {}, rank {} calls none", i + 1, name, caller,
                      call_text(caller, item), longer ? model_thread : thread));
    }
  }

  bool same_call(std::uint32_t thread_a, std::uint32_t a, std::uint32_t thread_b, std::uint32_t b) const {
    const Port& port_a = world_.port(thread_a, item_ref(program_.items[a]));
    const Port& port_b = world_.port(thread_b, item_ref(program_.items[b]));
    return port_a.key == port_b.key && port_a.peer == port_b.peer;
  }

  const CheckWorld& world_;
  const Program& program_;
  std::vector<Items> sends_, receives_, collectives_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> explain_matching(const CheckWorld& world, Arm arm) { return Matching(world, arm).run(); }

std::array<std::vector<Finding>, 2> crossed_labels(const CheckWorld& world) {
  std::array<std::vector<Finding>, 2> out;
  for (const Arm arm : {Arm::kNo, Arm::kYes}) {
    for (Finding& finding : explain_matching(world, arm))
      if (finding.kind == FindingKind::kLabelMismatch)
        out[arm == Arm::kYes ? 1 : 0].push_back(std::move(finding));
  }
  return out;
}

}  // namespace plumbline::verify
