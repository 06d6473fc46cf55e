#include "engine/schedule/generator.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/text.h"

namespace plumbline {
namespace {

std::vector<Generator>& registry() {
  static std::vector<Generator>
      all;  // inside a function: other files' globals register while globals are made
  return all;
}

bool by_name(const Generator& a, const Generator& b) { return a.name < b.name; }

}  // namespace

namespace detail {

// Linkers take a file out of a static library only if something names a symbol of it, and nothing but this
// list names a generator. A test compares it with the folder.
extern RegisterGenerator register_forward_only;
extern RegisterGenerator register_gpipe;
extern RegisterGenerator register_interleaved;
extern RegisterGenerator register_interleaved_2022;
extern RegisterGenerator register_one_f_one_b;

[[gnu::used]] RegisterGenerator* const kLinkedGenerators[] = {
    &register_forward_only, &register_gpipe, &register_interleaved, &register_interleaved_2022,
    &register_one_f_one_b};

RegisterGenerator::RegisterGenerator(Generator generator) {
  PL_ASSERT(generator.make != nullptr);
  std::vector<Generator>& all = registry();
  const auto at = std::lower_bound(all.begin(), all.end(), generator, by_name);
  PL_ASSERT_MSG(at == all.end() || at->name != generator.name, "two generators named " + generator.name);
  all.insert(at, std::move(generator));
}

}  // namespace detail

const std::vector<Generator>& generators() { return registry(); }

Result<const Generator*> find_generator(std::string_view name) {
  std::vector<std::string> names;
  for (const Generator& generator : generators()) {
    if (generator.name == name) return &generator;
    names.push_back(generator.name);
  }
  const std::string guess = nearest(name, names);
  return fail(ErrorCode::kUsage, fmt::format("no schedule is named '{}'{}; known: {}", name,
                                             guess.empty() ? "" : fmt::format(", did you mean '{}'?", guess),
                                             fmt::join(names, ", ")));
}

}  // namespace plumbline
