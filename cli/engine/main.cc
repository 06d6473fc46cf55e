#include <string_view>

#include "cli/common/program.h"
#include "engine/train/libtorch.h"

int main(int argc, char** argv) {
  plumbline::set_up_libtorch();
  // Started by `plumbline`, which hands on the commands that need LibTorch, it goes by that name (exec_engine.h).
  const bool handed_on = argc > 0 && std::string_view(argv[0]) == "plumbline";
  const plumbline::cli::Program program{
      handed_on ? "plumbline" : "plumbline-engine",
      "Trains pipeline-parallel models: in the simulator, with real tensors."};
  return plumbline::cli::run_program(program, argc, argv);
}
