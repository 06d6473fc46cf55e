// NameTable: the names of one table of a Program text, while it is parsed. Only for text_parse.cc.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/base/result.h"
#include "engine/base/text.h"
#include "engine/program/program.h"

namespace plumbline {

// Names of one table with their rows.
class NameTable {
 public:
  explicit NameTable(std::string kind) : kind_(std::move(kind)) {}

  Status add(std::string_view name, const Where& where) {
    if (name.empty()) return fail(ErrorCode::kParse, fmt::format("a {} without a name", kind_), where);
    if (rows_.size() >= static_cast<std::size_t>(kMaxTableRows))
      return fail(ErrorCode::kParse, fmt::format("more than {} {} rows", kMaxTableRows, kind_), where);
    if (!rows_.emplace(name, static_cast<unsigned>(rows_.size())).second) {
      return fail(ErrorCode::kParse,
                  fmt::format("{} '{}' is defined twice; give it another name", kind_, name), where);
    }
    return {};
  }

  Result<unsigned> find(std::string_view name, const Where& where) const {
    const auto found = rows_.find(name);
    if (found != rows_.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& [text, row] : rows_) {
      if (known.size() < 2000) known.push_back(text);
    }
    const std::string near = nearest(name, known);
    return fail(ErrorCode::kParse,
                fmt::format("no {} is named '{}'{}", kind_, name,
                            near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
                where);
  }

 private:
  std::string kind_;
  std::map<std::string, unsigned, std::less<>> rows_;
};

}  // namespace plumbline
