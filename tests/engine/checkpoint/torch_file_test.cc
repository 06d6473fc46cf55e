// Files of Python's torch.save are read as what they mean; ours are read by Python, weights_only=True where
// it can; what is not understood comes back out as it came in.
#include "engine/checkpoint/torch_file.h"

#include <fstream>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/storage/simulated_disk.h"
#include "tests/engine/checkpoint/any_state.h"
#include "tests/engine/checkpoint/python.h"
#include "tests/support/property.h"

namespace plumbline::test {
namespace {

StateValue read(const std::string& path, bool keep = false) {
  Result<StateValue> value = read_torch_file(posix_files(), path, {.keep_python = keep});
  EXPECT_TRUE(value) << (value ? "" : value.error().message);
  return value ? std::move(*value) : StateValue();
}

const StateDict& dict(const StateValue& value) {
  static const StateDict kEmpty;
  const auto* found = value.get<StateDict>();
  EXPECT_NE(found, nullptr) << describe(value);
  return found == nullptr ? kEmpty : *found;
}

void expect_same(const StateValue& got, const StateValue& wanted, const std::string& what) {
  EXPECT_EQ(first_difference(got, wanted), "") << what;
}

at::Tensor counted(at::IntArrayRef shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return at::arange(count, at::kFloat).reshape(shape);
}

void expect_contents(const TempFolder& folder, const std::string& form) {
  const auto file = [&](const char* name) { return read(folder / (name + form)); };
  expect_same(file("tensor"), at::arange(6, at::kLong), form);
  expect_same(file("one"), StateDict{{"a", 1}}, form);
  expect_same(file("ordered"), StateDict{{"z", 1}, {"a", 2}}, form);
  expect_same(file("dict"),
              StateDict{{"a", at::ones({2})},
                        {"b", StateList{1, 2.5, {}, true, "text"}},
                        {"c", StateDict{{"d", std::vector<std::uint8_t>{0, 255}}}}},
              form);
  const StateValue types = file("types");
  for (const auto& [name, tensor] : dict(types))
    EXPECT_TRUE(at::equal(tensor.get<at::Tensor>()->to(at::kLong), at::tensor({1, 0, 1}, at::kLong))) << name;
  EXPECT_EQ(dict(types).size(), 10u);
  const at::Tensor base = counted({4, 6});
  const StateValue views = file("views");
  expect_same(views,
              StateDict{{"row", base[1]}, {"column", base.select(1, 2)}, {"all", base}, {"t", base.t()}},
              form);
  dict(views).at("all").get<at::Tensor>()->fill_(5.0);  // they share their memory
  EXPECT_EQ(dict(views).at("column").get<at::Tensor>()->sum().item<float>(), 20.0f);
  expect_same(
      file("shapes"),
      StateDict{
          {"zero", at::zeros({0, 3})}, {"scalar", at::tensor(2.5f).reshape({})}, {"size", StateList{4, 6}}},
      form);
  expect_same(file("ints"),
              StateList{0, -1, 255, 256, 65535, 65536, 2147483647, std::int64_t{INT32_MIN},
                        std::int64_t{1} << 31, std::int64_t{1} << 40, -(std::int64_t{1} << 40), INT64_MAX,
                        INT64_MIN, StateDict{{"__python__", "int"}, {"hex", "0x400000000000000000"}},
                        StateDict{{"__python__", "int"}, {"hex", "-0x400000000000000000"}}},
              form);
  expect_same(file("namespace"),
              StateDict{{"args", StateDict{{"hidden_size", 8}, {"lr", 0.1}, {"name", "x"}}},
                        {"simple", StateDict{{"k", 1}}}},
              form);
  expect_same(file("parameter"), at::ones({3}), form);
  const StateValue model = file("model");
  EXPECT_EQ(dict(model).size(), 4u);
  EXPECT_TRUE(dict(model).contains("0.weight"));
  const StateValue optimizer = file("optimizer");
  const StateDict& state = dict(dict(optimizer).at("state"));
  EXPECT_EQ(state.size(), 4u);
  EXPECT_TRUE(dict(state.at("3")).contains("exp_avg_sq"));
  const StateValue rng = file("rng");
  std::ifstream facts(folder / "facts");
  std::int64_t first = 0;
  double sum = 0;
  facts >> first >> sum;
  EXPECT_EQ(dict(rng).at("torch").get<at::Tensor>()->to(at::kDouble).sum().item<double>(), sum);
  EXPECT_EQ(*dict(rng).at("random").get<StateList>()->at(1).get<StateList>()->at(0).get<std::int64_t>(),
            first);
  const StateValue opaque = file("opaque");
  expect_same(dict(opaque).at("dtype"), StateDict{{"__python__", "torch.float32"}}, form);
  expect_same(dict(opaque).at("default"), StateDict{{"k", 5}}, form);
}

TEST(TorchFile, ReadsWhatPythonWrites) {
  PL_NEEDS_TORCH_PYTHON();
  const TempFolder folder;
  run_python("torch_files.py write " + folder.path());
  for (const char* form : {".pt", ".legacy.pt", ".3.pt", ".4.pt", ".5.pt"}) expect_contents(folder, form);
  const auto cycle = read_torch_file(posix_files(), folder / "cycle.pt");
  ASSERT_FALSE(cycle);
  EXPECT_NE(cycle.error().message.find("self: an object that contains itself"), std::string::npos);
  if (std::filesystem::exists(folder / "numpy.pt")) {
    const StateValue numpy = read(folder / "numpy.pt");
    expect_same(dict(numpy).at("scalar"), 1.5, "numpy");
    expect_same(dict(numpy).at("int"), -3, "numpy");
    expect_same(dict(numpy).at("array"), counted({2, 3}), "numpy");
    expect_same(dict(numpy).at("fortran"), counted({2, 3}).to(at::kInt), "numpy");
    const StateList& state = *dict(numpy).at("rng").get<StateList>();
    EXPECT_EQ(*state[0].get<std::string>(), "MT19937");
    EXPECT_EQ(state[1].get<at::Tensor>()->numel(), 624);
    EXPECT_EQ((*state[1].get<at::Tensor>())[0].item<std::int64_t>(), 7);  // seeded with 7
  }
}

TEST(TorchFile, PythonReadsOurs) {
  PL_NEEDS_TORCH_PYTHON();
  const TempFolder folder;
  const at::Tensor all = counted({2, 3});
  const StateDict plain{
      {"none", {}},
      {"yes", true},
      {"text", "\xc3\xa9"},
      {"ints", StateList{0, -1, 300, 70000, std::int64_t{1} << 31, -(std::int64_t{1} << 40), INT64_MAX}},
      {"f32", at::tensor({1.5f, -2.0f})},
      {"bf16", at::ones({2}).to(at::kBFloat16)},
      {"state", StateDict{{"0", StateDict{{"step", 3}}}, {"1", StateDict{{"step", 4}}}}},
      {"row", all[1]},
      {"all", all},
      {"empty", at::zeros({0, 2})},
      {"scalar", at::tensor(7.0f).reshape({})}};
  ASSERT_TRUE(write_torch_file(posix_files(), folder / "plain.pt", plain));
  const StateDict floats{
      {"lr", 0.1}, {"nan", std::nan("")}, {"bytes", std::vector<std::uint8_t>{0, 255, 128}}};
  ASSERT_TRUE(write_torch_file(posix_files(), folder / "floats.pt", floats));
  // What Python wrote, through us and back.
  run_python("torch_files.py write " + folder.path());
  const auto copy = [&](const char* from, const char* to) {
    ASSERT_TRUE(write_torch_file(posix_files(), folder / to, read(folder / from, true))) << from;
  };
  copy("namespace.pt", "again.pt");
  copy("rng.pt", "random.pt");
  for (const char* name : {"opaque", "ints"}) {
    const StateValue value = read(folder / (std::string(name) + ".pt"), true);
    std::filesystem::remove(folder / (std::string(name) + ".pt"));
    ASSERT_TRUE(write_torch_file(posix_files(), folder / (std::string(name) + ".pt"), value));
  }
  EXPECT_NE(run_python("torch_files.py check " + folder.path()).find("read"), std::string::npos);
}

TEST(TorchFileProperty, RoundTripAndSameBytes) {
  check_cases(1000, [] {
    const StateValue value = any_state(3, true);
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    RC_ASSERT(write_torch_file(files, "/a", value).has_value());
    const auto again = read_torch_file(files, "/a");
    if (!again) RC_FAIL(again.error().message);
    RC_ASSERT(first_difference(*again, value) == "");
    RC_ASSERT(write_torch_file(files, "/b", *again).has_value());
    RC_ASSERT(*disk.content("/a") == *disk.content("/b"));
  });
}

TEST(TorchFile, EveryDamagedByteIsRefusedOrHarmless) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const StateDict value{{"w", counted({3, 5})}, {"step", 7}};
  ASSERT_TRUE(write_torch_file(files, "/a", value));
  std::string* bytes = disk.content("/a");
  const std::string good = *bytes;
  int refused = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    (*bytes)[i] = static_cast<char>((*bytes)[i] ^ 0x41);
    const auto got = read_torch_file(files, "/a");
    refused += got ? 0 : 1;
    if (got) EXPECT_EQ(first_difference(*got, StateValue(value)), "") << i;  // padding, dates, versions
    (*bytes)[i] = good[i];
  }
  EXPECT_GT(refused, 300);
}

TEST(TorchFile, StoragesThatDoNotFit) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  // A tensor of 3 elements whose storage says 2: the pickle is edited in place, checksums left out (0).
  const auto bytes = torch_file_bytes(at::ones({3}));
  ASSERT_TRUE(bytes);
  std::string edited = *bytes;
  const std::size_t size = edited.find(std::string("K\x03\x85", 3));  // size (3,)
  ASSERT_NE(size, std::string::npos);
  edited[size + 1] = 5;
  for (const char* mark : {"PK\x03\x04", "PK\x01\x02"}) {
    const std::size_t at = edited.find(std::string(mark, 4));
    edited.replace(at + (mark[2] == 3 ? 14 : 16), 4, std::string(4, '\0'));
  }
  ASSERT_TRUE(write_new_file(files, "/a", edited));
  const auto got = read_torch_file(files, "/a");
  ASSERT_FALSE(got);
  EXPECT_NE(got.error().message.find("reaches beyond its storage of 3 elements"), std::string::npos)
      << got.error().message;
}

}  // namespace
}  // namespace plumbline::test
