// A ControlChannel over the store, with ranks as threads.
#include "backends/processes/channel.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace plumbline::processes {
namespace {

std::unique_ptr<Store> joined(const Store& served) {
  Result<std::unique_ptr<Store>> store = Store::join({"127.0.0.1", served.port(), {}}, 20.0);
  EXPECT_TRUE(store) << store.error().text();
  return std::move(*store);
}

// What rank `rank` says in exchange `i`: of different sizes, some empty, with bytes that no text has.
std::string message_of(Rank rank, int i) {
  return std::string(static_cast<std::size_t>((rank * 7 + i) % 5), static_cast<char>(rank * 16 + i));
}

TEST(StoreChannel, EveryoneGetsEveryonesMessageAndKeysGo) {
  constexpr int kWorld = 4, kTimes = 50;
  Result<std::unique_ptr<Store>> store = Store::serve(0);
  ASSERT_TRUE(store) << store.error().text();
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      const auto run = store_channel(joined(**store), "run", rank, kWorld);
      const auto save = store_channel(joined(**store), "save", rank, kWorld);
      EXPECT_EQ(rank, run->rank());
      EXPECT_EQ(kWorld, run->size());
      for (int i = 0; i < kTimes; ++i) {
        ControlChannel& channel = i % 10 == 9 ? *save : *run;
        const Result<std::vector<std::string>> all = channel.exchange(message_of(rank, i));
        ASSERT_TRUE(all) << all.error().text();
        ASSERT_EQ(static_cast<std::size_t>(kWorld), all->size());
        for (Rank from = 0; from < kWorld; ++from)
          EXPECT_EQ(message_of(from, i), (*all)[static_cast<std::size_t>(from)]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // What is left is the last publication of each channel: 45 and 5 exchanges.
  int left = 0;
  for (const char* name : {"run", "save"}) {
    for (int i = 0; i < kTimes; ++i) {
      for (const std::string& last :
           {std::string("all"), std::string("1"), std::string("2"), std::string("3")}) {
        const Result<std::optional<std::string>> value =
            (*store)->get(std::string("channel/") + name + "/" + std::to_string(i) + "/" + last);
        ASSERT_TRUE(value);
        if (*value) ++left;
      }
    }
  }
  EXPECT_EQ(2, left);
  EXPECT_TRUE((*store)->get("channel/run/44/all").value());
  EXPECT_TRUE((*store)->get("channel/save/4/all").value());
}

TEST(StoreChannel, TheWatchdogLooksOnWhileARankWaits) {
  Result<std::unique_ptr<Store>> store = Store::serve(0);
  ASSERT_TRUE(store) << store.error().text();
  RankStatus status;
  std::thread first([&] {
    const auto channel = store_channel(joined(**store), "run", 0, 2, &status);
    EXPECT_TRUE(channel->exchange("a"));
  });
  for (int i = 0; i < 500 && !status.watched(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(status.watched());
  const auto channel = store_channel(joined(**store), "run", 1, 2);
  EXPECT_EQ((std::vector<std::string>{"a", "b"}), channel->exchange("b").value());
  first.join();
  EXPECT_FALSE(status.watched());
}

TEST(StoreChannel, WithoutTheStoreItIsAnError) {
  Result<std::unique_ptr<Store>> store = Store::serve(0);
  ASSERT_TRUE(store) << store.error().text();
  const auto channel = store_channel(joined(**store), "run", 1, 2);
  store->reset();
  const auto all = channel->exchange("a");
  ASSERT_FALSE(all);
  EXPECT_EQ(ErrorCode::kState, all.error().code);
  EXPECT_NE(std::string::npos, all.error().message.find("rank 1 cannot exchange")) << all.error().message;
}

}  // namespace
}  // namespace plumbline::processes
