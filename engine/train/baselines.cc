#include "engine/train/baselines.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace plumbline {
namespace {

constexpr std::size_t kBytes = 256;

std::size_t index(char c) { return static_cast<unsigned char>(c); }

}  // namespace

Baselines text_baselines(std::string_view training, std::string_view held_out, double alpha) {
  Baselines out;
  std::array<double, kBytes> seen{};
  for (const char c : held_out) seen[index(c)] += 1.0;
  const double total = static_cast<double>(held_out.size());
  for (const double count : seen) {
    if (count > 0.0) out.unigram -= count / total * std::log(count / total);
  }
  std::vector<double> pairs(kBytes * kBytes, 0.0);
  std::array<double, kBytes> firsts{};
  for (std::size_t i = 1; i < training.size(); ++i) {
    pairs[index(training[i - 1]) * kBytes + index(training[i])] += 1.0;
    firsts[index(training[i - 1])] += 1.0;
  }
  double loss = 0.0;
  for (std::size_t i = 1; i < held_out.size(); ++i) {
    const std::size_t a = index(held_out[i - 1]);
    const double p =
        (pairs[a * kBytes + index(held_out[i])] + alpha) / (firsts[a] + alpha * static_cast<double>(kBytes));
    loss -= std::log(p);
  }
  if (held_out.size() > 1) out.bigram = loss / static_cast<double>(held_out.size() - 1);
  return out;
}

}  // namespace plumbline
