// The CSV form of a schedule, as torch.distributed.pipelining dumps and loads it (_dump_csv, _load_csv): a
// row a rank, a cell an action, no header; an empty cell is an idle step and is dropped. Line ends LF or
// CRLF. Cells may be quoted as in RFC 4180. Rows with communication actions and rows without are both read; a
// file may not be empty. An empty line is a rank without actions; the line end after the last row does not
// begin another one.
//
// The number of ranks, stages and microbatches and the placement are inferred: a stage belongs to the rank
// that computes it (or, in a fragment that does not compute it, that sends or receives for it). Rows that
// several pipelines over the same ranks explain entirely are read as such (csv_pipelines.h). Slices of
// sequences cannot be told from microbatches. A file without any backward is forward only. Memory is
// proportional to the text and to the largest stage and microbatch number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/schedule/idle_cells.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

struct CsvOptions {
  bool fragment = false;  // holes are allowed: stages nobody holds, microbatches nobody computes
};

// `name` is the file's name for messages, which read "file:line:column: ...". `idle`, if given, is overwritten with
// the idle cells.
Result<Schedule> parse_schedule_csv(std::string_view text, const std::string& name, CsvOptions options = {},
                                    IdleCells* idle = nullptr);

// compute_only/compute_comms text, with the idle cells that are given; `crlf` as torch writes it. With the cells of
// parse_schedule_csv, what torch wrote comes back to the byte.
std::string print_schedule_csv(const Schedule& schedule, bool crlf = false, const IdleCells* idle = nullptr);

// The layer below: cells as they stand in the file, idle ones included, not yet parsed. `text` points into
// the file's text, inside the quotes if there were any; line and column count from 1 and name the cell's
// first character.
struct CsvCell {
  std::string_view text;
  int line = 0;
  int column = 0;
};
Result<std::vector<std::vector<CsvCell>>> parse_csv_cells(std::string_view text, const std::string& name);

}  // namespace plumbline
