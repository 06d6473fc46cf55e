#include "engine/schedule/comm_check.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

namespace plumbline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// A listed transfer and where it stands.
struct Transfer {
  Action action;
  int rank = 0;
  int position = 0;

  auto label() const { return std::tuple(action.kind, action.stage, action.microbatch); }
};

bool is_forward(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kRecvForward || kind == ActionKind::kForward;
}

// The other end of a transfer: 0SEND_F3 meets 1RECV_F3.
Action partner_of(const Action& action) {
  Action other = action;
  const bool up = action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward;
  other.stage = static_cast<std::uint16_t>(action.stage + (up ? 1 : -1));
  switch (action.kind) {
    case ActionKind::kSendForward:
      other.kind = ActionKind::kRecvForward;
      break;
    case ActionKind::kRecvForward:
      other.kind = ActionKind::kSendForward;
      break;
    case ActionKind::kSendBackward:
      other.kind = ActionKind::kRecvBackward;
      break;
    default:
      other.kind = ActionKind::kSendBackward;
  }
  return other;
}

bool has_partner(const Action& action, const Schedule& schedule) {
  const bool up = action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward;
  return up ? action.stage + 1 < schedule.stages : action.stage > 0;
}

// All transfers in range, sorted by label; those of one label in the order of ranks and rows.
std::vector<Transfer> transfers_of(const Schedule& schedule) {
  std::vector<Transfer> out;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::span<const Action> row = schedule.row(rank);
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!is_p2p(row[i].kind) || !in_range(row[i], schedule)) continue;
      out.push_back(Transfer{row[i], rank, static_cast<int>(i)});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Transfer& a, const Transfer& b) { return a.label() < b.label(); });
  return out;
}

const Transfer* find_transfer(const std::vector<Transfer>& sorted, const Action& action) {
  const Transfer key{action, 0, 0};
  const auto found =
      std::lower_bound(sorted.begin(), sorted.end(), key,
                       [](const Transfer& a, const Transfer& b) { return a.label() < b.label(); });
  return found == sorted.end() || found->label() != key.label() ? nullptr : &*found;
}

class TransferCheck {
 public:
  TransferCheck(const Schedule& schedule, const StepIndex& index, std::vector<ScheduleFinding>* findings)
      : schedule_(schedule), index_(index), findings_(*findings), transfers_(transfers_of(schedule)) {}

