// Builds one row of the option table from a field accessor and a text form (option_text.h). Only for
// options_table*.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/config/options.h"

namespace plumbline::detail {

// An accessor that works for a constant RunConfig as well as for one to be changed.
#define PL_FIELD(member) \
  [](auto& config) -> auto& { return config.member; }

template <typename Text, typename Field>
Option row(std::string section, std::string key, Field field, std::vector<std::string> flags,
           std::string rule) {
  Option option;
  option.section = std::move(section);
  option.key = std::move(key);
  option.type = Text::kType;
  option.flags = std::move(flags);
  option.rule = std::move(rule);
  option.set = [field](RunConfig& config, std::string_view text) { return Text::read(text, field(config)); };
  option.get = [field](const RunConfig& config) { return Text::print(field(config)); };
  return option;
}

template <typename Enum, typename Field>
Option choice(std::string section, std::string key, Field field, std::vector<std::string> flags,
              std::string rule) {
  Option option = row<option_text::ChoiceText<Enum>>(std::move(section), std::move(key), field,
                                                     std::move(flags), std::move(rule));
  option.choices = names_of<Enum>();
  return option;
}

}  // namespace plumbline::detail
