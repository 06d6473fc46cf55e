#include "engine/config/toml_source.h"

#include <optional>

#include <fmt/format.h>

#include "engine/config/toml.h"
#include "engine/config/toml_ascii.h"

namespace plumbline {
namespace {

Where place(const std::string& file, const toml::source_region& region) {
  return Where{file, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

bool takes_integer(OptionType type) {
  switch (type) {
    case OptionType::kInteger:
    case OptionType::kSeed:
    case OptionType::kNumber:
    case OptionType::kSize:
    case OptionType::kDuration:
    case OptionType::kDurations:
      return true;
    default:
      return false;
  }
}

bool takes_string(OptionType type) {
  return type != OptionType::kInteger && type != OptionType::kNumber && type != OptionType::kSwitch;
}

std::string_view wanted(OptionType type) {
  switch (type) {
    case OptionType::kInteger:
      return "an integer";
    case OptionType::kSeed:
      return "an integer, or a string such as \"0x5eed\"";
    case OptionType::kNumber:
      return "a number";
    case OptionType::kSwitch:
      return "true or false";
    case OptionType::kSize:
      return "a number of bytes, or a string such as \"2MiB\"";
    case OptionType::kDuration:
      return "a number of nanoseconds, or a string such as \"20us\"";
    case OptionType::kDurations:
      return "a duration such as \"1ms\", or an array of them";
    case OptionType::kList:
      return "a string, or an array of strings";
    case OptionType::kBandwidth:
      return "a string such as \"10GB/s\"";
    case OptionType::kText:
    case OptionType::kChoice:
      break;
  }
  return "a string";
}

std::string_view kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

// The text of a scalar whose TOML type suits the option.
std::optional<std::string> scalar_text(const toml::node& node, OptionType type) {
  if (const auto* integer = node.as_integer(); integer != nullptr && takes_integer(type)) {
    return fmt::format("{}", integer->get());
  }
  if (const auto* number = node.as_floating_point(); number != nullptr && type == OptionType::kNumber) {
    return fmt::format("{}", number->get());
  }
  if (const auto* flag = node.as_boolean(); flag != nullptr && type == OptionType::kSwitch) {
    return flag->get() ? "true" : "false";
  }
  if (const auto* string = node.as_string(); string != nullptr && takes_string(type)) return string->get();
  return std::nullopt;
}

std::optional<std::string> value_text(const toml::node& node, const Option& option) {
  const OptionType type = option.type;
  const toml::array* array = node.as_array();
  if (array == nullptr) return scalar_text(node, type);
  if (type != OptionType::kList && type != OptionType::kDurations) return std::nullopt;
  std::string joined;
  for (const toml::node& entry : *array) {
    // A list of numbers (schedule.rampup) may be written as numbers.
    const bool number = option.words > 1 && entry.is_integer();
    const std::optional<std::string> text = scalar_text(entry, number ? OptionType::kInteger : type);
    if (!text) return std::nullopt;
    joined += (joined.empty() ? "" : ",") + *text;
  }
  return joined;
}

Status read_section(const toml::table& table, std::string_view section, const std::string& file,
                    Assignments& out) {
  for (const auto& [key, node] : table) {
    const Option* option = find_option(fmt::format("{}.{}", section, key.str()));
    if (option == nullptr) {
      return fail(ErrorCode::kConfig, unknown_option(section, key.str()), place(file, key.source()));
    }
    const std::optional<std::string> text = value_text(node, *option);
    if (!text) {
      return fail(ErrorCode::kConfig,
                  fmt::format("{} is {}; write {} ({})", option->name(), kind_of(node), wanted(option->type),
                              option->rule),
                  place(file, node.source()));
    }
    const Where where = place(file, key.source());
    out.push_back(
        {option, *text, Origin{Layer::kFile, fmt::format("{}:{}", file, where.line), where}, false});
  }
  return {};
}

}  // namespace

Result<Assignments> read_toml(std::string_view text, const std::string& file) {
  PL_TRY(require_ascii_outside_strings(text, file));
  const toml::parse_result parsed = toml::parse(text, file);
  if (!parsed) {
    return fail(ErrorCode::kParse, std::string(parsed.error().description()),
                place(file, parsed.error().source()));
  }
  Assignments out;
  const std::vector<std::string> sections = option_sections();
  for (const auto& [key, node] : parsed.table()) {
    const bool known = std::find(sections.begin(), sections.end(), key.str()) != sections.end();
    if (!known) return fail(ErrorCode::kConfig, unknown_section(key.str()), place(file, key.source()));
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      return fail(ErrorCode::kConfig,
                  fmt::format("'{}' is a section — write [{}] on a line of its own", key.str(), key.str()),
                  place(file, key.source()));
    }
    PL_TRY(read_section(*table, key.str(), file, out));
  }
  return out;
}

}  // namespace plumbline
