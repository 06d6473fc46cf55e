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

RegisterGenerator::RegisterGenerator(Generator generator) {
  PL_ASSERT(generator.make != nullptr);
  std::vector<Generator>& all = registry();
  const auto at = std::lower_bound(all.begin(), all.end(), generator, by_name);
  PL_ASSERT_MSG(at == all.end() || at->name != generator.name, "two generators named " + generator.name);
  all.insert(at, std::move(generator));
}

}  // namespace detail

const std::vector<Generator>& generators() {
  // Naming the list keeps the generators' files in the executable (cmake/PlumblineGenerated.cmake).
  PL_ASSERT(detail::linked_generators() != nullptr);
  return registry();
}

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
