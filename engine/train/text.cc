#include "engine/train/text.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/base/text.h"

namespace plumbline {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSmallest = 1000;  // bytes; less than this is surely a mistake

Result<std::vector<std::string>> files_below(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator walk(path, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    if (walk->is_regular_file(error) && !error) files.push_back(walk->path().string());
  }
  if (error) return fail(ErrorCode::kIo, fmt::format("cannot list {}: {}", path, error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string default_text_path() {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  // From bin/ up: an installation has share/plumbline beside bin, a build tree lies somewhere below the
  // sources.
  fs::path folder = error ? fs::current_path(error) : executable.parent_path();
  for (int up = 0; up < 6 && !folder.empty(); ++up, folder = folder.parent_path()) {
    for (const char* name : {"share/plumbline/text.txt", "tests/data/text.txt"}) {
      const fs::path candidate = folder / name;
      if (fs::is_regular_file(candidate, error)) return candidate.string();
    }
    if (folder == folder.root_path()) break;
  }
#ifdef PLUMBLINE_TEXT
  if (fs::is_regular_file(PLUMBLINE_TEXT, error)) return PLUMBLINE_TEXT;
#endif
  return {};
}

Result<Text> load_text(const std::string& path) {
  Text text;
  text.source = path.empty() ? default_text_path() : path;
  if (text.source.empty()) {
    return fail(ErrorCode::kIo,
                "the text that comes with plumbline is not beside the executable; give --data FILE");
  }
  std::error_code error;
  std::vector<std::string> files{text.source};
  if (fs::is_directory(text.source, error)) {
    Result<std::vector<std::string>> below = files_below(text.source);
    if (!below) return tl::unexpected(below.error());
    files = std::move(*below);
  }
  for (const std::string& file : files) {
    Result<std::string> content = read_file(file);
    if (!content) return tl::unexpected(content.error());
    text.bytes += *content;
  }
  if (text.bytes.size() < kSmallest) {
    return fail(ErrorCode::kConfig, fmt::format("train.data: {} has {} bytes; at least {} are needed",
                                                text.source, text.bytes.size(), kSmallest));
  }
  text.training = text.bytes.size() - text.bytes.size() / 10;
  text.digest = hash64(text.bytes);
  return text;
}

}  // namespace plumbline