  void run(bool fragment) {
    if (transfers_.empty()) return;
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      const Transfer& transfer = transfers_[i];
      if (i > 0 && transfers_[i - 1].label() == transfer.label()) {
        add("duplicate", transfer,
            fmt::format("{} on rank {} at position {} stands on rank {} at position {} already",
                        print_action(transfer.action), transfer.rank, transfer.position,
                        transfers_[i - 1].rank, transfers_[i - 1].position));
        continue;
      }
      check_order(transfer);
      if (!fragment) check_partner(transfer);
    }
    if (!fragment) check_edges();
  }

 private:
  void add(const char* rule, const Transfer& at_transfer, std::string why) {
    findings_.push_back(ScheduleFinding{rule, std::move(why), at_transfer.rank, at_transfer.position});
  }

  // Position in its row of the computation that makes what is sent, or reads what is received; -1: elsewhere or not
  // there.
  int computation(const Transfer& transfer) const {
    const StepIndex::Steps* steps = index_.find(transfer.action.stage, transfer.action.microbatch);
    if (steps == nullptr) return -1;
    const std::uint32_t index =
        is_forward(transfer.action.kind) ? steps->of(ActionKind::kForward) : steps->gradient();
    const std::uint32_t begin = schedule_.offsets[at(transfer.rank)];
    if (index == StepIndex::kNone || index < begin || index >= schedule_.offsets[at(transfer.rank) + 1])
      return -1;
    return static_cast<int>(index - begin);
  }

  void check_order(const Transfer& transfer) {
    const int computed = computation(transfer);
    if (computed < 0) return;
    const Action& step = schedule_.row(transfer.rank)[at(computed)];
    if (is_send(transfer.action.kind) && transfer.position < computed) {
      add("order", transfer,
          fmt::format("{} on rank {} stands before {}, which makes what it sends",
                      print_action(transfer.action), transfer.rank, print_action(step)));
    } else if (!is_send(transfer.action.kind) && transfer.position > computed) {
      add("order", transfer,
          fmt::format("{} on rank {} stands behind {}, which reads what it receives",
                      print_action(transfer.action), transfer.rank, print_action(step)));
    }
  }

  void check_partner(const Transfer& transfer) {
    if (!has_partner(transfer.action, schedule_)) return;  // rule "range" has it
    const Action other = partner_of(transfer.action);
    if (find_transfer(transfers_, other) != nullptr) return;
    add("missing", transfer,
        fmt::format("{} on rank {} has no partner: {} stands nowhere", print_action(transfer.action),
                    transfer.rank, print_action(other)));
  }

  // Where transfers are listed at all, every tensor between two ranks has one.
  void check_edges() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const std::span<const Action> row = schedule_.row(rank);
      for (std::size_t i = 0; i < row.size(); ++i) {
        const Action& step = row[i];
        if (!is_compute(step.kind) || step.kind == ActionKind::kWeightGrad || !in_range(step, schedule_))
          continue;
        Action send = step;
        send.paired = 0;
        send.kind = is_forward(step.kind) ? ActionKind::kSendForward : ActionKind::kSendBackward;
        if (!has_partner(send, schedule_)) continue;
        const Action receive = partner_of(send);
        const std::int32_t peer = schedule_.rank_of(receive.stage, receive.microbatch);
        if (peer == rank || peer < 0) continue;
        // One end alone is told by check_partner.
        if (find_transfer(transfers_, send) != nullptr || find_transfer(transfers_, receive) != nullptr)
          continue;
        findings_.push_back(ScheduleFinding{
            "missing",
            fmt::format("{} of rank {} is needed on rank {}, but {} and {} stand nowhere", print_action(step),
                        rank, peer, print_action(send), print_action(receive)),
            rank, static_cast<int>(i)});
      }
    }
  }

  const Schedule& schedule_;
  const StepIndex& index_;
  std::vector<ScheduleFinding>& findings_;
  std::vector<Transfer> transfers_;
};

}  // namespace

std::vector<ScheduleFinding> check_channels(const Schedule& schedule, ChannelScope scope) {
  const std::vector<Transfer> sorted = transfers_of(schedule);
  // (from, to, direction) -> both ends in their rows' order, each as the label of the send.
  struct Channel {
    std::vector<Transfer> sent, received;
  };
  std::map<std::tuple<int, int, bool>, Channel> channels;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::span<const Action> row = schedule.row(rank);
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!is_p2p(row[i].kind) || !in_range(row[i], schedule) || !has_partner(row[i], schedule)) continue;
      const Action other = partner_of(row[i]);
      if (find_transfer(sorted, other) == nullptr) continue;
      const int peer = schedule.rank_of(other.stage, other.microbatch);
      const bool send = is_send(row[i].kind);
      const bool forward = scope == ChannelScope::kDirection && is_forward(row[i].kind);
      Channel& channel = channels[{send ? rank : peer, send ? peer : rank, forward}];
      (send ? channel.sent : channel.received)
          .push_back(Transfer{send ? row[i] : other, rank, static_cast<int>(i)});
    }
  }
  std::vector<ScheduleFinding> findings;
  for (const auto& [ends, channel] : channels) {
    const std::size_t count = std::min(channel.sent.size(), channel.received.size());
    for (std::size_t k = 0; k < count; ++k) {
      const Transfer& sent = channel.sent[k];
      const Transfer& received = channel.received[k];
      if (sent.label() == received.label()) continue;
      findings.push_back(ScheduleFinding{
          "channel",
          fmt::format(
              "message {} from rank {} to rank {} is {}, but the {} receive there is {}: what is received is "
              "another tensor",
              k, std::get<0>(ends), std::get<1>(ends), print_action(sent.action), k,
              print_action(partner_of(received.action))),
          received.rank, received.position});
      break;
    }
  }
  return findings;
}

