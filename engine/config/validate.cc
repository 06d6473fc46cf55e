#include "engine/config/validate.h"

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/config/options.h"
#include "engine/config/validate_rules.h"

namespace plumbline {
namespace detail {

void RuleBook::refuse(std::string_view option, std::string_view rule, std::string_view fix, ErrorCode code) {
  const Option* entry = find_option(option);
  PL_ASSERT_MSG(entry != nullptr, std::string(option));
  const Origin& origin = origins.of(entry->name());
  const std::string from = origin.where.line > 0 ? std::string() : fmt::format(" ({})", origin.text);
  const std::string text = entry->get(config);
  const std::string value = text.empty() ? "''" : text;
  result_.errors.push_back(
      Error{code, fmt::format("{}={}{} {} — {}", option, value, from, rule, fix), origin.where});
}

}  // namespace detail

Validation validate_all(RunConfig config, const Origins& origins, Purpose purpose) {
  Validation result;
  result.config = std::move(config);
  detail::RuleBook book(result, origins, purpose);
  detail::check_sizes(book);
  detail::check_numbers(book);
  // Later rules divide and index by these values.
  if (!book.ok()) return result;
  detail::derive_grid(book);
  if (!book.ok()) return result;
  detail::derive_batch(book);
  detail::derive_layout(book);
  detail::check_schedule(book);
  detail::check_model(book);
  detail::check_optimizer(book);
  detail::check_checkpoint(book);
  detail::check_what_if(book);
  return result;
}

Result<RunConfig> validate(RunConfig config, const Origins& origins, Purpose purpose) {
  Validation result = validate_all(std::move(config), origins, purpose);
  if (result.ok()) return std::move(result.config);
  Error first = result.errors.front();
  const std::size_t more = result.errors.size() - 1;
  if (more > 0) first.message += fmt::format(" ({} more broken {})", more, more == 1 ? "rule" : "rules");
  return tl::unexpected(std::move(first));
}

}  // namespace plumbline
