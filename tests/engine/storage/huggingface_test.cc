// Models in Hugging Face's files: shards and index agree, or the model is refused.
#include "engine/storage/huggingface.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/storage/simulated_disk.h"

namespace plumbline::test {
namespace {

const std::vector<float> kValues(16, 1.5f);

std::vector<SafetensorsTensor> three() {
  return {{"a", ElementType::kF32, {4, 4}, kValues.data()},
          {"b", ElementType::kF32, {8}, kValues.data()},
          {"c", ElementType::kF32, {2}, kValues.data()}};
}

TEST(Huggingface, ShardsAndBack) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  ASSERT_TRUE(files.make_directory("/m"));
  ASSERT_TRUE(write_huggingface(files, "/m", three(), 64));
  EXPECT_EQ(*disk.content("/m/model.safetensors.index.json"),
            "{\"metadata\":{\"total_size\":104},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
            "\"b\":\"model-00002-of-00002.safetensors\",\"c\":\"model-00002-of-00002.safetensors\"}}\n");
  const auto reader = HuggingfaceReader::open(files, "/m");
  ASSERT_TRUE(reader) << reader.error().message;
  ASSERT_EQ(reader->tensors().size(), 3u);
  std::vector<float> got(8);
  ASSERT_TRUE(reader->read(*reader->find("b"), got.data()));
  EXPECT_EQ(got, std::vector<float>(8, 1.5f));
  EXPECT_EQ(reader->find("d"), nullptr);
  ASSERT_TRUE(files.make_directory("/one"));
  ASSERT_TRUE(write_huggingface(files, "/one", three()));
  EXPECT_EQ(disk.content("/one/model.safetensors.index.json"), nullptr);
  EXPECT_TRUE(HuggingfaceReader::open(files, "/one"));
}

TEST(Huggingface, IndexAndShardsMustAgree) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  ASSERT_TRUE(files.make_directory("/m"));
  ASSERT_TRUE(write_huggingface(files, "/m", three(), 64));
  std::string* index = disk.content("/m/model.safetensors.index.json");
  const std::string good = *index;
  const auto message = [&](const std::string& from, const std::string& to) {
    *index = good;
    index->replace(index->find(from), from.size(), to);
    const auto reader = HuggingfaceReader::open(files, "/m");
    return reader ? std::string() : reader.error().message;
  };
  EXPECT_NE(message("\"c\":\"model-00002", "\"c\":\"model-00001").find("not what the index says"),
            std::string::npos);
  EXPECT_NE(message("\"c\":", "\"d\":").find("not what the index says"), std::string::npos);
  EXPECT_NE(message("\"c\":", "\"d\":\"model-00002-of-00002.safetensors\",\"c\":").find("has no tensor 'd'"),
            std::string::npos);
  EXPECT_NE(message("\"c\":", "\"b\":").find("comes twice"), std::string::npos);
  EXPECT_NE(message("\"model-00001-of", "\"../model-00001-of").find("a file beside the index"),
            std::string::npos);
  EXPECT_NE(message("model-00001-of", "model-00003-of").find("No such file"), std::string::npos);
  EXPECT_NE(message("104", "-1").find("total_size"), std::string::npos);
}

}  // namespace
}  // namespace plumbline::test
