// `compare`: several schedules on one time axis, for given costs.
#include <algorithm>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/options_binding.h"
#include "cli/common/output.h"
#include "cli/schedule_input.h"
#include "cli/variants.h"
#include "cli/verdict_output.h"
#include "engine/base/text.h"
#include "engine/program/lower.h"
#include "engine/program/model_shape.h"
#include "engine/runtime/time_model.h"
#include "engine/schedule/generator_args.h"
#include "reports/comparison.h"
#include "sim/shared_devices.h"

namespace plumbline::cli {
namespace {

struct Options {
  bool json = false;
  bool per_chunk = false;
  std::string pair_time;
  std::string svg, html;
  int most_ranks = 16;
};

Result<std::vector<Nanoseconds>> durations(const std::string& text) {
  std::vector<Nanoseconds> out;
  if (text.empty()) return out;
  for (const std::string_view part : split(text, ',')) {
    const Result<Nanoseconds> one = parse_duration(trim(part));
    if (!one) return fail(ErrorCode::kUsage, "--pair-time: " + one.error().message);
    out.push_back(*one);
  }
  return out;
}

// Costs are those of a rank's share of the model, whatever its number of chunks, unless they are listed stage by
// stage.
void share_costs(TimeConfig& time, int chunks) {
  for (std::vector<Nanoseconds>* list : {&time.forward, &time.backward, &time.input_grad, &time.weight_grad})
    if (list->size() == 1) list->front() /= chunks;
}

// By replica and place in its pipeline. Only the first replica's step is shown; the others matter where all ranks share
// cores.
Rank rank_at(const RunConfig& config, int replica, int rank) {
  return config.grid.moved(config.grid.moved(0, Axis::kDp, replica), Axis::kPp, rank);
}

// By rank of a replica's pipeline; the schedule itself is made for ranks that are equally fast.
std::vector<double> slow_ranks(const RunConfig& config, int replica, int ranks) {
  std::vector<double> factors;
  if (config.time.slow.empty()) return factors;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto slow = config.time.slow.find(rank_at(config, replica, rank));
    factors.push_back(slow == config.time.slow.end() ? 1.0 : slow->second);
  }
  return factors;
}

void warn_of_ranks_elsewhere(const RunConfig& config) {
  for (const auto& [rank, factor] : config.time.slow) {
    if (rank_at(config, 0, config.grid.coordinate(rank, Axis::kPp)) == rank) continue;
    warn(fmt::format("--slow rank={}: not in the pipeline of rank 0, which is the one that compare looks at",
                     rank));
  }
}

// On a device a rank, or on the cores that the ranks of a machine share, those of the other replicas among them.
Result<Evaluation> evaluation_of(const RunConfig& config, const ComparedSchedule& of, StageCosts costs,
                                 ActionTimes* times) {
  const Schedule& schedule = of.schedule;
  costs.slow = slow_ranks(config, 0, schedule.ranks);
  if (config.time.cores == 0) {
    warn_of_ranks_elsewhere(config);
    return evaluate(schedule, costs, times);
  }
  const TimeModel model(config);
  std::vector<StageCosts> replicas;
  std::vector<std::vector<std::size_t>> machines;
  for (int replica = 0; replica < config.grid.dp(); ++replica) {
    replicas.push_back(costs);
    replicas.back().slow = slow_ranks(config, replica, schedule.ranks);
    std::vector<std::size_t>& row = machines.emplace_back();
    for (int rank = 0; rank < schedule.ranks; ++rank)
      row.push_back(model.machine(rank_at(config, replica, rank)));
  }
  SharedDevices devices(config.time.cores, config.time.interference, std::move(machines));
  return evaluate_on(devices, schedule, replicas, times);
}

Result<ComparedSchedule> evaluated(RunConfig config, std::optional<Schedule> given, const Options& options) {
  if (!options.per_chunk) share_costs(config.time, config.schedule.chunks);
  if (!given) {
    Result<Schedule> made = schedule_of(config);
    if (!made) return tl::unexpected(made.error());
    given = std::move(*made);
  }
  ComparedSchedule out;
  out.schedule = std::move(*given);
  ModelShape shape = model_shape(config);
  // Rows from a file need not have as many stages on each rank.
  shape.stages.resize(static_cast<std::size_t>(out.schedule.stages), shape.stages.back());
  StageCosts costs = generator_args_of(config, boundary_activation(shape)).costs;
  const Result<std::vector<Nanoseconds>> pair = durations(options.pair_time);
  if (!pair) return tl::unexpected(pair.error());
  costs.pair = *pair;
  if (!options.per_chunk && costs.pair.size() == 1) costs.pair.front() /= config.schedule.chunks;
  costs.recompute = recompute_times(shape, costs.forward);
  ModelSizes sizes = sizes_of(shape);
  if (config.memory.stash > 0) std::fill(sizes.stash.begin(), sizes.stash.end(), config.memory.stash);
  ActivationModel activations;
  activations.held = sizes.stash;
  if (!sizes.rebuilt.empty())
    activations.rebuilt = sizes.rebuilt, activations.rebuilt_split = sizes.rebuilt_split;
  Result<Evaluation> evaluation = evaluation_of(config, out, std::move(costs), &out.times);
  if (!evaluation) return tl::unexpected(evaluation.error());
  out.evaluation = std::move(*evaluation);
  out.peak_bytes = peak_held(out.schedule, activations);
  return out;
}

Result<ComparedSchedule> compared(const std::vector<std::string>& words, const Options& options) {
  const Result<ScheduleInput> input = load_schedule(words);
  if (!input) return tl::unexpected(input.error());
  if (!input->schedule)
    return fail(ErrorCode::kUnsupported,
                input->name + " is a Program; compare takes schedules, 'plumbline diff' Programs");
  const bool rows = input->kind == InputKind::kCsv;
  return evaluated(input->config, rows ? input->schedule : std::nullopt, options);
}

// A schedule that knows only other numbers of chunks than one is tried with two and four, unless the command line
// says.
Result<ComparedSchedule> compared_with_chunks(const std::vector<std::string>& words, const Options& options) {
  Result<ComparedSchedule> first = compared(words, options);
  const bool said = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word.rfind("--vp", 0) == 0 || word.rfind("--num-virtual", 0) == 0 ||
           word.find("schedule.chunks") != std::string::npos;
  });
  if (first || said) return first;
  for (const char* chunks : {"2", "4"}) {
    std::vector<std::string> more = words;
    more.insert(more.end(), {"--vp", chunks});
    Result<ComparedSchedule> again = compared(more, options);
    if (again) return again;
  }
  return first;
}

