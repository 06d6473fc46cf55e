#include "cli/variants.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/config/flags.h"
#include "engine/config/options.h"
#include "engine/schedule/generator.h"

namespace plumbline::cli {
namespace {

// Megatron has calls of its own for some schedules; they are kinds.
Result<std::vector<std::string>> subject_of(const std::string& word) {
  std::error_code ignored;
  if (word == "-" || std::filesystem::exists(word, ignored)) return std::vector<std::string>{word};
  const Result<const Generator*> generator = find_generator(word);
  if (!generator) {
    if (word.find_first_of("./") != std::string::npos)
      return std::vector<std::string>{word};  // a file's name
    return fail(ErrorCode::kUsage, fmt::format("there is no file '{}'; {}", word, generator.error().message));
  }
  const std::vector<std::string>& kinds = find_option("schedule.kind")->choices;
  const bool kind = std::find(kinds.begin(), kinds.end(), word) != kinds.end();
  return std::vector<std::string>{kind ? "--schedule" : "--generator", word};
}

std::vector<std::string> split_blanks(const std::string& text) {
  std::vector<std::string> out;
  for (const std::string_view part : split(text, ' '))
    if (!part.empty()) out.emplace_back(part);
  return out;
}

}  // namespace

std::vector<std::string> Variants::with_shared(const std::vector<std::string>& subject) const {
  std::vector<std::string> out = shared;
  out.insert(out.end(), subject.begin(), subject.end());
  return out;
}

Result<Variants> split_variants(const std::vector<std::string>& words) {
  Variants out;
  std::vector<std::string> rest;
  std::vector<std::pair<std::size_t, std::string>> quoted;  // among how many plain words
  for (const std::string& word : words) {
    const bool flags = word.size() > 1 && word[0] == '-' && word.find(' ') != std::string::npos;
    if (!flags) {
      rest.push_back(word);
      continue;
    }
    const Result<ParsedFlags> before = parse_flags(rest);
    if (!before) return tl::unexpected(before.error());
    quoted.emplace_back(before->words.size(), word);
  }
  const Result<ParsedFlags> flags = parse_flags(rest);
  if (!flags) return tl::unexpected(flags.error());
  out.shared = rest;
  for (const std::string& word : flags->words)
    out.shared.erase(std::find(out.shared.begin(), out.shared.end(), word));
  std::size_t next = 0;
  for (std::size_t plain = 0; plain <= flags->words.size(); ++plain) {
    for (; next < quoted.size() && quoted[next].first == plain; ++next) {
      out.subjects.push_back(split_blanks(quoted[next].second));
      out.names.push_back(quoted[next].second);
    }
    if (plain == flags->words.size()) break;
    const std::string& word = flags->words[plain];
    Result<std::vector<std::string>> subject = subject_of(word);
    if (!subject) return tl::unexpected(subject.error());
    out.names.push_back(word);
    out.subjects.push_back(std::move(*subject));
  }
  return out;
}

}  // namespace plumbline::cli
