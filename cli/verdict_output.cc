#include "cli/verdict_output.h"

#include <cstdlib>
#include <string_view>

#include "cli/common/output.h"
#include "reports/verdict_text.h"

namespace plumbline::cli {

TerminalColour stdout_colour() {
  if (!color_on_stdout()) return TerminalColour::kPlain;
  const char* term = std::getenv("COLORTERM");
  const std::string_view name = term == nullptr ? "" : term;
  return name == "truecolor" || name == "24bit" ? TerminalColour::kTrueColour : TerminalColour::kAnsi16;
}

void print_verdict(const Verdict& verdict, bool json) {
  if (json) {
    print_line(verdict_json(verdict));
    return;
  }
  VerdictTextOptions options;
  options.width = output_width();
  options.colour = stdout_colour();
  print(render_verdict(verdict, options));
}

}  // namespace plumbline::cli
