// What `version` and `doctor` tell about an executable. Other files add to it with a static
// RegisterVersionFact: plumbline-engine does so for LibTorch, CUDA and NCCL.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plumbline::cli {

class RegisterVersionFact {
 public:
  RegisterVersionFact(std::string name, std::string value);
};

// Version, revision, compiler and build type first, then what was registered, sorted by name.
std::vector<std::pair<std::string, std::string>> version_facts();

}  // namespace plumbline::cli
