#include <tuple>
#include <utility>

#include "backends/cuda/double/functions.h"
#include "backends/cuda/double/server.h"

namespace plumbline::cuda {
namespace {

template <typename R, typename... P>
bool answer(R (*function)(P...), Reader& in, Writer& out) {
  std::tuple<Parcel<P>...> parcels{
      Parcel<P>(in)...};  // in the order of the parameters: the braces see to that
  if (in.broken()) return false;
  out.put(std::apply([&](auto&... parcel) { return function(parcel.argument()...); }, parcels));
  std::apply([&](auto&... parcel) { (parcel.answer(out), ...); }, parcels);
  return true;
}

}  // namespace

bool dispatch(Function function, Reader& in, Writer& out) {
  switch (function) {
#define X(name, parameters) \
  case Function::k_##name:  \
    return answer(&::name, in, out);
    PLUMBLINE_CUDA_RUNTIME(X)
    PLUMBLINE_NCCL(X)
#undef X
    case Function::k_cuStreamWriteValue32_v2:
      return answer(&::cuStreamWriteValue32_v2, in, out);
    case Function::k_cuStreamWaitValue32_v2:
      return answer(&::cuStreamWaitValue32_v2, in, out);
    case Function::kShrink:
      return answer(&shrink_of_ranks, in, out);
    case Function::kHostFunctionDone:
      return answer(&host_function_done, in, out);
    case Function::kStep:
      return answer(&control_step, in, out);
    case Function::kPollsStep:
      return answer(&control_polls_step, in, out);
    case Function::kNow:
      return answer(&control_now, in, out);
    case Function::kNextTakes:
      return answer(&control_next_takes, in, out);
    case Function::kEndProcess:
      return answer(&control_end_process, in, out);
    case Function::kIncomplete:
      return answer(&control_incomplete, in, out);
    case Function::kVerdict:
      return answer(&control_verdict, in, out);
    case Function::kCalls:
      return answer(&control_calls, in, out);
    case Function::kPeak:
      return answer(&control_peak, in, out);
  }
  return false;
}

}  // namespace plumbline::cuda
