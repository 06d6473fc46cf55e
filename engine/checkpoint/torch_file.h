// torch.save files: read without a Python and without trusting them, written so that
// torch.load(weights_only=True) takes them. Zip containers of torch 1.6 and later, and the older files
// without one.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/result.h"
#include "engine/checkpoint/python_value.h"
#include "engine/optim/state_dict.h"
#include "engine/storage/file_layer.h"

namespace plumbline {

Result<StateValue> read_torch_file(FileLayer& files, const std::string& path,
                                   const PythonOptions& options = {});
// One container inside a larger file.
Result<StateValue> read_torch_slice(const FileForReading& file, std::uint64_t begin, std::uint64_t size,
                                    const PythonOptions& options = {});

// A new file, synced. Same value, same bytes; `root` is the folder inside, Python's is the file's stem.
Status write_torch_file(FileLayer& files, const std::string& path, const StateValue& value,
                        const std::string& root = "archive");
Result<std::string> torch_file_bytes(const StateValue& value, const std::string& root = "archive");

}  // namespace plumbline
