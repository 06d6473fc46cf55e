// Watchdog: a thread of a rank's process that looks at whether anything moves. When nothing has for the timeout,
// when SIGTERM comes, or when another rank has given up, this rank leaves its last words - where its host
// stands, and what it has enqueued - in a file and in the store, and waits to be ended. It never takes part in
// the run, so it answers also when everything else hangs.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "backends/processes/store.h"
#include "engine/config/rank_grid.h"
#include "engine/runtime/rank_status.h"

namespace plumbline::processes {

// Keys of the store.
inline constexpr const char* kStopKey = "stop";  // why the run ends early; the first one who says so is heard
std::string position_key(Rank rank);

struct WatchdogOptions {
  double timeout = 60.0;  // seconds without progress; 0: no limit
  std::string directory;  // for the files; empty: none are written
  Rank rank = 0;
  std::string library;  // that carries the messages, with its version if it has one; for the flight recorder
};

// Names of the files in `directory` that hold a rank's last words: its position, then its flight recorder.
std::array<std::string, 2> last_words_files(Rank rank);

class Watchdog {
 public:
  // Both outlive it. From here on SIGTERM is the watchdog's. After the last words the status is given up.
  Watchdog(Store& store, RankStatus& status, WatchdogOptions options);
  ~Watchdog();  // the run is over: nothing is said any more

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a rank says of where it stands (JSON), and its operations in the shape of PyTorch's Flight Recorder, which
// its analyser reads after a conversion to pickle.
std::string position_json(const RankStatus& status, Rank rank);
std::string flight_recorder_json(const RankStatus& status, Rank rank, const std::string& library);

}  // namespace plumbline::processes
