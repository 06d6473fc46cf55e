#include "engine/config/launch_script.h"

#include <cctype>

#include <fmt/format.h>

namespace plumbline {
namespace {

bool name_char(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

// A word with what is needed to tell an assignment from a flag.
struct RawWord {
  std::string text;
  bool quoted = false;  // begins inside quotes: no assignment, no split of what a variable holds
  int line = 0;
};

class Shell {
 public:
  Shell(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Result<std::vector<ScriptWord>> read() {
    while (at_ < text_.size()) PL_TRY(step());
    if (!array_.empty()) return refuse(array_line_, "this parenthesis is not closed");
    return std::move(out_);
  }

  std::map<std::string, std::string> variables() const {
    std::map<std::string, std::string> out;
    for (const auto& [name, words] : variables_) {
      std::string& text = out[name];
      for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    }
    return out;
  }

 private:
  static constexpr std::size_t kMostWords = 1'000'000;

  tl::unexpected<Error> refuse(int line, std::string message) const {
    return fail(ErrorCode::kParse, std::move(message), Where{name_, line, 0});
  }
  bool looking_at(char c) const { return at_ < text_.size() && text_[at_] == c; }

  Status step() {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
    } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
      ++line_;
      at_ += 2;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';' || c == '&' || c == '|') {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ')') {
      array_.clear();
      ++at_;
    } else {
      return word();
    }
    return {};
  }

  Status word() {
    RawWord word;
    word.line = line_;
    const std::string name = assigned_name();
    if (!name.empty() && array_.empty()) {
      const bool more = text_[at_] == '+';
      at_ += more ? 2 : 1;
      if (looking_at('(')) {
        ++at_;
        array_ = name;
        array_line_ = line_;
        if (!more) variables_[name].clear();
        return {};
      }
      PL_TRY(read_word(word));  // may use the variable's value so far
      std::vector<std::string>& value = variables_[name];
      if (!more) value.clear();
      if (more && !value.empty()) {
        value.back() += word.text;
      } else {
        for (std::string& part : parts_of(word)) value.push_back(std::move(part));
      }
      return {};
    }
    PL_TRY(read_word(word));
    for (std::string& part : parts_of(word)) {
      if (out_.size() > kMostWords) return refuse(word.line, fmt::format("more than {} words", kMostWords));
      if (array_.empty()) {
        out_.push_back(ScriptWord{std::move(part), word.line});
      } else {
        variables_[array_].push_back(std::move(part));
      }
    }
    return {};
  }

  // NAME of NAME=... or NAME+=... that begins here; `at_` then stands on the operator.
  std::string assigned_name() {
    std::size_t end = at_;
    if (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) return {};
    while (end < text_.size() && name_char(text_[end])) ++end;
    if (end == at_ || end == text_.size()) return {};
    const bool plus = text_[end] == '+' && end + 1 < text_.size() && text_[end + 1] == '=';
    if (text_[end] != '=' && !plus) return {};
    std::string name(text_.substr(at_, end - at_));
    at_ = end;
    return name;
  }

  Status read_word(RawWord& word) {
    const int begin = line_;
    char quote = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (quote == 0 &&
          (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';' || c == ')' || c == '|' || c == '&'))
        return {};
      if (c == '\n') ++line_;
      if (c == quote) {
        quote = 0;
      } else if (quote == 0 && (c == '"' || c == '\'')) {
        quote = c;
        word.quoted = true;
      } else if (c == '\\' && quote != '\'' && at_ + 1 < text_.size()) {
        ++at_;
        if (text_[at_] == '\n') {
          ++line_;
          if (quote == 0) {
            ++at_;
            return {};
          }
        } else {
          word.text += text_[at_];
        }
      } else if (c == '$' && quote != '\'') {
        variable(word);
      } else {
        word.text += c;
      }
      if (word.text.size() > kMostWords) return refuse(begin, "a word of more than a million letters");
    }
    if (quote != 0) return refuse(begin, fmt::format("a quote {} is not closed", quote));
    return {};
  }

