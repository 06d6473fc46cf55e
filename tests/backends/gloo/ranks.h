// Ranks of a Gloo run as threads of the test: real sockets, one ProcessGroupGloo a thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "backends/gloo/channel.h"
#include "backends/gloo/driver.h"
#include "backends/gloo/transport.h"
#include "backends/processes/store.h"

namespace plumbline::test {

// Calls `body` with each rank's transport, all at a time; a rank that cannot join fails the test.
inline void on_ranks(int world, const std::function<void(gloo::Transport&)>& body) {
  Result<std::unique_ptr<processes::Store>> store = processes::Store::serve(0);
  ASSERT_TRUE(store) << store.error().text();
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      Result<std::unique_ptr<gloo::Transport>> transport =
          gloo::connect({"127.0.0.1", (*store)->port()}, "test", rank, world, 20.0);
      EXPECT_TRUE(transport) << transport.error().text();
      if (transport) body(**transport);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace plumbline::test
