// `replay`: executes a record's run again - configuration, seed, Program, text - on this or another backend, and
// compares what came out.
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/common/record_config.h"
#include "cli/engine/run_session.h"
#include "engine/base/shell_line.h"
#include "engine/base/text.h"
#include "engine/runtime/record_diff.h"
#include "reports/record_diff_text.h"

namespace plumbline::cli {
namespace {

struct Options {
  std::string record;
  RunOptions run;
  std::string tolerance = "bitwise";
};

Result<RunRecord> load(const std::string& path) {
  const Result<std::string> bytes = read_file(path);
  if (!bytes) return tl::unexpected(bytes.error());
  return parse_record(*bytes, path);
}

int replay(const Options& options) {
  const Result<RunRecord> before = load(options.record);
  if (!before) return report(before.error());
  const Result<ValidConfig> valid = config_of_record(*before, options.record, Purpose::kRun);
  if (!valid) return report(valid.error());
  const Result<Tolerance> tolerance = tolerance_from(options.tolerance, valid->config, *before);
  if (!tolerance) return report(tolerance.error());
  std::error_code error;
  if (std::filesystem::equivalent(options.record, options.run.out, error))
    return report({ErrorCode::kUsage, "the replay would overwrite its record: give another -o", {}});
  std::vector<std::string> words{"plumbline", "replay", options.record, "--backend", options.run.backend};
  if (options.run.nproc > 0) words.insert(words.end(), {"--nproc", std::to_string(options.run.nproc)});
  const std::string line = shell_line(words);
  const int code = run_on_backend(*valid, line, options.run);
  if (code != kExitHolds) return code;
  // Of ranks that a launcher started, only the first one's process puts the record together.
  if (options.run.backend != "sim" && options.run.nproc == 0 &&
      !std::filesystem::exists(options.run.out, error))
    return code;
  const Result<RunRecord> after = load(options.run.out);
  if (!after) return report(after.error());
  const RecordDiff diff = diff_records(*before, *after, *tolerance);
  print_line(record_diff_text(diff, options.record, options.run.out));
  return diff.numbers_hold() && diff.same_order() && diff.header.empty() ? kExitHolds : kExitMismatch;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->run.out = "replay.plmb";
  app.add_option("record", options->record, "the record of the run")->required();
  app.add_option("-o,--out", options->run.out, "the new record's file; replay.plmb if not given");
  app.add_option(
      "--tolerance", options->tolerance,
      "of losses and gradient norms: bitwise, derived (from the number of summands and the precision) or a "
      "relative difference");
  app.add_flag("-q,--quiet", options->run.quiet, "no table");
  add_backend_options(app, options->run);
  return [=]() -> int { return replay(*options); };
}

const RegisterCommand kCommand(
    {.name = "replay",
     .summary = "execute a record's run again, on this or another backend, and compare",
     .usage = "RUN [--backend gloo --nproc N] [-o replay.plmb]",
     .examples = {{"plumbline replay run.plmb --backend gloo --nproc 4", ""}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