namespace detail {

void check_transfers(const Schedule& schedule, const StepIndex& index, bool fragment,
                     std::vector<ScheduleFinding>* findings) {
  TransferCheck(schedule, index, findings).run(fragment);
}

void check_reductions(const Schedule& schedule, bool fragment, std::vector<ScheduleFinding>* findings) {
  bool listed = false;
  std::map<std::pair<int, int>, int> reduced;  // rank, stage -> where
  std::map<std::pair<int, int>, int> last;     // its last W or B
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::span<const Action> row = schedule.row(rank);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::pair key{rank, static_cast<int>(row[i].stage)};
      const int position = static_cast<int>(i);
      if (row[i].kind == ActionKind::kBackward || row[i].kind == ActionKind::kWeightGrad)
        last[key] = position;
      if (row[i].kind != ActionKind::kReduceGrad) continue;
      listed = true;
      const auto [found, fresh] = reduced.emplace(key, position);
      if (!fresh)
        findings->push_back(
            ScheduleFinding{"duplicate",
                            fmt::format("{} on rank {} at position {} stands at position {} already",
                                        print_action(row[i]), rank, i, found->second),
                            rank, position});
    }
  }
  for (const auto& [key, position] : last) {
    const auto found = reduced.find(key);
    if (found == reduced.end()) {
      if (listed && !fragment)
        findings->push_back(ScheduleFinding{
            "missing",
            fmt::format("stage {} on rank {} is never reduced, other stages are", key.second, key.first),
            key.first, 0});
    } else if (found->second < position) {
      const Action& late = schedule.row(key.first)[at(position)];
      findings->push_back(ScheduleFinding{
          "order",
          fmt::format("{}REDUCE_GRAD on rank {} stands before {}, whose gradient it leaves out", key.second,
                      key.first, print_action(late)),
          key.first, found->second});
    }
  }
}

void check_sharding(const Schedule& schedule, bool fragment, std::vector<ScheduleFinding>* findings) {
  const bool listed = std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const Action& action) {
    return action.kind == ActionKind::kUnshard || action.kind == ActionKind::kReshard;
  });
  if (!listed) return;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::map<int, int> gathered;  // stage -> where it was
    const std::span<const Action> row = schedule.row(rank);
    const auto add = [&](std::size_t position, std::string why) {
      findings->push_back(ScheduleFinding{"sharding", std::move(why), rank, static_cast<int>(position)});
    };
    for (std::size_t i = 0; i < row.size(); ++i) {
      const int stage = row[i].stage;
      const auto known = gathered.find(stage);
      if (row[i].kind == ActionKind::kUnshard) {
        if (known != gathered.end())
          add(i, fmt::format("{} on rank {} gathers what was gathered at position {} and not dropped since",
                             print_action(row[i]), rank, known->second));
        gathered[stage] = static_cast<int>(i);
      } else if (row[i].kind == ActionKind::kReshard) {
        if (known == gathered.end() && !fragment)
          add(i, fmt::format("{} on rank {} drops what is not gathered", print_action(row[i]), rank));
        gathered.erase(stage);
      } else if (is_compute(row[i].kind) && known == gathered.end() && !fragment) {
        add(i, fmt::format("{} on rank {} computes with parameters that are not gathered; {}UNSHARD is "
                           "missing before it",
                           print_action(row[i]), rank, stage));
        gathered[stage] = static_cast<int>(i);  // told once
      }
    }
    if (fragment) continue;
    for (const auto& [stage, position] : gathered)
      add(at(position), fmt::format("stage {} on rank {} stays gathered after the step; {}RESHARD is missing",
                                    stage, rank, stage));
  }
}

}  // namespace detail
}  // namespace plumbline
