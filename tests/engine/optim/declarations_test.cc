// The header parser of tests/support/declarations.h, on headers made to mislead it and on real ones.
#include "tests/support/declarations.h"

#include <gtest/gtest.h>

namespace plumbline::test {
namespace {

constexpr const char* kHeader = R"header(
// class Commented {};
#pragma once
#define MACRO(x) class Defined { x };
#include <vector>
namespace plumbline {
class Forward;
/* struct Blocked { int field; }; */
enum class Kind : std::uint8_t { kA, kB };
struct Options {
  double clip = 1.0;  // double commented = 2.0;
  std::optional<double> first, second{3.0};
  std::function<bool(const Parameter&)> predicate = {};
  std::vector<std::pair<int, int>> pairs = {{1, 2}, {3, 4}};
  bool operator==(const Options&) const = default;
};
using Alias = std::vector<int>;
constexpr std::array<const char*, 2> kNames{"one; struct Quoted {", "two"};
class Base : public Other {
 public:
  explicit Base(Options options);
  virtual ~Base() = default;
  virtual Result<bool> prepare(int depth = 3, const std::vector<int>& values = {}) = 0;
  static Result<std::unique_ptr<Base>> create(std::map<int, std::string> given,
                                              std::function<void(int, int)> callback = {});
  int size() const { struct Local { int hidden; }; return count_; }
  Result<bool> prepare(std::string other);
  void unnamed(int, const Options&);
  const std::vector<int>& all() const { return all_; }
  struct Inner {
    int deep = 0;
    void call(Alias alias);
  };

 private:
  int count_ = 0;
  std::vector<int> all_;
};
template <typename T>
Status templated(T value);
Status free_function(const std::vector<int>& group, bool set_to_none, std::int32_t* overflow = nullptr);
}  // namespace plumbline
)header";

TEST(Declarations, FindsWhatIsDeclared) {
  for (const char* symbol : {"Kind",
                             "Options",
                             "Options::clip",
                             "Options::first",
                             "Options::second",
                             "Options::predicate",
                             "Options::pairs",
                             "Alias",
                             "kNames",
                             "Base",
                             "Base::Base",
                             "Base::prepare",
                             "Base::create",
                             "Base::size",
                             "Base::all",
                             "Base::Inner",
                             "Base::Inner::deep",
                             "Base::Inner::call",
                             "Base::count_",
                             "templated",
                             "free_function",
                             "Base::Base(options)",
                             "Base::prepare(depth)",
                             "Base::prepare(values)",
                             "Base::prepare(other)",
                             "Base::create(given)",
                             "Base::create(callback)",
                             "Base::Inner::call(alias)",
                             "free_function(group)",
                             "free_function(set_to_none)",
                             "free_function(overflow)",
                             "Base::prepare -> Result<bool>",
                             "Base::create -> Result<std::unique_ptr<Base>>",
                             "Base::size -> int",
                             "Base::all -> const std::vector<int>&",
                             "free_function -> Status"}) {
    EXPECT_TRUE(declares(kHeader, symbol)) << symbol;
  }
}

TEST(Declarations, FindsNothingElse) {
  for (const char* symbol : {"Commented",
                             "Defined",
                             "Forward",
                             "Blocked",
                             "Blocked::field",
                             "Options::commented",
                             "Quoted",
                             "Other",
                             "Local",
                             "Base::Local",
                             "hidden",
                             "prepare",
                             "size",
                             "Base::clip",
                             "clip",
                             "Options::size",
                             "Inner",
                             "Base::deep",
                             "Base::prepare(count)",
                             "Base::prepare(int)",
                             "Base::unnamed(int)",
                             "Base::unnamed(Options)",
                             "Base::unnamed()",
                             "free_function(vector)",
                             "free_function(nullptr)",
                             "free_function -> bool",
                             "Base::size -> ",
                             "Base::create -> Result<Base>",
                             "Parameter",
                             "std",
                             "plumbline",
                             "T",
                             "public",
                             ""}) {
    EXPECT_FALSE(declares(kHeader, symbol)) << symbol;
  }
}

TEST(Declarations, BlanksCommentsAndStringsOnly) {
  EXPECT_EQ(code_only("a // b\nc /* d */ e \"f\" 'g' h"), "a     \nc         e         h");
  EXPECT_EQ(code_only("\"a\\\"b\" c"), "       c");
  EXPECT_EQ(code_only("1'000'000 x"), "1'000'000 x");
  EXPECT_EQ(code_only("  #define x\ny"), "           \ny");
}

}  // namespace
}  // namespace plumbline::test
