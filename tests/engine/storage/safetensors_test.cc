// The reader against everything the format forbids, byte by byte; the writer against the reader.
#include "engine/storage/safetensors.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/storage/simulated_disk.h"

namespace plumbline::test {
namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xFF);
  return out + rest;
}

std::string file_of(const std::string& json, const std::string& data = "") {
  return with_length(json.size(), json + data);
}

Result<SafetensorsHeader> read(const std::string& bytes) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  EXPECT_TRUE(write_new_file(files, "/t", bytes));
  const auto file = files.open("/t");
  return read_safetensors_header(**file);
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

TEST(Safetensors, ReadsWhatIsAllowed) {
  const std::string four(4, 'x');
  EXPECT_TRUE(read(file_of("{}")));
  EXPECT_TRUE(read(file_of(" \n{}  ")));  // blanks around, as writers that align pages make them
  EXPECT_TRUE(
      read(file_of("{" + entry("a", "F32", "[]", "[0,4]") + "}", four)));  // no dimension: one element
  EXPECT_TRUE(read(file_of("{" + entry("a", "F32", "[0,7]", "[0,0]") + "}")));
  EXPECT_TRUE(read(
      file_of("{" + entry("a", "F32", "[0]", "[4,4]") + "," + entry("b", "U8", "[4]", "[0,4]") + "}", four)));
  EXPECT_TRUE(read(file_of("{" + entry("a", "F4", "[2,4]", "[0,4]") + "}", four)));
  const auto meta = read(file_of("{\"__metadata__\":{\"k\":\"v\"}}"));
  ASSERT_TRUE(meta);
  EXPECT_EQ(meta->metadata.front(), (std::pair<std::string, std::string>("k", "v")));
}

struct Attack {
  const char* name;
  std::string bytes;
  const char* why;
};

std::vector<Attack> attacks() {
  const std::string four(4, 'x'), eight(8, 'x');
  const auto one = [&](const std::string& type, const std::string& shape, const std::string& offsets) {
    return file_of("{" + entry("a", type, shape, offsets) + "}", four);
  };
  std::string many = "{" + entry("t0", "U8", "[4]", "[0,4]");
  for (int i = 1; i < 500; ++i) many += "," + entry("t" + std::to_string(i), "U8", "[4]", "[0,4]");
  return {
      {"empty", "", "no safetensors file"},
      {"seven bytes", std::string(7, '\0'), "no safetensors file"},
      {"header over 100 MB", with_length(100'000'001, "{}"), "the limit is 100000000"},
      {"header of 2^64 - 1", with_length(UINT64_MAX, "{}"), "the limit is"},
      {"header longer than the file", with_length(3, "{}"), "in a file of"},
      {"not UTF-8", file_of("{\"\xff\":1}"), "UTF-8"},
      {"overlong UTF-8", file_of("{\"\xc0\xaf\":1}"), "UTF-8"},
      {"not JSON", file_of("{a}"), "parse error"},
      {"not an object", file_of("[]"), "must be an object"},
      {"byte-order mark", file_of("\xEF\xBB\xBF{}"), "byte-order mark"},
      {"two documents", file_of("{}{}"), "parse error"},
      {"key twice",
       file_of("{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("a", "U8", "[4]", "[0,4]") + "}", four),
       "comes twice"},
      {"key of an entry twice",
       file_of("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", four),
       "comes twice"},
      {"unknown key",
       file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"x\":1}}", four),
       "unknown key"},
      {"no shape", file_of("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", four), "'shape' must be"},
      {"unknown dtype", one("F31", "[1]", "[0,4]"), "unknown dtype"},
      {"all tensors on one range", file_of(many + "}", four), "without overlap or hole"},
      {"hole at the begin", file_of("{" + entry("a", "U8", "[4]", "[4,8]") + "}", eight),
       "without overlap or hole"},
      {"hole in the middle",
       file_of("{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[2]", "[6,8]") + "}", eight),
       "without overlap or hole"},
      {"overlap",
       file_of("{" + entry("a", "U8", "[5]", "[0,5]") + "," + entry("b", "U8", "[4]", "[4,8]") + "}", eight),
       "without overlap or hole"},
      {"runs backwards", one("U8", "[4]", "[4,0]"), "offsets 4 to 0"},
      {"size differs", one("F32", "[2]", "[0,4]"), "takes 8 bytes"},
      {"half bytes", one("F4", "[3]", "[0,2]"), "no size in bytes"},
      {"six bits", one("F6_E2M3", "[1]", "[0,1]"), "no size in bytes"},
      {"shape overflows", one("U8", "[4294967296,4294967296]", "[0,4]"), "no size in bytes"},
      {"bits overflow", one("F64", "[2305843009213693952]", "[0,4]"), "no size in bytes"},
      {"overflow beside zero", one("U8", "[0,9223372036854775807,9223372036854775807]", "[0,0]"),
       "no size in bytes"},
      {"negative size", one("U8", "[-4]", "[0,4]"), "integers of at least 0"},
      {"size 2^64", one("U8", "[18446744073709551616]", "[0,4]"), "integers of at least 0"},
      {"size 2^63", one("U8", "[9223372036854775808]", "[0,4]"), "integers of at least 0"},
      {"size as a float", one("U8", "[4.0]", "[0,4]"), "integers of at least 0"},
      {"size as 4e0", one("U8", "[4e0]", "[0,4]"), "integers of at least 0"},
      {"size as a text", one("U8", "[\"4\"]", "[0,4]"), "integers of at least 0"},
      {"three offsets", one("U8", "[4]", "[0,4,4]"), "they are two"},
      {"one offset", one("U8", "[4]", "[0]"), "they are two"},
      {"trailing bytes", one("U8", "[4]", "[0,4]") + "PK\x05\x06", "it is longer"},
      {"truncated", file_of("{" + entry("a", "U8", "[8]", "[0,8]") + "}", four), "it is truncated"},
      {"no tensor but bytes", file_of("{}", four), "it is longer"},
      {"metadata not text", file_of("{\"__metadata__\":{\"k\":1}}"), "must be a text"},
      {"metadata a list", file_of("{\"__metadata__\":[]}"), "__metadata__ must be an object"},
      {"nested", file_of("{\"a\":" + std::string(100000, '[') + "}"), "nested deeper"},
  };
}

