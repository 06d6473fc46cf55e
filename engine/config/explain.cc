#include "engine/config/explain.h"

#include <fmt/format.h>

#include "engine/base/json_writer.h"
#include "engine/base/text.h"
#include "engine/config/options.h"

namespace plumbline {
namespace {

bool is_bare(OptionType type) {
  return type == OptionType::kInteger || type == OptionType::kNumber || type == OptionType::kSwitch;
}

// A TOML basic string. Option texts hold no control characters.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string toml_array(std::string_view text) {
  std::string out;
  if (!text.empty()) {
    for (const std::string_view part : split(text, ',')) out += (out.empty() ? "" : ", ") + quoted(part);
  }
  return "[" + out + "]";
}

std::string toml_value(const Option& option, const std::string& text) {
  if (option.type == OptionType::kList || option.type == OptionType::kDurations) return toml_array(text);
  return is_bare(option.type) ? text : quoted(text);
}

void json_value(JsonWriter& json, const Option& option, const std::string& text) {
  if (option.type == OptionType::kSwitch) {
    json.value(text == "true");
  } else if (option.type == OptionType::kInteger) {
    json.value(*parse_integer(text));
  } else if (option.type == OptionType::kNumber) {
    json.value(*parse_double(text));
  } else {
    json.value(text);
  }
}

std::string join_flags(const Option& option) {
  std::string out;
  for (const std::string& flag : option.flags) out += fmt::format("{}`{}`", out.empty() ? "" : " ", flag);
  return out;
}

std::string type_text(const Option& option) {
  if (option.choices.empty()) return std::string(type_name(option.type));
  return fmt::format("{}", fmt::join(option.choices, ", "));
}

constexpr std::string_view kIntroduction = R"(# Configuration

A configuration is a TOML file, environment variables, and flags. Later ones win:

1. defaults
2. the file, `plumbline check cfg.toml`
3. the environment, `PLUMBLINE_<SECTION>_<KEY>`, for example `PLUMBLINE_SCHEDULE_GROUP_SIZE=8`
4. `--set section.key=value` and flags, in the order of the command line

`plumbline config --explain` lists every value with its origin. `-` and `_` are the same in flags. A flag
takes its value as `--flag value` or `--flag=value`; a switch takes none, and `--no-` in front turns it
off. A list is a TOML array or a comma-separated text; its flag may be repeated and adds to the list,
every other form replaces it. Unknown sections, keys, flags and variables of a known section are refused.
A word that ends in `.csv` stands for `--schedule csv --schedule-csv FILE`.

| type | TOML value |
|---|---|
| integer, number | `4`, `1e-3` |
| seed | an integer, or `"0x5eed"` |
| switch | `true`, `false` |
| size | bytes, or `"64KiB"`, `"2MiB"`, `"1GB"` |
| duration | nanoseconds, or `"250ns"`, `"20us"`, `"1.5ms"` |
| durations | a duration, or an array of them |
| bandwidth | `"10GB/s"` |
| list | `["0-1:10GB/s", "1-2:5GB/s:20us"]` |

This page is generated: `plumbline config --docs`.
)";

}  // namespace

LoadedConfig with_derived(const LoadedConfig& given, const RunConfig& valid) {
  LoadedConfig out = given;
  out.config = valid;
  const std::string batch = "schedule.global_batch_size";
  if (given.config.schedule.global_batch_size != 0) {
    Origin origin = given.origins.of(batch);
    origin.text =
        fmt::format("derived from {}={}, {}", batch, given.config.schedule.global_batch_size, origin.text);
    out.origins.set("schedule.microbatches", std::move(origin));
    out.origins.erase(batch);
  }
  for (const Option& option : options()) {
    const bool derived = !out.origins.given(option.name()) && option.get(valid) != option.get(given.config);
    if (derived && option.name() != batch)
      out.origins.set(option.name(), Origin{Layer::kDefault, "derived", {}});
  }
  return out;
}

std::vector<ExplainRow> explain(const LoadedConfig& loaded) {
  std::vector<ExplainRow> rows;
  for (const Option& option : options()) {
    rows.push_back({option.name(), option.get(loaded.config), loaded.origins.of(option.name()).text});
  }
  return rows;
}

std::string config_toml(const RunConfig& config) {
  std::vector<const Option*> all;
  for (const Option& option : options()) all.push_back(&option);
  return config_toml(config, all);
}

std::string config_toml(const RunConfig& config, const std::vector<const Option*>& only) {
  std::string out;
  std::string section;
  for (const Option* option : only) {
    if (option->section != section) {
      section = option->section;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    out += fmt::format("{} = {}\n", option->key, toml_value(*option, option->get(config)));
  }
  return out;
}

std::string config_json(const LoadedConfig& loaded) {
  JsonWriter json;
  json.begin_object().field("plumbline", 1).key("config").begin_object();
  for (const std::string& section : option_sections()) {
    json.key(section).begin_object();
    for (const Option& option : options()) {
      if (option.section != section) continue;
      json.key(option.key);
      json_value(json, option, option.get(loaded.config));
    }
    json.end_object();
  }
  json.end_object().key("origins").begin_object();
  for (const Option& option : options()) {
    if (loaded.origins.given(option.name())) json.field(option.name(), loaded.origins.of(option.name()).text);
  }
  return json.end_object().end_object().text();
}

std::string config_docs() {
  std::string out(kIntroduction);
  std::string section;
  for (const Option& option : options()) {
    if (option.section != section) {
      section = option.section;
      out += fmt::format(
          "\n## [{}]\n\n| key | type | default | flags | meaning and rule |\n|---|---|---|---|---|\n",
          section);
    }
    const std::string initial = option.default_text();
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", option.key, type_text(option),
                       initial.empty() ? "" : fmt::format("`{}`", initial), join_flags(option), option.rule);
  }
  out += "\n## Flags that stand for a value\n\n| flag | means |\n|---|---|\n";
  for (const SwitchFlag& entry : switch_flags()) {
    out += fmt::format("| `{}` | `{} = {}` |\n", entry.flag, entry.option, quoted(entry.value));
  }
  return out;
}

}  // namespace plumbline
