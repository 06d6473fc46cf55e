// Linked, both layers together, wherever a CUDA LibTorch is found; run by hand where there is a GPU: two ranks on
// device 0 pass a tensor on by loopback, computed on by LibTorch on their own streams.
#include <cstdio>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "backends/cuda/driver.h"
#include "backends/cuda/loopback_transport.h"
#include "backends/cuda/tensors/device/tensor_device.h"
#include "engine/program/link.h"

namespace plumbline::cuda {
namespace {

// Stage 0 writes ones, stage 1 doubles what it gets and keeps its sum.
class Doubling final : public StageKernels {
 public:
  at::Tensor sum;
  std::optional<MemoryKind> memory(const SlotClass& /*slot*/) const override { return MemoryKind::kDevice; }
  Status bind(const SlotClass& /*slot*/, const SlotMemory& /*memory*/, StreamHandle /*stream*/) override {
    return {};
  }
  Status launch(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                StreamHandle stream) override {
    const std::shared_ptr<void> guard = device_->enter(stream);
    const SlotMemory& memory = slots.front().second;
    const at::Tensor data =
        memory_view(memory.data, {memory.bytes / dtype_bytes(memory.dtype)}, at::kFloat, device_->device());
    if (call.rank == 0) {
      data.fill_(1.0);
    } else {
      sum = data.mul(2.0).sum();
    }
    return {};
  }

 private:
  std::unique_ptr<TensorDevice> device_ = tensor_device(0);
};

Program two_ranks() {
  Program program;
  program.name = "smoke";
  program.grid = *RankGrid::create({.pp = 2});
  program.stages = 2;
  program.rank_of_stage = {0, 1};
  program.streams.push_back("pp");
  program.slots.push_back({"activation.1", SlotKind::kActivation, DType::kF32, 1, true, false, 4096});
  program.kernels.push_back({"F.0", KernelKind::kForward, 0, {}, {}, {0}});
  program.kernels.push_back({"F.1", KernelKind::kForward, 1, {}, {0}, {}});
  program.families.push_back({"pp", false, {{0, 1}}});
  for (const bool send : {true, false}) {
    Endpoint row;
    row.name = send ? "send" : "recv";
    row.kind = send ? EndpointKind::kSend : EndpointKind::kRecv;
    row.form = PeerForm::kRank;
    row.peer = send ? 1 : 0;
    row.free_after = send;
    row.bytes = 4096;
    program.endpoints.push_back(row);
  }
  program.items = {make_item(ItemOp::kLaunch, 0, 0, 0, 0), make_item(ItemOp::kOp, 0, kAfterCompute, 0, 1),
                   make_item(ItemOp::kOp, 0, kComputeWaits, 1, 1), make_item(ItemOp::kLaunch, 0, 0, 1, 0)};
  program.threads = {{0, 0, 2}, {1, 2, 4}};
  return program;
}

Status smoke() {
  PL_TRY(raise_connections());
  set_up_device_tensors();
  const auto libraries = load_libraries({.nccl = false, .memory_operations = true});
  if (!libraries) return tl::unexpected(libraries.error());
  const Program program = two_ranks();
  PL_TRY(validate_program(program));
  const Result<LinkedProgram> linked = link_program(program);
  if (!linked) return tl::unexpected(linked.error());
  Doubling first, second;
  std::vector<LocalRank> local{{0, {*libraries, 0}}, {1, {*libraries, 0}}};
  LoopbackTransport transport(local);
  CudaBackend backend({{local[0], &first}, {local[1], &second}}, transport, {});
  const std::unique_ptr<HostClock> clock = steady_clock();
  CudaDriver driver(backend, *clock, {Nanoseconds{30} * 1000000000, default_model()});
  PL_TRY(driver.set_program(*linked));
  RunRecord record = record_for(program);
  const Result<SimStep> step = driver.run_step(0, record);
  if (!step) return tl::unexpected(step.error());
  if (!step->completed) return fail(ErrorCode::kState, step->findings.front().why);
  const double sum = second.sum.item<double>();
  if (sum != 2048.0) return fail(ErrorCode::kState, "the sum is not 2048");
  return {};
}

}  // namespace
}  // namespace plumbline::cuda

int main() {
  const plumbline::Status status = plumbline::cuda::smoke();
  std::puts(status ? "smoke: 2048, as it must be" : status.error().text().c_str());
  return status ? 0 : status.error().code == plumbline::ErrorCode::kMissing ? 75 : 1;
}