TEST(Safetensors, RefusesEveryAttack) {
  for (const Attack& attack : attacks()) {
    const auto header = read(attack.bytes);
    EXPECT_FALSE(header) << attack.name;
    if (header) continue;
    EXPECT_NE(header.error().message.find(attack.why), std::string::npos)
        << attack.name << ": " << header.error().message;
    EXPECT_TRUE(header.error().message.starts_with("/t: ")) << header.error().message;
  }
}

TEST(Safetensors, WriterAlignsAndReadsBack) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const std::vector<double> d{1.0, 2.0};
  const std::vector<std::uint8_t> u{1, 2, 3};
  const std::vector<std::uint16_t> h{7};
  const auto written = write_safetensors(files, "/t",
                                         {{"u", ElementType::kU8, {3}, u.data()},
                                          {"h", ElementType::kBF16, {1, 1}, h.data()},
                                          {"d", ElementType::kF64, {2}, d.data()},
                                          {"a", ElementType::kU8, {0, 3}, nullptr}},
                                         {{"producer", "\"quoted\"\n"}});
  ASSERT_TRUE(written) << written.error().message;
  const auto file = files.open("/t");
  const auto header = read_safetensors_header(**file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->data_begin % 8, 0u);
  EXPECT_EQ(header->metadata.front().second, "\"quoted\"\n");
  EXPECT_EQ(header->find("d")->begin, 0u);
  EXPECT_EQ(header->find("h")->begin, 16u);
  EXPECT_EQ(header->find("u")->begin, 18u);
  for (const SafetensorsEntry& entry : header->tensors) EXPECT_EQ(header->find(entry.name), &entry);
  for (const char* absent : {"", "b", "v"}) EXPECT_EQ(header->find(absent), nullptr);
  const std::string& bytes = *disk.content("/t");
  EXPECT_EQ(written->header_digest, hash64(bytes.data(), header->data_begin));
  EXPECT_EQ(written->bytes, bytes.size());
  for (const WrittenTensor& tensor : written->tensors)
    EXPECT_EQ(tensor.digest, hash64(bytes.data() + tensor.begin, tensor.bytes)) << tensor.name;
  EXPECT_EQ(bytes[8], '{');
}

TEST(Safetensors, WriterRefuses) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const std::uint8_t byte = 1;
  const SafetensorsTensor good{"a", ElementType::kU8, {1}, &byte};
  const auto message = [&](std::vector<SafetensorsTensor> tensors,
                           std::vector<std::pair<std::string, std::string>> metadata = {}) {
    const auto written = write_safetensors(files, "/t", std::move(tensors), metadata);
    return written ? std::string() : written.error().message;
  };
  EXPECT_NE(message({good, good}).find("two tensors are called 'a'"), std::string::npos);
  EXPECT_NE(message({{"__metadata__", ElementType::kU8, {1}, &byte}}).find("no tensor may be called"),
            std::string::npos);
  EXPECT_NE(message({{"\xff", ElementType::kU8, {1}, &byte}}).find("not UTF-8"), std::string::npos);
  EXPECT_NE(message({{"a", ElementType::kF4, {1}, &byte}}).find("has no size"), std::string::npos);
  EXPECT_NE(message({good}, {{"k", "\xed\xa0\x80"}}).find("not UTF-8"), std::string::npos);
  EXPECT_EQ(disk.content("/t"), nullptr);
  EXPECT_EQ(message({good}), "");
  EXPECT_NE(message({good}).find("File exists"), std::string::npos);
}

}  // namespace
}  // namespace plumbline::test
