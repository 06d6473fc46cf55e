#include "sim/connect.h"

#include <algorithm>
#include <utility>

namespace plumbline::sim {

void ColdConnections::begin_step(const LinkedProgram& linked, ConnectionMap& map) {
  linked_ = &linked;
  connected_.clear();
  grow(map);
  exchanges_.assign(linked.program->threads.size(), Exchange{});
  mailboxes_.clear();
  readers_.clear();
  runnable_.clear();
  faults_.clear();
}

void ColdConnections::grow(ConnectionMap& map) {
  while (connected_.size() < linked_->communicators.size()) {
    const Communicator& communicator = linked_->communicators[connected_.size()];
    auto& members = map[communicator.name];
    members.resize(communicator.members.size());
    connected_.push_back(&members);
  }
}

bool ColdConnections::connected(std::int32_t communicator, std::int32_t position, Direction direction) const {
  if (direction.peer == position) return true;  // a rank reaches itself without a connection
  const auto& known =
      (*connected_[static_cast<std::size_t>(communicator)])[static_cast<std::size_t>(position)];
  return std::binary_search(known.begin(), known.end(), direction);
}

void ColdConnections::forget(std::int32_t communicator, std::int32_t position) {
  (*connected_[static_cast<std::size_t>(communicator)])[static_cast<std::size_t>(position)].clear();
}

void ColdConnections::begin(std::uint32_t thread, std::int32_t communicator, std::int32_t position,
                            std::vector<Direction> fresh) {
  if (thread >= exchanges_.size()) exchanges_.resize(thread + 1);
  Exchange& exchange = exchanges_[thread];
  exchange = Exchange{};
  exchange.communicator = communicator;
  exchange.position = position;
  exchange.members = static_cast<std::int32_t>(
      linked_->communicators[static_cast<std::size_t>(communicator)].members.size());
  exchange.fresh = std::move(fresh);
  runnable_.push_back(thread);
}

void ColdConnections::cancel(std::uint32_t thread) {
  if (thread >= exchanges_.size()) return;
  exchanges_[thread] = Exchange{};
  std::erase_if(readers_, [&](const auto& reader) { return reader.second == thread; });
  std::erase(runnable_, thread);
}

std::vector<std::uint32_t> ColdConnections::run() {
  std::vector<std::uint32_t> finished;
  for (std::size_t i = 0; i < runnable_.size(); ++i) {
    if (advance(runnable_[i])) finished.push_back(runnable_[i]);
  }
  runnable_.clear();
  return finished;
}

ColdConnections::Message ColdConnections::own_message(const Exchange& exchange, std::int32_t peer) const {
  const auto has = [&](bool send) {
    return std::binary_search(exchange.fresh.begin(), exchange.fresh.end(), Direction{peer, send});
  };
  const std::int32_t n = exchange.members;
  const std::int32_t to = (exchange.position + exchange.distance) % n;
  const std::int32_t from = (exchange.position - exchange.distance + n) % n;
  return {peer == to && has(true), peer == from && has(false)};
}

// Posts the messages of the current distance and notes whose answers are awaited.
void ColdConnections::post(Exchange& exchange) {
  const std::int32_t n = exchange.members;
  const std::int32_t to = (exchange.position + exchange.distance) % n;
  const std::int32_t from = (exchange.position - exchange.distance + n) % n;
  exchange.posted = true;
  exchange.awaited.clear();
  for (const std::int32_t peer : {to, from}) {
    if (!exchange.awaited.empty() && exchange.awaited.back() == peer) continue;
    const Message message = own_message(exchange, peer);
    if (!message.send && !message.recv) continue;
    const Key key{exchange.communicator, exchange.position, peer, exchange.distance, exchange.pass};
    mailboxes_[key].push_back(message);
    exchange.awaited.push_back(peer);
    const auto reader = readers_.find(key);
    if (reader == readers_.end()) continue;
    runnable_.push_back(reader->second);
    readers_.erase(reader);
  }
}

// Takes the awaited messages in turn; false: one is not there yet, or the host has failed.
bool ColdConnections::receive(std::uint32_t thread, Exchange& exchange) {
  while (!exchange.awaited.empty()) {
    const std::int32_t peer = exchange.awaited.front();
    const Key key{exchange.communicator, peer, exchange.position, exchange.distance, exchange.pass};
    const auto mailbox = mailboxes_.find(key);
    if (mailbox == mailboxes_.end() || mailbox->second.empty()) {
      readers_[key] = thread;
      return false;
    }
    const Message theirs = mailbox->second.front();
    mailbox->second.pop_front();
    if (mailbox->second.empty()) mailboxes_.erase(mailbox);
    exchange.awaited.erase(exchange.awaited.begin());
    if (2 * exchange.distance != exchange.members) continue;
    const Message own = own_message(exchange, peer);
    if (theirs.send == own.recv && theirs.recv == own.send) continue;
    const bool truncated = (own.send && own.recv) != (theirs.send && theirs.recv);
    if (exchange.pass == 0 && exchange.position < peer) {
      faults_.push_back({thread, exchange.communicator, peer, truncated});
    }
    if (truncated) {
      exchange.failed = true;
      return false;
    }
  }
  return true;
}

// True when the exchange is over.
bool ColdConnections::advance(std::uint32_t thread) {
  Exchange& exchange = exchanges_[thread];
  for (; exchange.pass < 2; ++exchange.pass, exchange.distance = 1) {
    for (; exchange.distance < exchange.members; ++exchange.distance, exchange.posted = false) {
      if (!exchange.posted) post(exchange);
      if (!receive(thread, exchange)) return false;
    }
  }
  auto& known = (*connected_[static_cast<std::size_t>(exchange.communicator)])[static_cast<std::size_t>(
      exchange.position)];
  known.insert(known.end(), exchange.fresh.begin(), exchange.fresh.end());
  std::sort(known.begin(), known.end());
  exchange = Exchange{};
  return true;
}

ColdConnections::Waiting ColdConnections::waiting(std::uint32_t thread) const {
  if (thread >= exchanges_.size() || exchanges_[thread].communicator < 0) return {};
  const Exchange& exchange = exchanges_[thread];
  return {exchange.communicator, exchange.awaited, exchange.failed};
}

}  // namespace plumbline::sim
