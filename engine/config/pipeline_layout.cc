#include "engine/config/pipeline_layout.h"

#include <charconv>

#include <fmt/format.h>

namespace plumbline {
namespace {

constexpr std::size_t kMostLetters = 1'000'000;

class Expander {
 public:
  explicit Expander(std::string_view text) : text_(text) {}

  // All counts written out.
  Result<std::string> expand() {
    while (at_ < text_.size()) PL_TRY(part());
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> refuse(std::size_t at, std::string message) const {
    return fail(ErrorCode::kParse, fmt::format("layout '{}', column {}: {}", text_, at + 1, message));
  }

  Status part() {
    const std::size_t begin = at_;
    if (text_[at_] == ',' || text_[at_] == ' ') {
      ++at_;
      return {};
    }
    if (text_[at_] != '(') {
      const Result<char> one = letter();
      if (!one) return tl::unexpected(one.error());
      return repeat(std::string(1, *one), begin, 1);
    }
    ++at_;
    std::string inside;
    while (at_ < text_.size() && text_[at_] != ')') PL_TRY(inner(inside));
    if (at_ == text_.size()) return refuse(begin, "this parenthesis is not closed");
    ++at_;
    if (at_ == text_.size() || text_[at_] != '*')
      return refuse(begin, "a part in parentheses needs a count, (...)*N");
    return repeat(inside, begin, 0);
  }

  // One letter or x*N inside parentheses.
  Status inner(std::string& inside) {
    if (text_[at_] == ',' || text_[at_] == ' ') {
      ++at_;
      return {};
    }
    if (text_[at_] == '(') return refuse(at_, "parentheses do not nest");
    const std::size_t begin = at_;
    const Result<char> one = letter();
    if (!one) return tl::unexpected(one.error());
    std::swap(inside, out_);
    const Status done = repeat(std::string(1, *one), begin, 1);
    std::swap(inside, out_);
    return done;
  }

  Result<char> letter() {
    const char c = text_[at_];
    if (std::string_view("EtmL|").find(c) == std::string_view::npos)
      return refuse(at_, fmt::format("'{}' stands for nothing; letters are E, t, m, L and |", c));
    ++at_;
    return c;
  }

  // Appends `what` as often as a count behind it says, or `without` times if there is none.
  Status repeat(const std::string& what, std::size_t begin, std::size_t without) {
    std::size_t count = without;
    if (at_ < text_.size() && text_[at_] == '*') {
      ++at_;
      const char* end = text_.data() + text_.size();
      const auto [next, error] = std::from_chars(text_.data() + at_, end, count);
      if (error != std::errc{}) return refuse(at_, "a '*' is followed by a count");
      at_ = static_cast<std::size_t>(next - text_.data());
      if (at_ < text_.size() && text_[at_] == '*') return refuse(at_, "a count cannot be repeated");
    }
    if (count > kMostLetters || what.size() * count > kMostLetters - out_.size())
      return refuse(begin, fmt::format("more than {} layers and bars", kMostLetters));
    for (std::size_t i = 0; i < count; ++i) out_ += what;
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
};

Status check_places(std::string_view text, const std::vector<StageLayers>& stages, int ranks, int embeddings,
                    int losses) {
  const auto refuse = [&](std::string message) {
    return fail(ErrorCode::kConfig, fmt::format("layout '{}': {}", text, message));
  };
  const int count = static_cast<int>(stages.size());
  if (ranks < 1 || count % ranks != 0)
    return refuse(fmt::format(
        "{} stages on {} ranks; the number of stages must be a multiple of that of ranks", count, ranks));
  if (embeddings != 1 || !stages.front().embedding)
    return refuse("one embedding 'E' stands in the first stage, and nowhere else");
  if (losses != 1 || !stages.back().loss)
    return refuse("one loss 'L' stands in the last stage, and nowhere else");
  return {};
}

}  // namespace

Result<std::vector<StageLayers>> parse_pipeline_layout(std::string_view text, int ranks) {
  const Result<std::string> letters = Expander(text).expand();
  if (!letters) return tl::unexpected(letters.error());
  std::vector<StageLayers> stages(1);
  int embeddings = 0;
  int losses = 0;
  for (const char c : *letters) {
    if (c == '|') stages.emplace_back();
    if (c == 't') ++stages.back().layers;
    if (c == 'm') ++stages.back().mtp;
    if (c == 'E') stages.back().embedding = true, ++embeddings;
    if (c == 'L') stages.back().loss = true, ++losses;
  }
  PL_TRY(check_places(text, stages, ranks, embeddings, losses));
  return stages;
}

int layers_of(const std::vector<StageLayers>& stages) {
  int layers = 0;
  for (const StageLayers& stage : stages) layers += stage.layers;
  return layers;
}

}  // namespace plumbline
