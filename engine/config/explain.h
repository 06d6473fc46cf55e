// A configuration as text: its values with their origins, as TOML that loads back to the same configuration,
// as JSON, and the generated reference of all options (docs/config.md).
#pragma once

#include <string>
#include <vector>

#include "engine/config/loader.h"

namespace plumbline {

struct ExplainRow {
  std::string option;  // "schedule.chunks"
  std::string value;
  std::string origin;
};

// What was loaded, with the values that the validator made of it; those it derived have the origin "derived".
LoadedConfig with_derived(const LoadedConfig& given, const RunConfig& valid);

// One row an option, in table order.
std::vector<ExplainRow> explain(const LoadedConfig& loaded);

// Every option, section by section. Reading it back gives a configuration with the same texts.
std::string config_toml(const RunConfig& config);
// The same of these options alone, in table order.
std::string config_toml(const RunConfig& config, const std::vector<const Option*>& only);

// One document: {"plumbline":1,"config":{section:{key:value}},"origins":{"section.key":origin}}. Numbers and
// switches keep their type; everything else is a string; origins list what is not a default.
std::string config_json(const LoadedConfig& loaded);

// docs/config.md.
std::string config_docs();

}  // namespace plumbline
