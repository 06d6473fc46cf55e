#include "engine/config/loader.h"

#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "engine/base/text.h"
#include "engine/config/flags.h"
#include "engine/config/toml_source.h"

namespace plumbline {
namespace {

constexpr std::string_view kPrefix = "PLUMBLINE_";

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

// The section whose variables begin like this name, or empty.
std::string section_of(std::string_view variable) {
  for (const Option& option : options()) {
    const std::string full = option.environment();
    if (starts_with(variable, full.substr(0, full.size() - option.key.size()))) return option.section;
  }
  return {};
}

// A variable of a known section must name an option. Others may belong to someone else (PLUMBLINE_ENGINE,
// test settings), so that a near miss is only worth a warning.
Result<Assignments> read_environment(const Environment& environment, std::vector<std::string>& warnings) {
  std::map<std::string, const Option*> by_variable;
  std::vector<std::string> variables;
  for (const Option& option : options()) {
    by_variable[option.environment()] = &option;
    variables.push_back(option.environment());
  }
  Assignments out;
  for (const auto& [variable, text] : environment) {
    if (!starts_with(variable, kPrefix)) continue;
    const auto found = by_variable.find(variable);
    if (found != by_variable.end()) {
      out.push_back({found->second, text, Origin{Layer::kEnvironment, "environment " + variable, {}}, false});
      continue;
    }
    const std::string near = nearest(variable, variables);
    const std::string hint = near.empty() ? std::string() : fmt::format(" — did you mean {}?", near);
    if (!section_of(variable).empty()) {
      return fail(ErrorCode::kConfig,
                  fmt::format("environment variable {} names no option{}", variable,
                              hint.empty() ? " — 'plumbline help config' lists all" : hint));
    }
    if (!near.empty())
      warnings.push_back(fmt::format("environment variable {} is not read{}", variable, hint));
  }
  return out;
}

// A higher layer's microbatches drop a lower layer's global batch size, and the other way round.
void drop_twin(const Assignment& assignment, LoadedConfig& loaded) {
  const std::string name = assignment.option->name();
  const bool batch = name == "schedule.global_batch_size";
  if (!batch && name != "schedule.microbatches") return;
  const std::string twin = batch ? "schedule.microbatches" : "schedule.global_batch_size";
  if (loaded.origins.of(twin).layer >= assignment.origin.layer) return;
  loaded.origins.erase(twin);
  if (!batch) loaded.config.schedule.global_batch_size = 0;
}

// `plumbline check schedule.csv` means the csv schedule of that file.
Status take_words(const std::vector<std::string>& words, ParsedFlags& flags) {
  for (const std::string& word : words) {
    if (ends_with(word, ".csv")) {
      const Origin origin{Layer::kCommandLine, "argument " + word, {}};
      const Assignments pair{{find_option("schedule.kind"), "csv", origin, false},
                             {find_option("schedule.csv"), word, origin, false}};
      flags.assignments.insert(flags.assignments.begin(), pair.begin(), pair.end());
    } else if (flags.file.empty()) {
      flags.file = word;
    } else {
      return fail(ErrorCode::kUsage,
                  fmt::format("unexpected argument '{}': the configuration is already '{}' — give one file",
                              word, flags.file));
    }
  }
  return {};
}

}  // namespace

Status apply_assignments(const Assignments& assignments, LoadedConfig& loaded) {
  for (const Assignment& assignment : assignments) {
    const Option& option = *assignment.option;
    std::string text = assignment.text;
    const std::string before = option.get(loaded.config);
    if (assignment.append && !before.empty()) text = before + "," + text;
    const Status stored = option.set(loaded.config, text);
    if (!stored) {
      const bool in_file = assignment.origin.where.line > 0;
      const std::string from = in_file ? std::string() : assignment.origin.text + ": ";
      return fail(in_file ? ErrorCode::kConfig : ErrorCode::kUsage,
                  fmt::format("{}{}: {}; {}", from, option.name(), stored.error().message, option.rule),
                  assignment.origin.where);
    }
    drop_twin(assignment, loaded);
    loaded.origins.set(option.name(), assignment.origin);
  }
  return {};
}

Result<LoadedConfig> load_config(const LoadRequest& request) {
  Result<ParsedFlags> flags = parse_flags(request.arguments);
  if (!flags) return tl::unexpected(flags.error());
  PL_TRY(take_words(flags->words, *flags));
  LoadedConfig loaded;
  loaded.file = flags->file;
  if (!loaded.file.empty()) {
    const Result<std::string> text =
        request.text ? Result<std::string>(*request.text) : read_file(loaded.file);
    if (!text) return tl::unexpected(text.error());
    const Result<Assignments> from_file = read_toml(*text, loaded.file);
    if (!from_file) return tl::unexpected(from_file.error());
    PL_TRY(apply_assignments(*from_file, loaded));
  }
  const Result<Assignments> from_environment = read_environment(request.environment, loaded.warnings);
  if (!from_environment) return tl::unexpected(from_environment.error());
  PL_TRY(apply_assignments(*from_environment, loaded));
  PL_TRY(apply_assignments(flags->assignments, loaded));
  return loaded;
}

Environment process_environment() {
  Environment out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (starts_with(text, kPrefix) && equals != std::string_view::npos) {
      out.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return out;
}

}  // namespace plumbline
