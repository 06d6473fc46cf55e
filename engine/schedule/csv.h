// The CSV form of a schedule, as torch.distributed.pipelining dumps and loads it (_dump_csv, _load_csv): row = rank,
// cell = action, no header; an empty cell is an idle step and is dropped. Line ends LF or CRLF. Cells may be quoted as in
// RFC 4180. Rows with communication actions and rows without are both read; a file may not be empty.
//
// The number of ranks, stages and microbatches and the placement are inferred: a stage belongs to the rank that computes
// it (or, in a fragment that does not compute it, that sends or receives for it).
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

struct CsvOptions {
  bool fragment = false;  // holes are allowed: stages nobody holds, microbatches nobody computes
};

// `name` is the file's name for messages, which read "file:line:column: ...".
Result<Schedule> parse_schedule_csv(std::string_view text, const std::string& name, CsvOptions options = {});

// compute_only/compute_comms text without idle cells; `crlf` as torch writes it.
std::string print_schedule_csv(const Schedule& schedule, bool crlf = false);

}  // namespace plumbline
