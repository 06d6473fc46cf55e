// Containers: what is written is read; damage and bombs are refused.
#include "engine/storage/zip.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "engine/storage/simulated_disk.h"

namespace plumbline::test {
namespace {

class Zip : public testing::Test {
 protected:
  Zip() : files(disk) {}

  std::string container(const std::vector<std::pair<std::string, std::string>>& entries) {
    EXPECT_TRUE(remove_tree(files, "/z"));
    auto file = files.create("/z");
    ZipWriter zip(**file);
    for (const auto& [name, content] : entries) EXPECT_TRUE(zip.add(name, content.data(), content.size()));
    EXPECT_TRUE(zip.finish());
    EXPECT_EQ(zip.bytes(), disk.content("/z")->size());
    return *disk.content("/z");
  }
  std::string message(const std::string& bytes) {
    EXPECT_TRUE(remove_tree(files, "/d"));
    EXPECT_TRUE(write_new_file(files, "/d", bytes));
    const auto file = files.open("/d");
    const auto zip = ZipReader::open(**file);
    if (!zip) return zip.error().message;
    for (const ZipEntry& entry : zip->entries()) {
      const auto content = zip->read(entry, 1 << 20);
      if (!content) return content.error().message;
    }
    return "";
  }

  SimulatedDisk disk;
  SimulatedFiles files;
};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

TEST_F(Zip, ReadsWhatItWrites) {
  const std::string large(100000, 'x');
  const std::string bytes = container({{"a/data.pkl", "12345"}, {"a/data/0", large}, {"a/empty", ""}});
  const auto file = files.open("/z");
  const auto zip = ZipReader::open(**file);
  ASSERT_TRUE(zip) << zip.error().message;
  ASSERT_EQ(zip->entries().size(), 3u);
  EXPECT_EQ(*zip->read(*zip->find("a/data.pkl"), 5), "12345");
  EXPECT_EQ(*zip->read(*zip->find("a/data/0"), 1 << 20), large);
  EXPECT_EQ(*zip->read(*zip->find("a/empty"), 0), "");
  EXPECT_EQ(zip->find("a"), nullptr);
  for (const ZipEntry& entry : zip->entries()) EXPECT_EQ(entry.begin % 64, 0u);
  EXPECT_NE(zip->read(*zip->find("a/data.pkl"), 4).error().message.find("the limit is 4"), std::string::npos);
  EXPECT_EQ(bytes, container({{"a/data.pkl", "12345"}, {"a/data/0", large}, {"a/empty", ""}}));
}

TEST_F(Zip, ContainersBehindEachOther) {
  const std::string one = container({{"x/data.pkl", "one"}}), two = container({{"x/data.pkl", "two"}});
  ASSERT_TRUE(write_new_file(files, "/both", one + two));
  const auto file = files.open("/both");
  const auto first = ZipReader::open(**file, 0, one.size()),
             second = ZipReader::open(**file, one.size(), two.size());
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first->read(first->entries()[0], 9), "one");
  EXPECT_EQ(*second->read(second->entries()[0], 9), "two");
  EXPECT_FALSE(ZipReader::open(**file, 1, one.size() - 1));
  EXPECT_FALSE(ZipReader::open(**file, one.size(), two.size() + 1));
}

TEST_F(Zip, Attacks) {
  const std::string good = container({{"a/x", "12345"}, {"a/y", "67890"}});
  EXPECT_EQ(message(good), "");
  EXPECT_NE(message("").find("no zip container"), std::string::npos);
  EXPECT_NE(message(good.substr(0, good.size() - 1)).find("no zip container"), std::string::npos);
  std::string bad = good;
  replace_all(bad, "a/y", "a/x");
  EXPECT_NE(message(bad).find("'a/x' comes twice"), std::string::npos);
  bad = container({{"a/../../x", "1"}});
  EXPECT_NE(message(bad).find("no name inside a folder"), std::string::npos);
  bad = container({{"/etc/x", "1"}});
  EXPECT_NE(message(bad).find("no name inside a folder"), std::string::npos);
  bad = good;
  bad[bad.find("12345")] = '9';
  EXPECT_NE(message(bad).find("damaged, checksum"), std::string::npos);
  bad = good;
  bad.replace(bad.find("a/x"), 3, "b/x");
  EXPECT_NE(message(bad).find("'a/x' is called 'b/x' at its place"), std::string::npos);
  // The second entry's directory record points at the first's header: one range, two names.
  bad = good;
  const std::size_t second = bad.rfind("PK\x01\x02");
  bad.replace(second + 42, 4, std::string(4, '\0'));
  EXPECT_NE(message(bad), "");
  // More out of fewer bytes than deflate can.
  bad = good;
  const std::size_t first = bad.find("PK\x01\x02");
  bad[first + 10] = 8;
  bad.replace(first + 24, 4, "\xff\xff\xff\x7f");
  EXPECT_NE(message(bad).find("bytes out of 5"), std::string::npos);
  bad = good;
  bad[first + 8] = 1;
  EXPECT_NE(message(bad).find("is encrypted"), std::string::npos);
  bad = good;
  bad.replace(first + 42, 4, "\xff\xff\xff\x7f");
  EXPECT_NE(message(bad).find("lies outside"), std::string::npos);
}

TEST_F(Zip, EveryDamagedByteIsRefusedOrHarmless) {
  const std::string good = container({{"a/x", "12345"}, {"a/y", "67890"}});
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      (void)message(bad);  // must come back; under sanitizers this is a test of memory
    }
  }
}

// By hand, because our writer only stores.
TEST_F(Zip, DeflatedEntries) {
  const std::string content(5000, 'q');
  std::string packed(1000, '\0');
  z_stream stream{};
  ASSERT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  std::string bytes = container({{"a/x", packed}});
  const auto number = [](std::uint64_t value) {
    std::string out;
    for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
    return out;
  };
  const std::size_t row = bytes.find("PK\x01\x02");
  bytes[row + 10] = 8;
  bytes.replace(row + 16, 4, number(crc32(0, reinterpret_cast<const Bytef*>(content.data()), 5000)));
  bytes.replace(row + 24, 4, number(content.size()));
  EXPECT_EQ(message(bytes), "");
  bytes.replace(row + 24, 4, number(content.size() + 1));
  EXPECT_NE(message(bytes).find("damaged deflated data"), std::string::npos);
}

}  // namespace
}  // namespace plumbline::test
