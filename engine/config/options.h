// The one table of options: for every value of a RunConfig its TOML key, type, flags, rule and text form. The
// TOML reader, the environment, the command line, `plumbline config` and docs/config.md are all made from it.
//
// To add an option: add the field to run_config.h, one row to options_table.cc, its rule to
// validate_rules.cc, and renew docs/config.md with `plumbline config --docs`.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/option_text.h"
#include "engine/config/run_config.h"

namespace plumbline {

struct Option {
  std::string section;  // "schedule"
  std::string key;      // "group_size"
  OptionType type;
  std::vector<std::string> flags;    // short alias first if there is one; every '-' may be written '_'
  std::vector<std::string> choices;  // of a kChoice
  int words = 1;     // numbers that may follow the flag, as in --rampup-batch-size 16 8 300000
  std::string rule;  // what values mean and which are allowed; one line
  // Stores a text; the error says what is wrong with the text only. The RunConfig is untouched on failure.
  std::function<Status(RunConfig&, std::string_view)> set;
  // The canonical text of the present value.
  std::function<std::string(const RunConfig&)> get;

  std::string name() const { return section + "." + key; }
  std::string environment() const;  // "PLUMBLINE_SCHEDULE_GROUP_SIZE"
  std::string default_text() const { return get(RunConfig{}); }
  bool repeatable() const { return type == OptionType::kList && words == 1; }
};

// A flag without a value that stands for one value of an option: --fp16 is train.precision = fp16.
struct SwitchFlag {
  std::string flag;
  std::string option;  // "train.precision"
  std::string value;
};

// In the order of documentation; sections are contiguous.
const std::vector<Option>& options();
const std::vector<SwitchFlag>& switch_flags();
std::vector<std::string> option_sections();

// Null when there is none. Names and flags are compared with '-' equal to '_'.
const Option* find_option(std::string_view name);
const Option* find_option_by_flag(std::string_view flag);
const SwitchFlag* find_switch_flag(std::string_view flag);

// Every flag that the parser accepts, --set and --config included, in table order.
std::vector<std::string> all_flags();

// "unknown X — did you mean Y?" for a section, a "section.key" and a flag. Megatron flags that have another
// name here are explained.
std::string unknown_section(std::string_view section);
std::string unknown_option(std::string_view section, std::string_view key);
std::string unknown_flag(std::string_view flag);

namespace detail {
std::vector<Option> make_options();            // options_table.cc
std::vector<Option> make_model_options();      // options_table_train.cc
std::vector<Option> make_optimizer_options();  // options_table_optimizer.cc
std::vector<SwitchFlag> make_switch_flags();   // options_table.cc
}  // namespace detail

}  // namespace plumbline
