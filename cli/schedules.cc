// `schedules`: what can be generated, with constraints and formulas.
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "engine/base/json_writer.h"
#include "engine/schedule/generator.h"

namespace plumbline::cli {
namespace {

std::string as_json() {
  JsonWriter json;
  json.begin_object().field("plumbline", 1).key("schedules").begin_array();
  for (const Generator& generator : generators()) {
    json.begin_object()
        .field("name", generator.name)
        .field("summary", generator.summary)
        .field("constraints", generator.constraints)
        .field("bubble", generator.bubble)
        .field("memory", generator.memory)
        .field("source", generator.source)
        .end_object();
  }
  return json.end_array().end_object().text();
}

void print_all() {
  const bool color = color_on_stdout();
  for (const Generator& generator : generators()) {
    print_line(paint(generator.name, Paint::kBold, color));
    Table table{{"", ""}, {}};
    table.rows = {{"  what", generator.summary},
                  {"  needs", generator.constraints},
                  {"  bubble", generator.bubble},
                  {"  memory", generator.memory},
                  {"  source", generator.source}};
    std::string text = layout(table, output_width());
    print(text.substr(text.find('\n') + 1));
  }
}

Run build(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "one JSON document");
  return [=]() -> int {
    if (*json) {
      print_line(as_json());
    } else {
      print_all();
    }
    return kExitHolds;
  };
}

const RegisterCommand kCommand({.name = "schedules",
                                .summary = "list the schedules with constraints, bubble, memory and source",
                                .usage = "[--json]",
                                .examples = {{"plumbline schedules", "all of them"}},
                                .build = build});

}  // namespace
}  // namespace plumbline::cli
