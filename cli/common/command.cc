#include "cli/common/command.h"

#include <algorithm>

#include "engine/base/assert.h"

namespace plumbline::cli {
namespace {

// Function-local, because other files' static objects register before or after this file's own would exist.
std::vector<Command>& command_list() {
  static std::vector<Command> list;
  return list;
}

std::vector<Topic>& topic_list() {
  static std::vector<Topic> list;
  return list;
}

template <typename Entry>
void insert_sorted(std::vector<Entry>& list, Entry entry) {
  const auto at = std::lower_bound(list.begin(), list.end(), entry,
                                   [](const Entry& a, const Entry& b) { return a.name < b.name; });
  PL_ASSERT_MSG(at == list.end() || at->name != entry.name, entry.name + " is registered twice");
  list.insert(at, std::move(entry));
}

}  // namespace

RegisterCommand::RegisterCommand(Command command) { insert_sorted(command_list(), std::move(command)); }
RegisterTopic::RegisterTopic(Topic topic) { insert_sorted(topic_list(), std::move(topic)); }

const std::vector<Command>& commands() { return command_list(); }
const std::vector<Topic>& topics() { return topic_list(); }

const Command* find_command(std::string_view name) {
  for (const Command& command : commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

}  // namespace plumbline::cli
