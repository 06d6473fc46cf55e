// `checkpoint` reads tensors of every kind, so that it lives in plumbline-engine.
#include "cli/common/command.h"
#include "cli/exec_engine.h"

namespace plumbline::cli {
namespace {

const RegisterCommand kCommand(
    {.name = "checkpoint",
     .summary = "inspect, verify, compare and convert checkpoints (plumbline-engine)",
     .usage = "inspect|verify|diff|convert|reshard PATH [PATH] [flags]",
     .examples = {{"plumbline checkpoint verify ckpt", "the checkpoint that the tracker names"}},
     .delegate = exec_engine});

}  // namespace
}  // namespace plumbline::cli
