// Reads the tables of docs/seed-map.md and holds them against the code: what each row names must be there. The file
// access is the caller's, so that the checker itself can be tried on made-up tables.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tests/support/declarations.h"

namespace plumbline::test {

struct SeedRow {
  int line = 0;  // of the document, from 1
  std::string upstream, symbol, header, mapping, test;
};

// An upstream function or class: rows are needed for "name", "name(parameter)" for each, "name -> result" for each.
struct UpstreamName {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<std::string> results;
};

inline std::vector<std::string> rows_needed(const std::vector<UpstreamName>& list) {
  std::vector<std::string> rows;
  for (const UpstreamName& one : list) {
    rows.push_back(one.name);
    for (const std::string& parameter : one.parameters) rows.push_back(one.name + "(" + parameter + ")");
    for (const std::string& result : one.results) rows.push_back(one.name + " -> " + result);
  }
  return rows;
}

// Cell text without white space around it and without back quotes. A '|' inside back quotes does not occur.
inline std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  std::size_t from = line.find('|');
  while (from != std::string_view::npos) {
    const std::size_t to = line.find('|', from + 1);
    if (to == std::string_view::npos) break;
    std::string cell;
    for (const char c : line.substr(from + 1, to - from - 1)) {
      if (c != '`') cell += c;
    }
    const std::size_t first = cell.find_first_not_of(' ');
    cells.push_back(first == std::string::npos ? std::string()
                                               : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
    from = to;
  }
  return cells;
}

// Every table row of a document; problems (a row that has not five cells) are appended.
inline std::vector<SeedRow> parse_seed_map(std::string_view document, std::vector<std::string>& problems) {
  std::vector<SeedRow> rows;
  int line_number = 0;
  for (std::size_t at = 0; at < document.size();) {
    const std::size_t end = std::min(document.find('\n', at), document.size());
    const std::string_view line = document.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.empty() || line[0] != '|') continue;
    std::vector<std::string> cells = cells_of(line);
    if (!cells.empty() &&
        (cells[0] == "upstream" || cells[0].find_first_not_of("-: ") == std::string::npos)) {
      if (!cells[0].empty()) continue;  // the head of a table and the line under it
    }
    if (cells.size() != 5) {
      problems.push_back(fmt::format("line {}: {} cells, a row has five", line_number, cells.size()));
      continue;
    }
    rows.push_back({line_number, cells[0], cells[1], cells[2], cells[3], cells[4]});
  }
  return rows;
}

// "Suite.Name" of every test that a source file defines; disabled ones do not count.
inline std::set<std::string> tests_defined(std::string_view source) {
  const std::string code = code_only(source);
  std::set<std::string> tests;
  for (const std::string_view macro :
       {"TEST", "TEST_F", "TEST_P", "TYPED_TEST", "RC_GTEST_PROP", "RC_GTEST_FIXTURE_PROP"}) {
    for (std::size_t at = code.find(macro); at != std::string::npos; at = code.find(macro, at + 1)) {
      const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
      if (at > 0 && word(code[at - 1])) continue;
      std::size_t i = at + macro.size();
      if (i >= code.size() || code[i] != '(') continue;
      std::string names[2];
      for (std::string& name : names) {
        ++i;
        while (i < code.size() && std::isspace(static_cast<unsigned char>(code[i])) != 0) ++i;
        while (i < code.size() && word(code[i])) name += code[i++];
        while (i < code.size() && std::isspace(static_cast<unsigned char>(code[i])) != 0) ++i;
      }
      if (names[0].empty() || names[1].empty() || names[1].rfind("DISABLED_", 0) == 0) continue;
      tests.insert(names[0] + "." + names[1]);
    }
  }
  return tests;
}

using ReadHeader = std::function<std::optional<std::string>(const std::string& path)>;

// Empty when the table is complete and right; else a sentence for each fault.
inline std::vector<std::string> check_seed_map(std::string_view document,
                                               const std::vector<UpstreamName>& list, const ReadHeader& read,
                                               const std::set<std::string>& tests) {
  std::vector<std::string> problems;
  const std::vector<SeedRow> rows = parse_seed_map(document, problems);
  const std::vector<std::string> needed = rows_needed(list);
  const std::set<std::string> known(needed.begin(), needed.end());
  std::set<std::string> have;
  for (const SeedRow& row : rows) {
    const auto problem = [&](const std::string& text) {
      problems.push_back(fmt::format("line {}: {}: {}", row.line, row.upstream, text));
    };
    if (!have.insert(row.upstream).second) problem("a second row");
    if (known.count(row.upstream) == 0) problem("not in the list of upstream names");
    if (row.mapping.empty()) problem("says nothing about parameters and return value");
    const std::optional<std::string> header = read(row.header);
    if (!header) {
      problem("no header " + row.header);
    } else if (row.symbol.empty() || !declares(*header, row.symbol)) {
      problem(fmt::format("{} is not declared in {}", row.symbol, row.header));
    }
    if (tests.count(row.test) == 0) problem("no test " + row.test);
  }
  for (const std::string& name : needed) {
    if (have.count(name) == 0) problems.push_back(name + ": no row");
  }
  return problems;
}

}  // namespace plumbline::test
