// libFuzzer target: no text breaks the reader of model names (the modes of --modes), and what is read has a name that
// reads back as the same model.
// Built by preset fuzz; started by hand with a corpus, docs/testing.md
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/assert.h"
#include "sim/nccl_model.h"

namespace plumbline {

int fuzz_model_name(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<NcclModel> model = model_named(text);
  if (!model) return 0;
  const Result<NcclModel> again = model_named(model->name());
  PL_ASSERT(again.has_value() && *again == *model && again->name() == model->name());
  return 0;
}

}  // namespace plumbline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plumbline::fuzz_model_name(data, size);
}
