// PayloadLedger: compares what was received with what was sent, by digest and independently of what the two
// ends call it when they meet. Each send notes the digest of its bytes under its own label; each receive the
// digest of what it got under the label its reader expects. At the end of the step the two must agree for
// every label.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "engine/program/program.h"
#include "sim/findings.h"

namespace plumbline::sim {

class PayloadLedger {
 public:
  // A tensor of one pipeline replica: (data-parallel coordinate, slot class, microbatch).
  using Label = std::tuple<int, std::uint16_t, int>;

  void clear();
  void sent(const Label& label, std::uint64_t digest) { sent_[label] = digest; }
  void received(const Label& label, std::uint64_t digest, std::uint32_t thread, std::uint32_t item) {
    received_.push_back({label, digest, thread, item});
  }
  // Adds a finding for each receive whose bytes are not those sent under its label.
  void report(const Program& program, FindingLog& log) const;

 private:
  struct Receipt {
    Label label;
    std::uint64_t digest;
    std::uint32_t thread;
    std::uint32_t item;
  };
  std::map<Label, std::uint64_t> sent_;
  std::vector<Receipt> received_;
};

}  // namespace plumbline::sim
