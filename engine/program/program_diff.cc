#include "engine/program/program_diff.h"

#include "engine/program/text.h"

namespace plumbline {
namespace {

template <typename Text>
CallRows rows_of(const Program& program, Text text) {
  CallRows rows;
  for (std::size_t thread = 0; thread < program.threads.size(); ++thread) {
    rows.emplace_back();
    for (const Item item : program.thread_items(thread))
      rows.back().push_back(text(program.threads[thread].rank, item));
  }
  return rows;
}

}  // namespace

CallRows call_rows(const Program& program) {
  return rows_of(program, [&](Rank rank, Item item) { return describe_item(program, rank, item); });
}

CallRows call_details(const Program& program) {
  return rows_of(program, [&](Rank, Item item) { return print_item(program, item); });
}

}  // namespace plumbline
