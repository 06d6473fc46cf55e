#include "cli/variants.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/text.h"
#include "engine/config/flags.h"
#include "engine/config/options.h"
#include "engine/schedule/generator.h"

namespace plumbline::cli {
namespace {

bool is_generator(const std::string& word) {
  std::error_code ignored;
  if (std::filesystem::exists(word, ignored)) return false;
  return std::any_of(generators().begin(), generators().end(),
                     [&](const Generator& generator) { return generator.name == word; });
}

// Megatron has calls of its own for some schedules; they are kinds.
std::vector<std::string> subject_of(const std::string& word) {
  if (!is_generator(word)) return {word};
  const std::vector<std::string>& kinds = find_option("schedule.kind")->choices;
  const bool kind = std::find(kinds.begin(), kinds.end(), word) != kinds.end();
  return {kind ? "--schedule" : "--generator", word};
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
    out.names.push_back(word);
    out.subjects.push_back(subject_of(word));
  }
  return out;
}

}  // namespace plumbline::cli
