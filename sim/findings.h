// FindingLog: collects the findings of one simulated step. Of one kind it keeps the first few; how many more
// there were is said in the last one kept, so that a program that is wrong everywhere stays readable.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/program/program.h"
#include "sim/verdict.h"

namespace plumbline::sim {

constexpr std::uint32_t kNoItem = 0xFFFFFFFFu;

class FindingLog {
 public:
  static constexpr int kMostOfAKind = 32;

  void begin(const Program& program);
  OperationRef operation(std::uint32_t thread, std::uint32_t item) const;
  // True while another finding of this kind would be kept: building the words is worth it.
  bool wants(FindingKind kind);
  void add(FindingKind kind, std::vector<OperationRef> operations, std::string why);
  void add(Finding finding);
  std::vector<Finding> take();

 private:
  const Program* program_ = nullptr;
  std::vector<Finding> findings_;
  std::array<int, 32> count_{};
};

// "activation.1 of microbatch 5"
std::string slot_text(const Program& program, std::uint16_t slot_class, int microbatch);

}  // namespace plumbline::sim
