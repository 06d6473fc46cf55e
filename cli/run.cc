// `run` trains, so that it lives in plumbline-engine.
#include "cli/common/command.h"
#include "cli/exec_engine.h"

namespace plumbline::cli {
namespace {

const RegisterCommand kCommand({.name = "run",
                                .summary = "train on text, simulated or a process a rank (plumbline-engine)",
                                .usage = "[CONFIG] [flags]",
                                .examples = {{"plumbline run cfg.toml --pp 4", ""}},
                                .delegate = exec_engine});

}  // namespace
}  // namespace plumbline::cli
