#include "engine/storage/control_channel.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/text.h"

namespace plumbline {
namespace {

class LoneChannel : public ControlChannel {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Result<std::vector<std::string>> exchange(const std::string& message) override {
    return std::vector<std::string>{message};
  }
};

}  // namespace

ControlChannel& lone_channel() {
  static LoneChannel channel;
  return channel;
}

Status agree(ControlChannel& channel, const Status& own) {
  const Result<std::vector<std::string>> all = channel.exchange(
      own ? "" : fmt::format("{} {}", static_cast<int>(own.error().code), own.error().message));
  if (!all) return tl::unexpected(all.error());
  const auto first =
      std::find_if(all->begin(), all->end(), [](const std::string& said) { return !said.empty(); });
  if (first == all->end()) return {};
  const auto words = [](const std::string& said) {
    return said.substr(std::min(said.find(' '), said.size() - 1) + 1);
  };
  const Result<std::int64_t> number = parse_integer(first->substr(0, first->find(' ')));
  const ErrorCode code = number ? static_cast<ErrorCode>(*number) : ErrorCode::kState;
  if (std::count(all->begin(), all->end(), *first) == static_cast<std::ptrdiff_t>(all->size()))
    return fail(code, words(*first));
  std::string text;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if (!(*all)[rank].empty())
      text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, words((*all)[rank]));
  }
  return fail(code, text);
}

}  // namespace plumbline
