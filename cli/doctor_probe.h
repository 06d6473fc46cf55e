// What `doctor` finds on this machine. Libraries of GPUs are opened at run time (dlopen), never linked, so
// that plumbline starts everywhere.
#pragma once

#include <string>
#include <vector>

namespace plumbline::cli {

struct Finding {
  std::string name;  // "cuda driver"
  bool found = false;
  std::string detail;  // version and place, or what is missing for want of it
};

// Version, engine and LibTorch, Graphviz, CUDA driver and run-time library, NCCL, GPUs, cores: always the
// same names, in this order.
std::vector<Finding> probe();

// NAME=value of the variables that change what a run does, sorted by name.
std::vector<std::string> relevant_environment();

}  // namespace plumbline::cli
