// The training text: bytes of one file, or of every regular file below a directory in sorted order. The last
// tenth is held out: never trained on, used for evaluation only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace plumbline {

struct Text {
  std::string bytes;
  std::string source;        // path it was read from
  std::size_t training = 0;  // bytes [0, training) are for training
  std::uint64_t digest = 0;

  std::string_view training_part() const { return std::string_view(bytes).substr(0, training); }
  std::string_view held_out() const { return std::string_view(bytes).substr(training); }
};

// An empty path means the text that comes with plumbline (default_text_path).
Result<Text> load_text(const std::string& path);

// The snapshot of plumbline's own words: share/plumbline/text.txt of the installation the executable belongs
// to, or tests/data/text.txt of the source tree it was built in. Empty when neither exists.
std::string default_text_path();

}  // namespace plumbline
