#include "cli/common/program.h"

int main(int argc, char** argv) {
  const plumbline::cli::Program program{
      "plumbline", "Checks and simulates pipeline-parallel training before it runs on GPUs."};
  return plumbline::cli::run_program(program, argc, argv);
}