  // `at_` stands on '$'; leaves it on the last character that was taken.
  void variable(RawWord& word) {
    const std::size_t begin = at_;
    if (at_ + 1 < text_.size() && text_[at_ + 1] == '{') {
      const std::size_t end = text_.find('}', at_);
      if (end == std::string_view::npos) {
        word.text += '$';
        return;
      }
      std::string_view inside = text_.substr(at_ + 2, end - at_ - 2);
      const std::size_t name_end = std::min(inside.find_first_of(":-["), inside.size());
      const std::string name(inside.substr(0, name_end));
      const std::size_t fallback = inside.find('-', name_end);
      at_ = end;
      if (insert(name, word)) return;
      if (fallback != std::string_view::npos) {
        word.text += inside.substr(fallback + 1);
      } else if (variables_.count(name) == 0) {
        word.text += text_.substr(begin, end + 1 - begin);
      }
      return;
    }
    std::size_t end = at_ + 1;
    while (end < text_.size() && name_char(text_[end])) ++end;
    if (end < text_.size() && end == at_ + 1 && text_[end] == '(') {
      end = std::min(text_.find(')', end), text_.size() - 1) + 1;
    }
    const std::string name(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end - 1;
    if (!insert(name, word) && variables_.count(name) == 0) word.text += text_.substr(begin, end - begin);
  }

  // False: nothing is known of it. Words of an array stay apart: kept as blanks, which parts_of() splits.
  bool insert(const std::string& name, RawWord& word) {
    const auto known = variables_.find(name);
    if (known == variables_.end() || known->second.empty()) return false;
    bool first = true;
    for (const std::string& value : known->second) {
      if (word.text.size() > kMostWords) break;
      word.text += first ? value : " " + value;
      first = false;
    }
    spread_ = spread_ || known->second.size() > 1 || !word.quoted;
    return true;
  }

  std::vector<std::string> parts_of(const RawWord& word) {
    const bool split = spread_;
    spread_ = false;
    if (!split) return {word.text};
    std::vector<std::string> out;
    for (std::size_t at = 0; at < word.text.size();) {
      const std::size_t begin = word.text.find_first_not_of(" \t\n", at);
      if (begin == std::string::npos) break;
      const std::size_t end = std::min(word.text.find_first_of(" \t\n", begin), word.text.size());
      out.push_back(word.text.substr(begin, end - begin));
      at = end;
    }
    return out;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::string array_;  // being filled
  int array_line_ = 0;
  bool spread_ = false;
  std::map<std::string, std::vector<std::string>> variables_;
  std::vector<ScriptWord> out_;
};

bool is_flag(const std::string& word) { return word.size() > 2 && word[0] == '-' && word[1] == '-'; }

Result<LaunchScript> flags_of(const std::vector<ScriptWord>& words, const std::string& name) {
  LaunchScript script;
  for (const ScriptWord& word : words) {
    if (is_flag(word.text)) {
      const std::size_t equals = word.text.find('=');
      script.flags.push_back(LaunchFlag{word.text.substr(0, equals), {}, word.line});
      if (equals != std::string::npos) script.flags.back().values.push_back(word.text.substr(equals + 1));
    } else if (!script.flags.empty()) {
      script.flags.back().values.push_back(word.text);
    }
  }
  if (script.flags.empty())
    return fail(ErrorCode::kParse, "no flag in it; give a launch script, or flags behind '--'",
                Where{name, 0, 0});
  return script;
}

}  // namespace

const LaunchFlag* LaunchScript::find(std::string_view name) const {
  for (auto flag = flags.rbegin(); flag != flags.rend(); ++flag)
    if (flag->name == name) return &*flag;
  return nullptr;
}

Result<LaunchScript> read_launch_script(std::string_view text, const std::string& name) {
  Shell shell(text, name);
  const Result<std::vector<ScriptWord>> words = shell.read();
  if (!words) return tl::unexpected(words.error());
  Result<LaunchScript> script = flags_of(*words, name);
  if (script) script->variables = shell.variables();
  return script;
}

Result<LaunchScript> read_launch_words(const std::vector<std::string>& words) {
  std::vector<ScriptWord> script;
  for (const std::string& word : words) script.push_back(ScriptWord{word, 0});
  return flags_of(script, "");
}

}  // namespace plumbline
