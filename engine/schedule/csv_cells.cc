// Text into cells. Positions are kept for every cell, since a wrong action in row 7, step 4,000 must be found
// by hand.
#include <limits>

#include <fmt/format.h>

#include "engine/schedule/csv.h"
#include "engine/schedule/quote.h"

namespace plumbline {
namespace {

class CellReader {
 public:
  CellReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool at_end() const { return at_ == text_.size(); }

  // One line, its end included. An empty line gives no cells.
  Status read_row(std::vector<CsvCell>* row) {
    if (at_line_end()) return end_line();
    while (true) {
      PL_TRY(read_cell(row));
      if (at_end() || text_[at_] != ',') return end_line();
      ++at_;
    }
  }

 private:
  bool at_line_end() const { return at_end() || text_[at_] == '\n' || text_[at_] == '\r'; }
  int column_of(std::size_t at) const { return static_cast<int>(at - line_begin_) + 1; }

  tl::unexpected<Error> fail_at(std::size_t at, std::string message) const {
    return fail(ErrorCode::kParse, std::move(message), Where{name_, line_, column_of(at)});
  }

  Status end_line() {
    if (at_end()) return {};
    if (text_[at_] == '\r') {
      ++at_;
      if (at_end() || text_[at_] != '\n') {
        return fail_at(at_ - 1, "carriage return without line feed; lines end with LF or CRLF");
      }
    }
    ++at_;
    ++line_;
    line_begin_ = at_;
    return {};
  }

  Status read_cell(std::vector<CsvCell>* row) {
    if (!at_end() && text_[at_] == '"') return read_quoted(row);
    const std::size_t begin = at_;
    while (!at_line_end() && text_[at_] != ',') {
      if (text_[at_] == '"')
        return fail_at(at_, "a quote inside a cell; quotes enclose a whole cell or are left out");
      ++at_;
    }
    row->push_back(CsvCell{text_.substr(begin, at_ - begin), line_, column_of(begin)});
    return {};
  }

  Status read_quoted(std::vector<CsvCell>* row) {
    const std::size_t open = at_++;
    while (!at_line_end() && text_[at_] != '"') ++at_;
    if (at_line_end())
      return fail_at(open, "this quote is not closed on its line; close it, or leave it out");
    row->push_back(CsvCell{text_.substr(open + 1, at_ - open - 1), line_, column_of(open + 1)});
    ++at_;
    if (!at_line_end() && text_[at_] != ',') {
      return fail_at(at_, fmt::format("{} after a closing quote; a comma or the line's end must follow it",
                                      quote(text_.substr(at_, 1))));
    }
    return {};
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::size_t line_begin_ = 0;
  int line_ = 1;
};

}  // namespace

Result<std::vector<std::vector<CsvCell>>> parse_csv_cells(std::string_view text, const std::string& name) {
  // Lines, columns and offsets of rows are 32-bit numbers.
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a schedule of {} bytes; the limit is 2 GiB; shorten it", text.size()),
                Where{name, 0, 0});
  }
  std::vector<std::vector<CsvCell>> rows;
  CellReader reader(text, name);
  while (!reader.at_end()) {
    rows.emplace_back();
    PL_TRY(reader.read_row(&rows.back()));
  }
  return rows;
}

}  // namespace plumbline
