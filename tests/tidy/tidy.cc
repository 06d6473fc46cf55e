// Rules that no compiler enforces: who may include whom, where printing may happen, what breaks determinism,
// file size. Works on lines of text. It knows just enough C++ to leave comments and string literals out.
#include "tests/tidy/tidy.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

namespace plumbline::tidy {
namespace {

constexpr int kMaxLines = 500;
constexpr int kMaxColumns = 120;

struct Room {
  std::string_view folder;
  int level;   // a room may include itself and rooms of a lower level
  bool torch;  // above the LibTorch line; nothing below it may include such a room, whatever its level
};

// Deeper folders come before the folder that contains them.
constexpr std::array<Room, 19> kRooms = {{
    {"engine/base/", 0, false},
    {"engine/config/", 1, false},
    {"engine/storage/", 1, false},
    {"engine/schedule/", 2, false},
    {"engine/program/", 3, false},
    {"engine/runtime/", 4, false},
    {"sim/", 5, false},
    {"engine/model/", 6, true},
    {"engine/optim/", 7, true},
    {"engine/checkpoint/", 8, true},
    {"engine/train/", 9, true},
    {"backends/processes/", 6, true},
    {"backends/gloo/", 10, true},
    {"backends/cuda/tensors/", 10, true},
    {"backends/cuda/", 6, false},
    {"reports/", 11, false},
    {"props/", 11, false},
    {"cli/engine/", 13, true},
    {"cli/", 12, false},
}};

constexpr std::array<std::string_view, 9> kTops = {"engine", "sim",   "backends", "reports", "props",
                                                   "cli",    "bench", "tests",    "docs"};

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](auto prefix) { return text.starts_with(prefix); });
}

const Room* room_of(std::string_view file) {
  for (const Room& room : kRooms) {
    if (file.starts_with(room.folder)) return &room;
  }
  return nullptr;
}

bool word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Whether `token` occurs in `code` and neither end of it is glued to a longer name.
bool has_token(std::string_view code, std::string_view token) {
  for (size_t at = code.find(token); at != std::string_view::npos; at = code.find(token, at + 1)) {
    const size_t end = at + token.size();
    const bool left_free = at == 0 || !word_char(token.front()) || !word_char(code[at - 1]);
    const bool right_free = end == code.size() || !word_char(token.back()) || !word_char(code[end]);
    if (left_free && right_free) return true;
  }
  return false;
}

/// Removes comments and the insides of string literals, line by line. Knows block comments and raw strings.
class Stripper {
 public:
  std::string strip(std::string_view line) {
    std::string code;
    for (size_t i = 0; i < line.size();) {
      if (!until_.empty()) {
        const size_t end = line.find(until_, i);
        if (end == std::string_view::npos) return code;
        i = end + until_.size();
        until_.clear();
      } else if (line.substr(i).starts_with("//")) {
        return code;
      } else if (line.substr(i).starts_with("/*")) {
        until_ = "*/";
        i += 2;
      } else if (line.substr(i).starts_with("R\"") && (i == 0 || !word_char(line[i - 1]))) {
        const size_t open = line.find('(', i);
        if (open == std::string_view::npos) return code;
        until_ = ")" + std::string(line.substr(i + 2, open - i - 2)) + "\"";
        i = open + 1;
      } else if (line[i] == '"') {
        i = end_of_string(line, i);
        code += "\"\"";
      } else if (line.substr(i).starts_with("'\"'")) {
        i += 3;
      } else {
        code += line[i++];
      }
    }
    return code;
  }

 private:
  static size_t end_of_string(std::string_view line, size_t open) {
    size_t i = open + 1;
    while (i < line.size() && line[i] != '"') i += line[i] == '\\' ? 2 : 1;
    return std::min(i + 1, line.size());
  }

  std::string until_;  // what closes the block comment or raw string we are in; empty outside
};

struct Include {
  std::string_view path;
  bool quoted;
};

std::optional<Include> include_of(std::string_view line) {
  const size_t start = line.find_first_not_of(" \t");
  if (start == std::string_view::npos || line[start] != '#') return std::nullopt;
  const size_t word = line.find_first_not_of(" \t", start + 1);
  if (word == std::string_view::npos || !line.substr(word).starts_with("include")) return std::nullopt;
  const size_t open = line.find_first_of("\"<", word);
  if (open == std::string_view::npos) return std::nullopt;
  const size_t close = line.find(line[open] == '"' ? '"' : '>', open + 1);
  if (close == std::string_view::npos) return std::nullopt;
  return Include{line.substr(open + 1, close - open - 1), line[open] == '"'};
}

/// The part of `file` that decides its room: a test lives by the rules of the folder it mirrors.
std::string_view mirrored(std::string_view file) {
  return file.starts_with("tests/") ? file.substr(std::string_view("tests/").size()) : file;
}

class Checker {
 public:
  explicit Checker(std::string_view file)
      : file_(file), room_(room_of(mirrored(file))), is_test_(file.starts_with("tests/")) {
    above_line_ = room_ != nullptr && room_->torch;
    may_print_ = starts_with_any(file, {"cli/", "reports/", "bench/", "tests/", "docs/"});
    deterministic_ = starts_with_any(file, {"sim/", "engine/"});
    no_clock_ = starts_with_any(file, {"sim/", "engine/schedule/", "engine/program/"});
    ordered_ = starts_with_any(file, {"sim/", "engine/program/"});
  }

