// Remote: the devices of another process, where PLUMBLINE_DOUBLE_SERVER names its socket. Any thread may call; calls
// of a process take their turns. A process connects on its first call, and so does a child after fork.
//
// Host functions run in the process and the thread that enqueued them, within one of its calls and holding nothing, in
// the order in which their turns came. A thread that enqueues some has to go on calling, as one that polls does.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cuda/double/functions.h"
#include "backends/cuda/double/wire.h"
#include "engine/base/result.h"

namespace plumbline::cuda {

class Remote {
 public:
  explicit Remote(const std::string& path);
  // Without waiting for anybody: of a connection that belongs to the parent of this process.
  void forget();

  // Why nothing can be called any more; "": it can.
  const char* failure();

  // Has the function called there; `lost` if that cannot be.
  template <typename R, typename... P>
  R call(Function function, R (*)(P...), std::type_identity_t<R> lost, std::type_identity_t<P>... arguments) {
    Writer request = begin(function);
    (Parcel<P>::send(request, arguments), ...);
    const std::optional<std::vector<std::byte>> answer = exchange(request);
    if (!answer) return lost;
    Reader in(*answer);
    R result = in.get<R>();
    (Parcel<P>::receive(in, arguments), ...);
    take_due(in);
    return result;
  }

 private:
  Status connect(const std::string& path);
  static Writer begin(Function function);
  std::optional<std::vector<std::byte>> exchange(Writer& request);
  void take_due(Reader& in);

  std::mutex mutex_;
  int socket_ = -1;
  std::string failure_;
};

// Null: this process plays the devices itself.
Remote* remote();
// From now on it does, whatever the environment says.
void play_here();

}  // namespace plumbline::cuda
