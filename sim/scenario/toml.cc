// Scenarios as TOML: the same tree, with the host operations of a thread as lines of words.
#include "engine/config/toml.h"

#include <fmt/format.h>

#include "engine/config/toml_ascii.h"
#include "sim/scenario/tree.h"
#include "sim/scenario/words.h"

namespace plumbline {
namespace {

using scenario::Json;

class Converter {
 public:
  explicit Converter(const std::string& file) { source_.file = file; }

  Result<Scenario> run(const toml::table& root) {
    Json tree;
    PL_TRY(convert(root, "", tree));
    return scenario::scenario_of(tree, source_);
  }

 private:
  static std::string below(const std::string& path, std::string_view key) {
    return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  }

  void mark(const std::string& path, const toml::node& node) {
    const toml::source_position at = node.source().begin;
    if (at.line == 0) return;
    source_.places[path] = Where{source_.file, static_cast<int>(at.line), static_cast<int>(at.column)};
  }

  Status convert(const toml::node& node, const std::string& path, Json& out) {
    mark(path, node);
    if (const auto* table = node.as_table(); table != nullptr) {
      out = Json::object();
      for (const auto& [key, value] : *table) {
        const std::string name(key.str());
        const bool words = name == "host_ops" && value.is_array();
        PL_TRY(words ? host_ops(*value.as_array(), below(path, name), out[name])
                     : convert(value, below(path, name), out[name]));
      }
      return {};
    }
    if (const auto* array = node.as_array(); array != nullptr) {
      out = Json::array();
      for (std::size_t i = 0; i < array->size(); ++i)
        PL_TRY(convert((*array)[i], fmt::format("{}[{}]", path, i), out.emplace_back()));
      return {};
    }
    if (const auto* text = node.as_string(); text != nullptr) {
      out = text->get();
    } else if (const auto* number = node.as_integer(); number != nullptr) {
      out = number->get();
    } else if (const auto* flag = node.as_boolean(); flag != nullptr) {
      out = flag->get();
    } else {
      return fail(ErrorCode::kParse, path + ": a text, a whole number, true, false or a list was expected",
                  source_.where(path));
    }
    return {};
  }

  Status host_ops(const toml::array& array, const std::string& path, Json& out) {
    mark(path, array);
    out = Json::array();
    for (std::size_t i = 0; i < array.size(); ++i) {
      const std::string place = fmt::format("{}[{}]", path, i);
      mark(place, array[i]);
      const auto* text = array[i].as_string();
      if (text == nullptr)
        return fail(ErrorCode::kParse, place + ": a host operation is a text, as \"send C to 1 4KiB on S\"",
                    source_.where(place));
      Result<Json> op = scenario::host_op_of_words(text->get());
      if (!op)
        return fail(ErrorCode::kParse, fmt::format("\"{}\": {}", text->get(), op.error().message),
                    source_.where(place));
      out.push_back(std::move(*op));
    }
    return {};
  }

  scenario::Source source_;
};

// A TOML basic string.
std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

void put(std::string& out, std::string_view key, const std::string& value) {
  if (!value.empty()) out += fmt::format("{} = {}\n", key, toml_string(value));
}

}  // namespace

Result<Scenario> parse_scenario_toml(std::string_view text, const std::string& name) {
  PL_TRY(require_ascii_outside_strings(text, name));
  const toml::parse_result parsed = toml::parse(text, name);
  if (!parsed) {
    const toml::source_position at = parsed.error().source().begin;
    return fail(ErrorCode::kParse, std::string(parsed.error().description()),
                Where{name, static_cast<int>(at.line), static_cast<int>(at.column)});
  }
  return Converter(name).run(parsed.table());
}

std::string print_scenario_toml(const Scenario& scenario) {
  std::string out;
  put(out, "id", scenario.id);
  put(out, "source", scenario.source);
  put(out, "class", scenario.category);
  put(out, "note", scenario.note);
  put(out, "legacy_stream", scenario.legacy_stream);
  out += "\n[communicators]\n";
  for (const auto& [name, members] : scenario.communicators)
    out += fmt::format("{} = [{}]\n", toml_string(name), fmt::join(members, ", "));
  for (const ScenarioThread& thread : scenario.threads) {
    out += fmt::format("\n[[threads]]\nrank = {}\nhost_ops = [\n", thread.rank);
    for (const HostOp& op : thread.host_ops)
      out += fmt::format("  {},\n", toml_string(scenario::words_of_host_op(op)));
    out += "]\n";
  }
  const ScenarioOptions& options = scenario.options;
  if (options != ScenarioOptions{}) {
    out += "\n[model_options]\n";
    if (options.launch_blocking) out += "launch_blocking = true\n";
    if (options.max_ops_per_kernel > 0)
      out += fmt::format("max_ops_per_kernel = {}\n", options.max_ops_per_kernel);
    if (options.plan_restarts_rounds) out += "plan_restarts_rounds = true\n";
    if (options.ranks_per_node > 0) out += fmt::format("ranks_per_node = {}\n", options.ranks_per_node);
  }
  if (!scenario.expected.empty()) {
    out += "\n[verdict]\n";
    for (const auto& [mode, value] : scenario.expected)
      out += fmt::format("{} = {}\n", toml_string(mode), toml_string(value));
  }
  return out;
}

}  // namespace plumbline
