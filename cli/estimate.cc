// `estimate`: memory of a training step by rank and class, from a configuration or Megatron's launch flags.
#include "engine/program/estimate.h"

#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/options_binding.h"
#include "cli/common/output.h"
#include "cli/input.h"
#include "engine/base/json_writer.h"
#include "engine/base/units.h"
#include "engine/config/flags.h"
#include "engine/config/megatron_args.h"

namespace plumbline::cli {
namespace {

struct Options {
  bool json = false;
  std::string memory_limit;
};

struct Subject {
  RunConfig config;  // valid
  ModelShape shape;
};

Result<Subject> from_megatron(const LaunchScript& script, const std::string& name,
                              const Assignments& what_if) {
  Result<MegatronImport> import = import_megatron(script, name);
  if (!import) return tl::unexpected(import.error());
  LoadedConfig loaded;
  loaded.config = std::move(import->config);
  PL_TRY(apply_assignments(what_if, loaded));
  import->config = std::move(loaded.config);
  Validation valid = validate_all(import->config, {}, Purpose::kCheck);
  for (const std::string& text : valid.warnings) warn(text);
  if (!valid.ok()) return tl::unexpected(valid.errors.front());
  const Result<ModelShape> shape = model_shape(script, *import, name);
  if (!shape) return tl::unexpected(shape.error());
  return Subject{std::move(valid.config), *shape};
}

bool is_toml(const std::string& name) {
  return name.size() > 5 && name.compare(name.size() - 5, 5, ".toml") == 0;
}

// Flags behind "--" are Megatron's; a file is a launch script unless it ends in .toml.
Result<Subject> subject_of(std::vector<std::string> words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes != words.end()) {
    const Result<LaunchScript> script = read_launch_words(std::vector<std::string>(dashes + 1, words.end()));
    if (!script) return tl::unexpected(script.error());
    return from_megatron(*script, "", {});
  }
  const Result<ParsedFlags> flags = parse_flags(words);
  if (!flags) return tl::unexpected(flags.error());
  if (flags->words.size() == 1 && !is_toml(flags->words.front())) {
    // What is recomputed may be tried beside the script.
    for (const Assignment& assignment : flags->assignments) {
      if (assignment.option->section == "memory") continue;
      return fail(
          ErrorCode::kUsage,
          fmt::format("'{}' is read as a launch script, and {} beside it belongs into it; a configuration "
                      "ends in .toml",
                      flags->words.front(), assignment.origin.text));
    }
    const Result<std::string> text = read_input(flags->words.front());
    if (!text) return tl::unexpected(text.error());
    const Result<LaunchScript> script = read_launch_script(*text, flags->words.front());
    if (!script) return tl::unexpected(script.error());
    return from_megatron(*script, flags->words.front(), flags->assignments);
  }
  Result<ValidConfig> valid = load_arguments(words, Purpose::kCheck);
  if (!valid) return tl::unexpected(valid.error());
  const ModelShape shape = model_shape(valid->config);
  return Subject{std::move(valid->config), shape};
}

std::string percent(Bytes part, Bytes of) {
  return of > 0 ? fmt::format("{:.0f} %", 100.0 * static_cast<double>(part) / static_cast<double>(of)) : "";
}

void print_text(const MemoryEstimate& estimate, const Subject& subject, Bytes limit) {
  print_line(fmt::format("{}: {:.3g} billion parameters, {} ranks, {} microbatches, tp {}, dp {}",
                         estimate.schedule, static_cast<double>(estimate.parameters) / 1e9,
                         estimate.ranks.size(), subject.config.schedule.microbatches, subject.shape.tp,
                         subject.config.grid.dp()));
  Table table{{"rank"}, {}};
  for (int kind = 0; kind < kMemoryClasses; ++kind)
    table.header.emplace_back(memory_class_name(static_cast<MemoryClass>(kind)));
  table.header.insert(table.header.end(), {"total", ""});
  for (std::size_t rank = 0; rank < estimate.ranks.size(); ++rank) {
    const RankBytes& bytes = estimate.ranks[rank];
    std::vector<std::string> row{std::to_string(rank)};
    for (const Bytes part : bytes.at_peak) row.push_back(format_bytes(part));
    row.push_back(format_bytes(bytes.peak));
    row.push_back(limit > 0 && bytes.peak > limit ? "over the limit" : "");
    table.rows.push_back(std::move(row));
  }
  print(layout(table, std::max(output_width(), 80)));
  const std::size_t largest = static_cast<std::size_t>(estimate.largest);
  print_line(fmt::format("peak: rank {}, {} at {}", estimate.largest,
                         format_bytes(estimate.ranks[largest].peak), estimate.ranks[largest].peak_text));
  if (estimate.ranks[largest].rebuilt > 0)
    print_line(fmt::format("of its activations {} are recomputed ones",
                           format_bytes(estimate.ranks[largest].rebuilt)));
  if (limit > 0) {
    print_line(fmt::format("limit: {}, {} of it used", format_bytes(limit),
                           percent(estimate.ranks[largest].peak, limit)));
  }
}

void print_json(const MemoryEstimate& estimate, Bytes limit) {
  JsonWriter json;
  json.begin_object().field("plumbline", 1).field("schedule", estimate.schedule);
  json.field("parameters", estimate.parameters).field("largest_rank", estimate.largest).field("limit", limit);
  json.key("ranks").begin_array();
  for (std::size_t rank = 0; rank < estimate.ranks.size(); ++rank) {
    const RankBytes& bytes = estimate.ranks[rank];
    json.begin_object();
    for (int kind = 0; kind < kMemoryClasses; ++kind)
      json.field(memory_class_name(static_cast<MemoryClass>(kind)),
                 bytes.at_peak[static_cast<std::size_t>(kind)]);
    json.field("recomputed", bytes.rebuilt).field("peak", bytes.peak).field("at", bytes.peak_text);
    json.end_object();
  }
  print_line(json.end_array().end_object().text());
}

int run(const Options& options, const std::vector<std::string>& words) {
  const Result<Subject> subject = subject_of(words);
  if (!subject) return report(subject.error());
  Bytes limit = subject->config.memory.limit;
  if (!options.memory_limit.empty()) {
    const Result<Bytes> given = parse_bytes(options.memory_limit);
    if (!given) return report(Error{ErrorCode::kUsage, "--memory-limit: " + given.error().message, {}});
    limit = *given;
  }
  const Result<MemoryEstimate> estimate = estimate_memory(subject->config, subject->shape);
  if (!estimate) return report(estimate.error());
  if (options.json) {
    print_json(*estimate, limit);
  } else {
    print_text(*estimate, *subject, limit);
  }
  const Bytes peak = estimate->ranks[static_cast<std::size_t>(estimate->largest)].peak;
  return limit > 0 && peak > limit ? kExitMemory : kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--json", options->json, "one JSON document, in bytes");
  app.add_option("--memory-limit", options->memory_limit, "of a rank, as 80GiB; above it the exit code is 5");
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return run(*options, arguments->arguments()); };
}

const RegisterCommand kCommand(
    {.name = "estimate",
     .summary = "memory of a training step: bytes by rank and class, and where the peak is",
     .usage = "[CONFIG.toml | LAUNCH.sh | -- FLAGS] [flags]",
     .examples = {{"plumbline estimate pretrain.sh --memory-limit 80GiB", "a Megatron launch script"},
                  {"plumbline estimate --pp 4 -m 8 --num-layers 32 --hidden-size 4096 --bf16",
                   "a configuration"},
                  {"plumbline estimate cfg.toml --recompute-granularity full", "whole layers recomputed"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
