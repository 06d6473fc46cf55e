#include "cli/common/options_binding.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/output.h"
#include "cli/common/rows_shape.h"
#include "engine/config/options.h"

namespace plumbline::cli {
namespace {

// The flags with a short name are the ones of every day; the rest is one command away.
std::string flags_of_every_day() {
  Table table{{"Configuration flags", ""}, {}};
  for (const Option& option : options()) {
    const bool everyday = option.flags.size() > 1 || !option.choices.empty() || option.repeatable();
    if (!everyday || option.flags.front().size() > 18) continue;
    const std::string words = fmt::format("{}", fmt::join(option.choices, ", "));
    table.rows.push_back({"  " + option.flags.front(), words.empty() ? option.rule : words});
  }
  table.rows.push_back({"  --set", "section.key=value, for any option"});
  table.rows.push_back({"  --config", "the configuration, as the word CONFIG"});
  return layout(table) + "All flags, Megatron's spellings among them: plumbline help config";
}

}  // namespace

Result<LoadedConfig> load_arguments(const std::vector<std::string>& arguments,
                                    const std::optional<std::string>& text) {
  Result<LoadedConfig> loaded = load_config({arguments, process_environment(), text});
  if (loaded) {
    for (const std::string& line : loaded->warnings) warn(line);
  }
  return loaded;
}

Result<ValidConfig> load_arguments(const std::vector<std::string>& arguments, Purpose purpose,
                                   const std::optional<std::string>& text) {
  Result<LoadedConfig> loaded = load_arguments(arguments, text);
  if (!loaded) return tl::unexpected(loaded.error());
  PL_TRY(shape_from_file(*loaded));
  return validated(*std::move(loaded), purpose);
}

Result<ValidConfig> validated(LoadedConfig loaded, Purpose purpose) {
  Validation checked = validate_all(loaded.config, loaded.origins, purpose);
  for (const std::string& line : checked.warnings) warn(line);
  if (checked.ok()) return ValidConfig{std::move(checked.config), std::move(loaded)};
  // The caller reports one error; it shall be the last line, so the others come before it.
  for (std::size_t i = 1; i < checked.errors.size(); ++i) report(checked.errors[i]);
  return tl::unexpected(checked.errors.front());
}

std::vector<std::string> ConfigArguments::arguments() const { return app_->remaining(); }
Result<LoadedConfig> ConfigArguments::load() const { return load_arguments(arguments()); }
Result<ValidConfig> ConfigArguments::load(Purpose purpose) const {
  return load_arguments(arguments(), purpose);
}

std::shared_ptr<ConfigArguments> add_config_arguments(CLI::App& app) {
  app.allow_extras();
  app.footer(flags_of_every_day);
  return std::make_shared<ConfigArguments>(app);
}

}  // namespace plumbline::cli