std::string costs_text(const Options& options, const std::vector<std::string>& shared) {
  const Result<LoadedConfig> loaded = load_arguments(shared);
  if (!loaded) return {};
  const TimeConfig& time = loaded->config.time;
  const auto list = [](const std::vector<Nanoseconds>& values) {
    return values.size() == 1 ? format_duration(values.front())
                              : fmt::format("by stage ({} values)", values.size());
  };
  std::string slow;
  for (const auto& [rank, factor] : time.slow) slow += fmt::format(", rank {} times {}", rank, factor);
  std::string cores;
  if (time.cores > 0) cores = fmt::format(", {} core{} a machine", time.cores, time.cores == 1 ? "" : "s");
  return fmt::format("costs of a {}: F {}, B {}, I {}, W {}{}{}{}",
                     options.per_chunk ? "chunk" : "rank's share", list(time.forward), list(time.backward),
                     list(time.input_grad), list(time.weight_grad),
                     options.pair_time.empty() ? "" : ", a pair " + options.pair_time, slow, cores);
}

Status save(const std::string& path, const Result<std::string>& content) {
  if (!content) return tl::unexpected(content.error());
  PL_TRY(write_file(path, *content));
  hint("wrote " + path);
  return {};
}

int run(const Options& options, const ConfigArguments& arguments) {
  const Result<Variants> variants = split_variants(arguments.arguments());
  if (!variants) return report(variants.error());
  if (variants->subjects.empty()) {
    return report(Error{
        ErrorCode::kUsage,
        "nothing to compare; write plumbline compare A B ..., each a generator's name, a file or flags in "
        "quotes",
        {}});
  }
  std::vector<ComparedSchedule> all;
  for (std::size_t i = 0; i < variants->subjects.size(); ++i) {
    Result<ComparedSchedule> one =
        compared_with_chunks(variants->with_shared(variants->subjects[i]), options);
    if (!one) {
      Error error = one.error();
      error.message = variants->names[i] + ": " + error.message;
      return report(error);
    }
    one->name = variants->names[i];
    all.push_back(std::move(*one));
  }
  ComparisonOptions shown;
  shown.width = output_width();
  shown.colour = stdout_colour();
  shown.most_ranks = options.most_ranks;
  shown.costs = costs_text(options, variants->shared);
  ComparisonOptions drawn = shown;
  drawn.width = 1200;
  if (!options.svg.empty()) {
    if (const Status saved = save(options.svg, comparison_svg(all, drawn)); !saved)
      return report(saved.error());
  }
  if (!options.html.empty()) {
    if (const Status saved = save(options.html, comparison_html(all, drawn)); !saved)
      return report(saved.error());
  }
  if (options.json) {
    print_line(comparison_json(all));
  } else {
    print(comparison_text(all, shown));
  }
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--json", options->json, "one JSON document");
  app.add_flag("--per-chunk", options->per_chunk,
               "costs are those of a chunk; without this of a rank's share, which its chunks divide");
  app.add_option("--pair-time", options->pair_time,
                 "a forward overlapped with a backward, one time or one a stage; without this their sum");
  app.add_option("--svg", options->svg, "file for the picture");
  app.add_option("-o,--out", options->html, "file for a page with table and picture");
  app.add_option("--most-ranks", options->most_ranks, "ranks drawn in text");
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return run(*options, *arguments); };
}

const RegisterCommand kCommand(
    {.name = "compare",
     .summary = "several schedules on one time axis: times, bubbles, memory",
     .usage = "A B ... [flags of all]",
     .examples = {{"plumbline compare 1f1b zb-h1 zb-v --pp 4 -m 8", "three generators"},
                  {"plumbline compare 1f1b mine.csv --pp 4 -m 8 -o cmp.html", "a page to look at"},
                  {"plumbline compare 1f1b '--generator zb-auto --activation-cap 6' --pp 4 -m 8",
                   "flags in quotes"},
                  {"plumbline compare 1f1b zb-h1 --pp 4 -m 8 --slow rank=2:1.3", "what one slow rank costs"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
