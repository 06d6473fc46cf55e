#include "cli/common/program.h"
#include "engine/train/libtorch.h"

int main(int argc, char** argv) {
  plumbline::set_up_libtorch();
  const plumbline::cli::Program program{
      "plumbline-engine", "Trains pipeline-parallel models: in the simulator, with real tensors."};
  return plumbline::cli::run_program(program, argc, argv);
}
