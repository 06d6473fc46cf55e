// The state of one served rank; of backend*.cc alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/cuda/backend.h"

namespace plumbline::cuda {

struct CudaBackend::Rank {
  Rank(ServedRank served_rank, bool timing)
      : served(std::move(served_rank)), events(served.local.device, timing), pool(served.local.device) {}

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
  struct Variable {
    std::size_t offset = 0;  // in `variables`
    DType dtype = DType::kF32;
  };

  ServedRank served;
  std::vector<int> rows;          // Transport::stream_rows
  std::map<int, Stream> streams;  // by such a row; those the rank uses
  EventPool events;
  MemoryPool pool;
  std::map<std::string, Persistent> persistent;
  std::unique_ptr<sim::Slots> slots;
  std::map<std::uint32_t, Instance> instances;  // of the step, by number
  Memory variables;                             // host copies of what is read
  EventHandle epoch = nullptr;                  // begin of the step
  std::vector<MemoryPoint> memory;
  Bytes noted = -1;
};

}  // namespace plumbline::cuda