  std::vector<Finding> check(std::string_view content) {
    Stripper stripper;
    int number = 0;
    for (size_t at = 0; at < content.size();) {
      const size_t end = std::min(content.find('\n', at), content.size());
      line_ = ++number;
      check_line(content.substr(at, end - at), stripper);
      at = end + 1;
    }
    line_ = 0;
    if (number > kMaxLines && !file_has(content, "// long-file:")) {
      add(std::to_string(number) + " lines, the limit is " + std::to_string(kMaxLines) +
          "; split it, or say why not in a line '// long-file: <reason>'");
    }
    if (file_.ends_with(".h") && content.find("#pragma once") == std::string_view::npos &&
        !file_has(content, "// no-guard:")) {
      add("header without #pragma once; a line '// no-guard: <reason>' excepts one that is included "
          "repeatedly");
    }
    return std::move(findings_);
  }

 private:
  void check_line(std::string_view line, Stripper& stripper) {
    if (line.find('\t') != std::string_view::npos) add("tab");
    if (line.ends_with('\r')) add("line ends in CR LF");
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    if (columns > kMaxColumns) add("line of " + std::to_string(columns) + " columns, the limit is 120");

    const std::string code = stripper.strip(line);
    if (code.find('#') != std::string::npos) {
      if (const auto include = include_of(line)) check_include(*include, line);
    }
    if (deterministic_) {
      for (auto token : {"std::random_device", "std::rand", "rand(", "srand"}) {
        if (has_token(code, token))
          add(std::string(token) + ": randomness comes from the seeded generator in engine/base");
      }
    }
    if (no_clock_ && !line_has(line, "// wall-clock:")) {
      for (auto token :
           {"system_clock", "steady_clock", "high_resolution_clock", "gettimeofday", "clock_gettime"}) {
        if (has_token(code, token))
          add(std::string(token) + ": only virtual time here; '// wall-clock: <reason>' excepts");
      }
    }
    if (ordered_ && code.find("std::unordered_") != std::string::npos && !line_has(line, "// order-free:")) {
      add("std::unordered_ container: its order varies; '// order-free: <reason>' excepts a line that never "
          "iterates");
    }
    if (!may_print_ && !line_has(line, "// prints:")) {
      for (auto token :
           {"printf(", "fprintf(", "puts(", "fputs(", "std::cout", "std::cerr", "std::clog", "fmt::print("}) {
        if (has_token(code, token))
          add(std::string(token) + ": printing lives in cli/ and reports/; '// prints: <reason>' excepts");
      }
    }
  }

  void check_include(const Include& include, std::string_view line) {
    const std::string path(include.path);
    if (path == "torch/torch.h")
      add("torch/torch.h costs half a minute a file; include the ATen header that is needed");
    if (!may_print_ && path == "iostream" && !line_has(line, "// prints:")) {
      add("<iostream>: printing lives in cli/ and reports/; '// prints: <reason>' excepts");
    }
    const bool torch_header = starts_with_any(path, {"torch/", "ATen/", "c10/", "caffe2/"});
    if (torch_header && room_ != nullptr && !above_line_) {
      add(path + ": LibTorch is out of bounds below the line (" + std::string(room_->folder) + ")");
    }
    const bool ours = std::any_of(kTops.begin(), kTops.end(),
                                  [&](auto top) { return path.starts_with(std::string(top) + "/"); });
    if (include.quoted && !ours)
      add("\"" + path + "\": our includes start at the repository root, others use <>");
    if (!include.quoted && ours && room_of(path) != nullptr)
      add("<" + path + ">: our own headers use quotes");
    check_order(path);
  }

  void check_order(const std::string& path) {
    const Room* target = room_of(path);
    if (room_ == nullptr || target == nullptr || target == room_) return;
    const std::string names = std::string(room_->folder) + " may not include " + path;
    if (target->torch && !above_line_) {
      add(names + ": it is above the LibTorch line");
    } else if (!is_test_ && target->level >= room_->level) {
      // Tests link what they like below the line (generators of props/, for one), so only the line binds
      // them.
      add(names + ": the include order runs the other way");
    }
  }

  static bool line_has(std::string_view line, std::string_view mark) {
    const size_t at = line.find(mark);
    return at != std::string_view::npos &&
           line.find_first_not_of(' ', at + mark.size()) != std::string_view::npos;
  }

  static bool file_has(std::string_view content, std::string_view mark) {
    const size_t at = content.find(mark);
    if (at == std::string_view::npos) return false;
    return line_has(content.substr(at, content.find('\n', at) - at), mark);
  }

  void add(std::string what) { findings_.push_back({std::string(file_), line_, std::move(what)}); }

  std::string_view file_;
  const Room* room_;
  bool is_test_;
  bool above_line_ = false;
  bool may_print_ = false;
  bool deterministic_ = false;
  bool no_clock_ = false;
  bool ordered_ = false;
  int line_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> check_file(std::string_view file, std::string_view content) {
  return Checker(file).check(content);
}

std::vector<Finding> check_tree(const std::string& root, int* files) {
  namespace fs = std::filesystem;
  std::vector<std::string> paths;
  for (std::string_view top : kTops) {
    const fs::path folder = fs::path(root) / top;
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string extension = entry.path().extension().string();
      if (entry.is_regular_file() && (extension == ".h" || extension == ".cc")) {
        paths.push_back(fs::relative(entry.path(), root).generic_string());
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Finding> all;
  for (const std::string& path : paths) {
    std::ifstream in(fs::path(root) / path, std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    auto found = check_file(path, content);
    all.insert(all.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  }
  *files = static_cast<int>(paths.size());
  return all;
}

}  // namespace plumbline::tidy
