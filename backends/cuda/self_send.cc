#include "backends/cuda/self_send.h"

#include <utility>

#include "engine/base/assert.h"

namespace plumbline::cuda {

SelfSends::~SelfSends() {
  for (const CommHandle comm : lines_) on().nccl.ncclCommAbort(comm);
}

Status SelfSends::reserve(std::size_t lines) {
  PL_TRY(device_.use());
  while (lines_.size() < lines) {
    UniqueId id{};
    PL_NCCL(on(), ncclGetUniqueId, &id);
    CommConfig config;
    config.blocking = 1;
    CommHandle comm = nullptr;
    PL_NCCL(on(), ncclCommInitRankConfig, &comm, 1, id, 0, &config);
    lines_.push_back(comm);
  }
  return {};
}

Status SelfSends::copy(std::size_t line, std::byte* to, const std::byte* from, Bytes bytes,
                       StreamHandle stream) {
  PL_ASSERT(line < lines_.size());
  if (bytes == 0) return {};
  constexpr int kSelf = 0;
  const int dtype = nccl_dtype(DType::kU8);
  const auto count = static_cast<std::size_t>(bytes);
  PL_NCCL(on(), ncclGroupStart);
  Status status =
      nccl_status(on(), on().nccl.ncclSend(from, count, dtype, kSelf, lines_[line], stream), "ncclSend");
  if (status)
    status = nccl_status(on(), on().nccl.ncclRecv(to, count, dtype, kSelf, lines_[line], stream), "ncclRecv");
  const int code = on().nccl.ncclGroupEnd();  // in any case: a group left open would swallow what follows
  PL_TRY(status);
  return nccl_status(on(), code, "ncclGroupEnd");
}

}  // namespace plumbline::cuda
