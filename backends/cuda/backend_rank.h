// The state of one served rank; of backend*.cc alone.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/cuda/backend.h"

namespace plumbline::cuda {

struct CudaBackend::Rank {
  Rank(ServedRank served_rank, bool timing)
      : served(std::move(served_rank)),
        events(served.local.device, timing),
        edges(served.local.device, false),
        pool(served.local.device) {}

  const LocalRank& local() const { return served.local; }
  StreamHandle stream(int row) const { return streams.at(rows[static_cast<std::size_t>(row)]).get(); }

  // A slot's memory, and what uses it.
  struct Instance {
    MemoryPool::BlockId block = 0;
    bool has_block = false;
    std::byte* data = nullptr;  // persistent or of the block
    std::vector<Token> uses;
  };
  struct Persistent {
    Memory memory;
    Bytes bytes = 0;
    bool bound = false;
  };
  // A graph that is open, or being captured.
  struct OpenGraph {
    std::uint32_t run = 0;  // of the step, from 1 on
    int stream = 0;
    std::vector<GraphCommand> commands;
    std::vector<std::size_t> operations;  // by command; kNone: it is none
  };
  static constexpr auto kNone = static_cast<std::size_t>(-1);
  // (slot class, microbatch, how often it was written before in the step)
  using OwnSlot = std::tuple<std::uint16_t, int, int>;

  ServedRank served;
  std::vector<int> rows;          // Transport::stream_rows
  std::map<int, Stream> streams;  // by such a row; those the rank uses
  EventPool events;
  EventPool edges;  // of captures
  MemoryPool pool;
  bool graphs = false;  // the Program has some: slots have blocks of their own
  std::map<OwnSlot, Memory> blocks;
  std::map<std::pair<std::uint16_t, int>, int> written;  // of the step
  std::map<std::string, Persistent> persistent;
  std::unique_ptr<sim::Slots> slots;
  std::map<std::uint32_t, Instance> instances;  // of the step, by number
  Memory variables;                             // host copies of what is read
  EventHandle epoch = nullptr;                  // begin of the step
  std::vector<MemoryPoint> memory;
  Bytes noted = -1;
  std::vector<std::unique_ptr<CapturedGraph>> captured;
  std::optional<OpenGraph> open;
  std::unique_ptr<GraphCapture> capture;  // of `open`
};

}  // namespace plumbline::cuda
