// What a model has to beat: losses on the held-out text of models without any context, or with one byte of
// it.
#pragma once

#include <string_view>

namespace plumbline {

struct Baselines {
  double unigram =
      0.0;  // entropy of the held-out bytes themselves, nats a byte: no model without context can do better
  double bigram = 0.0;  // cross entropy of a bigram model fitted on the training part, nats a byte
};

// The bigram model is P(b | a) = (count(a b) + alpha) / (count(a) + 256 alpha).
Baselines text_baselines(std::string_view training, std::string_view held_out, double alpha = 0.1);

constexpr double kBitsPerNat = 1.4426950408889634;

}  // namespace plumbline
