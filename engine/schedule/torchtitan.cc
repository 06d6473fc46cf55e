#include "engine/schedule/torchtitan.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/config/toml.h"
#include "engine/config/toml_ascii.h"

namespace plumbline {
namespace {

struct Setting {
  std::string_view section, key;
  int TorchtitanSettings::*number;
  std::string TorchtitanSettings::*text;
};

using S = TorchtitanSettings;
constexpr std::array<Setting, 9> kSettings{{
    {"parallelism", "pipeline_parallel_degree", &S::degree, nullptr},
    {"parallelism", "pipeline_parallel_schedule", nullptr, &S::schedule},
    {"parallelism", "pipeline_parallel_schedule_csv", nullptr, &S::csv},
    {"parallelism", "pipeline_parallel_microbatch_size", &S::microbatch_size, nullptr},
    {"parallelism", "pipeline_parallel_layers_per_stage", &S::layers_per_stage, nullptr},
    {"parallelism", "pipeline_parallel_first_stage_less_layers", &S::first_stage_less_layers, nullptr},
    {"parallelism", "pipeline_parallel_last_stage_less_layers", &S::last_stage_less_layers, nullptr},
    {"training", "local_batch_size", &S::local_batch_size, nullptr},
    {"training", "batch_size", &S::local_batch_size, nullptr},  // until 2025
}};

bool may_be_zero(const Setting& setting) { return setting.key.find("less_layers") != std::string_view::npos; }

Status store(const Setting& setting, std::int64_t value, const Where& where, TorchtitanSettings& out) {
  const std::int64_t least = may_be_zero(setting) ? 0 : 1;
  if (value < least || value > (1 << 20)) {
    return fail(ErrorCode::kConfig,
                fmt::format("{}.{} = {}; it is at least {}", setting.section, setting.key, value, least),
                where);
  }
  out.*setting.number = static_cast<int>(value);
  return {};
}

Status check(const TorchtitanSettings& settings, const std::string& name) {
  if (settings.local_batch_size % settings.microbatch_size == 0) return {};
  return fail(
      ErrorCode::kConfig,
      fmt::format(
          "local_batch_size {} is no multiple of pipeline_parallel_microbatch_size {}; torchtitan refuses "
          "that too",
          settings.local_batch_size, settings.microbatch_size),
      Where{name, 0, 0});
}

Status read_table(const toml::table& root, const std::string& name, TorchtitanSettings& out) {
  for (const Setting& setting : kSettings) {
    const toml::node* node = root[setting.section][setting.key].node();
    if (node == nullptr) continue;
    const Where where{name, static_cast<int>(node->source().begin.line),
                      static_cast<int>(node->source().begin.column)};
    if (setting.text != nullptr) {
      const auto text = node->value<std::string>();
      if (!text || !node->is_string())
        return fail(ErrorCode::kConfig, fmt::format("{}.{} is no string", setting.section, setting.key),
                    where);
      out.*setting.text = *text;
      continue;
    }
    if (!node->is_integer())
      return fail(ErrorCode::kConfig, fmt::format("{}.{} is no integer", setting.section, setting.key),
                  where);
    PL_TRY(store(setting, *node->value<std::int64_t>(), where, out));
  }
  return {};
}

bool single(const std::string& schedule) {
  return schedule.size() <= 5 &&
         (schedule == "1F1B" || schedule == "1f1b" || schedule == "GPipe" || schedule == "gpipe");
}

// Stages of the whole pipeline; the layers that the first and the last stage have less count as layers.
Result<int> stages_of(const TorchtitanSettings& settings, int layers) {
  if (settings.layers_per_stage == 0) return settings.degree * (single(settings.schedule) ? 1 : 2);
  if (layers < 1) {
    return fail(ErrorCode::kUsage,
                "pipeline_parallel_layers_per_stage is set, and how many stages that makes depends on the "
                "model; give its "
                "layers with --layers N");
  }
  const int all = layers + settings.first_stage_less_layers + settings.last_stage_less_layers;
  const int stages = (all + settings.layers_per_stage - 1) / settings.layers_per_stage;
  if (stages % settings.degree != 0) {
    return fail(ErrorCode::kConfig,
                fmt::format("{} layers, {} a stage: {} stages on {} ranks; torchtitan wants a multiple", all,
                            settings.layers_per_stage, stages, settings.degree));
  }
  return stages;
}

}  // namespace

Result<TorchtitanSettings> parse_torchtitan(std::string_view text, const std::string& name) {
  PL_TRY(require_ascii_outside_strings(text, name));
  const toml::parse_result parsed = toml::parse(text, name);
  TorchtitanSettings out;
  if (!parsed) {
    const auto& begin = parsed.error().source().begin;
    return fail(ErrorCode::kParse, std::string(parsed.error().description()),
                Where{name, static_cast<int>(begin.line), static_cast<int>(begin.column)});
  }
  PL_TRY(read_table(parsed.table(), name, out));
  PL_TRY(check(out, name));
  return out;
}

Result<TorchtitanSettings> parse_torchtitan_flags(const std::vector<std::string>& words) {
  TorchtitanSettings out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    std::string name = words[i].substr(0, equals);
    std::replace(name.begin(), name.end(), '-', '_');
    for (const Setting& setting : kSettings) {
      if (name != fmt::format("__{}.{}", setting.section, setting.key)) continue;
      const bool attached = equals != std::string::npos;
      if (!attached && i + 1 == words.size()) return fail(ErrorCode::kUsage, words[i] + " needs a value");
      const std::string value = attached ? words[i].substr(equals + 1) : words[++i];
      if (setting.text != nullptr) {
        out.*setting.text = value;
        break;
      }
      const Result<std::int64_t> number = parse_integer(value);
      if (!number) return fail(ErrorCode::kUsage, fmt::format("{}: '{}' is no number", words[i], value));
      PL_TRY(store(setting, *number, {}, out));
      break;
    }
  }
  PL_TRY(check(out, ""));
  return out;
}

Result<TorchRows> torchtitan_rows(const TorchtitanSettings& settings, int layers) {
  const Result<int> stages = stages_of(settings, layers);
  if (!stages) return tl::unexpected(stages.error());
  GeneratorArgs args;
  args.ranks = settings.degree;
  args.chunks = *stages / settings.degree;
  args.microbatches = settings.microbatches();
  return torch_compute_rows(settings.schedule, args);
}

std::string torchtitan_misplacement(const TorchtitanSettings& settings, const Schedule& csv) {
  std::string name = settings.schedule;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool v = name == "zbvzerobubble" || name == "dualpipev";
  if (csv.ranks < 1 || csv.stages % csv.ranks != 0) return {};
  const std::vector<std::int32_t> placed =
      v ? wave_placement(csv.stages, csv.ranks) : loop_placement(csv.stages, csv.ranks);
  for (int stage = 0; stage < csv.stages; ++stage) {
    const std::size_t at = static_cast<std::size_t>(stage);
    if (csv.rank_of_stage[at] == placed[at]) continue;
    return fmt::format(
        "torchtitan places stages as '{}' does, stage {} on rank {}, but the file computes it on rank {}",
        settings.schedule, stage, placed[at], csv.rank_of_stage[at]);
  }
  return {};
}

}  // namespace plumbline
