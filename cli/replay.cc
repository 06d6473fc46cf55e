// `replay` trains, so that it lives in plumbline-engine.
#include "cli/common/command.h"
#include "cli/exec_engine.h"

namespace plumbline::cli {
namespace {

const RegisterCommand kCommand({.name = "replay",
                                .summary = "execute a record's run again and compare (plumbline-engine)",
                                .usage = "RUN [--backend gloo --nproc N]",
                                .examples = {{"plumbline replay run.plmb --backend gloo --nproc 4", ""}},
                                .delegate = exec_engine});

}  // namespace
}  // namespace plumbline::cli
