// What an asynchronous save writes is the state at start(), whatever training does while it is written; its
// outcome is not lost.
#include "engine/checkpoint/async_save.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/storage/simulated_disk.h"

namespace plumbline::test {
namespace {

class AloneChannel : public ControlChannel {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Result<std::vector<std::string>> exchange(const std::string& message) override {
    return std::vector<std::string>{message};
  }
};

ShardedTensor whole(const std::string& key, const at::Tensor& data) {
  ShardedTensor tensor;
  tensor.key = key;
  tensor.data = data;
  tensor.global_shape = tensor.local_shape = data.sizes().vec();
  tensor.offset.assign(tensor.global_shape.size(), 0);
  return tensor;
}

float first_of(SimulatedDisk& disk, std::int64_t iteration) {
  SimulatedFiles files(disk);
  const auto reader = CheckpointReader::open(files, "/c/" + iteration_name(iteration));
  EXPECT_TRUE(reader) << (reader ? "" : reader.error().message);
  return reader ? read_tensor(*reader, "p")->reshape({-1})[0].item<float>() : -1.0f;
}

TEST(AsyncSave, WritesTheSnapshot) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  AsyncSaver saver(files, std::make_unique<AloneChannel>(), "/c");
  at::Tensor p = at::full({1000}, 1.0f);
  ShardedStateDict state;
  state.tensors = {whole("p", p)};
  state.objects = {{"t", StateList{at::full({3}, 1.0f), 1}, 0}};
  ASSERT_TRUE(saver.start(1, state));
  p.fill_(2.0f);  // training goes on
  state.objects[0].value.get<StateList>()->at(0).get<at::Tensor>()->fill_(2.0f);
  const auto saved = saver.wait();
  ASSERT_TRUE(saved && *saved);
  EXPECT_EQ((*saved)->path, "/c/iter_0000001");
  EXPECT_EQ(saver.bytes_done(), saver.bytes_total());
  EXPECT_GT(saver.bytes_total(), 4000u);
  EXPECT_FALSE(saver.running());
  EXPECT_EQ(first_of(disk, 1), 1.0f);
  const auto reader = CheckpointReader::open(files, "/c/iter_0000001");
  const auto object = read_object(*reader, "t");
  EXPECT_EQ(first_difference(*object, StateValue(StateList{at::full({3}, 1.0f), 1})), "");
  EXPECT_FALSE(*saver.wait());  // told once
}

TEST(AsyncSave, FailureIsToldByTheNextStartAndNothingIsLost) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  AsyncSaver saver(files, std::make_unique<AloneChannel>(), "/c");
  ShardedStateDict state;
  state.tensors = {whole("p", at::ones({4}))};
  ASSERT_TRUE(saver.start(1, state));
  ASSERT_TRUE(saver.wait());
  files.set_read_only(true);
  ASSERT_TRUE(saver.start(2, state));
  const Status next = saver.start(3, state);
  ASSERT_FALSE(next);
  EXPECT_NE(next.error().message.find("Read-only"), std::string::npos);
  files.set_read_only(false);
  ASSERT_TRUE(saver.start(3, state));
  ASSERT_TRUE(saver.wait());
  EXPECT_EQ(first_of(disk, 3), 1.0f);
}

}  // namespace
}  // namespace plumbline::test
