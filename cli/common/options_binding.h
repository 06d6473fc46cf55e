// Gives a subcommand the configuration: every flag of the option table, --set, --config, and the file as a
// word. All commands that take a configuration use this, so that they accept the same command line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/loader.h"
#include "engine/config/validate.h"

namespace CLI {
class App;
}

namespace plumbline::cli {

// A configuration that keeps every rule, and where its values come from.
struct ValidConfig {
  RunConfig config;
  LoadedConfig loaded;  // as given, before the validator derived anything
};

class ConfigArguments {
 public:
  explicit ConfigArguments(CLI::App& app) : app_(&app) {}

  // To be called by the run function, after the parse. Warnings go to stderr.
  Result<LoadedConfig> load() const;
  // load(), the shape of a listed schedule (rows_shape.h) and validate(); when several rules are broken, all but the
  // first are printed to stderr as well.
  Result<ValidConfig> load(Purpose purpose) const;

  // The words and flags that the subcommand's own options left over.
  std::vector<std::string> arguments() const;

 private:
  CLI::App* app_;
};

// Options that a command adds to `app` itself take precedence over the configuration's flags of the same
// name.
std::shared_ptr<ConfigArguments> add_config_arguments(CLI::App& app);

// The same from arguments that a command collected in another way.
// `text` is that of the file, where it has been read already (standard input).
Result<LoadedConfig> load_arguments(const std::vector<std::string>& arguments,
                                    const std::optional<std::string>& text = std::nullopt);
Result<ValidConfig> load_arguments(const std::vector<std::string>& arguments, Purpose purpose,
                                   const std::optional<std::string>& text = std::nullopt);
// The second half of it: several broken rules are reported but for the first, which is the error.
Result<ValidConfig> validated(LoadedConfig loaded, Purpose purpose);

}  // namespace plumbline::cli
