// The text form of a Program (docs/program-text.md): tables first, then one block of items for each range of
// identical ranks. Printing and parsing are inverse: parse(print(p)) == p in everything, and print(parse(t))
// == t for text that was printed. Errors name file:line:column.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/program/program.h"

namespace plumbline {

std::string print_program(const Program& program);
// One item as a line of its block, without indentation: "op send.activation.1 mb=0 stream=pp after-compute".
std::string print_item(const Program& program, Item item);
// `name` is the file's name for messages.
Result<Program> parse_program(std::string_view text, const std::string& name);
// True when the text begins like a Program; used to tell a Program from a CSV.
bool looks_like_program(std::string_view text);

}  // namespace plumbline
