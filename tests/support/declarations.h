// Which names a C++ header declares: enough of a parser for headers of this repository (no macros that declare, no
// function-try-blocks), for tests that hold tables in the documentation against the code.
//
//   declares(header, "name")                    class, enum, using, function or variable at namespace scope
//   declares(header, "Class::member")           declared in the body of that class; a forward declaration is none
//   declares(header, "function(parameter)")     some overload has a parameter of that name
//   declares(header, "Class::method -> Type")   some overload returns Type, spelled as in the header
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::test {

// Comments, strings, characters and preprocessor lines replaced by spaces; newlines stay.
inline std::string code_only(std::string_view text) {
  std::string out(text);
  const auto blank = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, out.size()); ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
  };
  bool line_start = true;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    const std::string_view rest = text.substr(i);
    if (rest.substr(0, 2) == "//" || (line_start && text[i] == '#')) {
      end = std::min(text.find('\n', i), text.size());
      blank(i, end);
    } else if (rest.substr(0, 2) == "/*") {
      const std::size_t close = text.find("*/", i + 2);
      end = close == std::string_view::npos ? text.size() : close + 2;
      blank(i, end);
    } else if (text[i] == '"' ||
               (text[i] == '\'' && (i == 0 || std::isalnum(static_cast<unsigned char>(text[i - 1])) == 0))) {
      while (end < text.size() && text[end] != text[i]) end += text[end] == '\\' ? 2u : 1u;
      ++end;
      blank(i, end);
    }
    if (text[i] == '\n') {
      line_start = true;
    } else if (std::isspace(static_cast<unsigned char>(text[i])) == 0) {
      line_start = false;
    }
    i = end;
  }
  return out;
}

struct Declaration {
  std::string name;  // "Class::member"
  bool function = false;
  std::string returns;                  // without white space and specifiers
  std::vector<std::string> parameters;  // names; unnamed ones are empty
};

class DeclarationReader {
 public:
  explicit DeclarationReader(std::string_view header) : text_(code_only(header)) {
    scope(0, text_.size(), "");
  }
  const std::vector<Declaration>& found() const { return found_; }

 private:
  static bool word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

  // Position after the bracket that closes the one at `open`.
  std::size_t after(std::size_t open) const {
    const char begin = text_[open];
    const char end = begin == '{' ? '}' : begin == '(' ? ')' : ']';
    int depth = 0;
    for (std::size_t i = open; i < text_.size(); ++i) {
      depth += text_[i] == begin ? 1 : text_[i] == end ? -1 : 0;
      if (depth == 0) return i + 1;
    }
    return text_.size();
  }

  // Declarations between two positions; `name` of the enclosing class with "::", or empty.
  void scope(std::size_t begin, std::size_t end, const std::string& name) {
    std::size_t start = begin;
    for (std::size_t i = begin; i < end;) {
      const char c = text_[i];
      if (c == '(' || c == '[') {
        i = after(i);
      } else if (c == ';') {
        statement(text_.substr(start, i - start), name);
        start = ++i;
      } else if (c == ':' && label(start, i)) {
        start = ++i;
      } else if (c == '{') {
        i = braces(start, i, name);
        if (!initializer_) start = i;
        initializer_ = false;
      } else {
        ++i;
      }
    }
  }

  bool label(std::size_t start, std::size_t colon) const {
    const std::vector<std::string> words = words_of(std::string_view(text_).substr(start, colon - start));
    return words.size() == 1 && (words[0] == "public" || words[0] == "private" || words[0] == "protected");
  }

  std::size_t braces(std::size_t start, std::size_t open, const std::string& name) {
    const std::string head = text_.substr(start, open - start);
    const std::vector<std::string> words = words_of(head);
    const std::size_t close = after(open);
    if (!words.empty() && (words[0] == "namespace" || words[0] == "extern")) {
      scope(open + 1, close - 1, name);
      return close;
    }
    const auto kind = std::find_if(words.begin(), words.end(), [](const std::string& w) {
      return w == "class" || w == "struct" || w == "enum" || w == "union";
    });
    if (kind != words.end() && top_level(head, '(') == std::string::npos) {
      auto type = kind + 1;
      if (*kind == "enum" && type != words.end() && (*type == "class" || *type == "struct")) ++type;
      if (type != words.end()) {
        found_.push_back({name + *type, false, {}, {}});
        if (*kind != "enum") scope(open + 1, close - 1, name + *type + "::");
      }
      return close;
    }
    if (top_level(head, '(') == std::string::npos || top_level(head, '=') != std::string::npos) {
      initializer_ = true;  // of a variable: the statement goes on to its ';'
      return close;
    }
    statement(head, name);  // a function with its body
    return close;
  }

  // First `wanted` outside of <>, [], {} and (); npos when there is none. `operator()` does not occur.
  static std::size_t top_level(std::string_view text, char wanted, std::size_t from = 0) {
    int angle = 0, other = 0;
    for (std::size_t i = from; i < text.size(); ++i) {
      const char c = text[i];
      if (c == wanted && angle == 0 && other == 0) return i;
      if (c == '<') ++angle;
      if (c == '>' && angle > 0) --angle;
      if (c == '(' || c == '{' || c == '[') ++other;
      if ((c == ')' || c == '}' || c == ']') && other > 0) --other;
    }
    return std::string::npos;
  }

  static std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (!word(text[i])) continue;
      if (i == 0 || !word(text[i - 1])) words.emplace_back();
      words.back() += text[i];
    }
    return words;
  }
  static std::string last_word(std::string_view text) {
    const std::vector<std::string> words = words_of(text);
    return words.empty() ? std::string() : words.back();
  }
  static std::vector<std::string> split(std::string_view text) {
    std::vector<std::string> parts;
    for (std::size_t from = 0;;) {
      const std::size_t comma = top_level(text, ',', from);
      parts.emplace_back(text.substr(from, comma == std::string::npos ? comma : comma - from));
      if (comma == std::string::npos) return parts;
      from = comma + 1;
    }
  }
  // "const std::vector<int>& values = {}" -> "values"; "int" -> "" (a lone type).
  static std::string parameter_name(std::string_view text) {
    text = text.substr(0, top_level(text, '='));
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
    const std::size_t space = text.find_last_of(" \n\t*&>");
    std::string_view tail = text.substr(space == std::string_view::npos ? text.size() : space + 1);
    if (space != std::string_view::npos && words_of(text.substr(0, space + 1)).empty()) return {};
    if (words_of(text).size() == 1) return {};
    return std::string(tail);
  }
  static std::string without_space(std::string_view text) {
    std::string out;
    std::copy_if(text.begin(), text.end(), std::back_inserter(out),
                 [](char c) { return std::isspace(static_cast<unsigned char>(c)) == 0; });
    return out;
  }

  void statement(const std::string& raw, const std::string& scope_name) {
    std::string text = raw;
    const std::vector<std::string> words = words_of(text);
    if (words.empty() || words[0] == "friend" || words[0] == "static_assert") return;
    if (words[0] == "using" || words[0] == "typedef") {
      if (text.find('=') != std::string::npos && words.size() > 1)
        found_.push_back({scope_name + words[1], false, {}, {}});
      return;
    }
    const std::size_t open = top_level(text, '(');
    const std::size_t equals = top_level(text, '=');
    if (open != std::string::npos && (equals == std::string::npos || open < equals))
      return function(text, open, scope_name);
    if ((words[0] == "class" || words[0] == "struct") && words.size() == 2) return;  // forward
    for (const std::string& part : split(text)) {
      std::string_view declarator = part;
      declarator = declarator.substr(0, top_level(declarator, '='));
      declarator = declarator.substr(0, top_level(declarator, '{'));
      const std::string name = last_word(declarator);
      if (!name.empty()) found_.push_back({scope_name + name, false, {}, {}});
    }
  }

  void function(std::string_view text, std::size_t open, const std::string& scope_name) {
    std::string_view before = text.substr(0, open);
    const std::string name = last_word(before);
    if (name.empty() || before.find("operator") != std::string_view::npos) return;
    const std::size_t at = before.rfind(name);
    if (at > 0 && before[at - 1] == '~') return;
    Declaration made{scope_name + name, true, {}, {}};
    std::string type(before.substr(0, at));
    for (const std::string_view specifier : {"virtual ", "static ", "inline ", "explicit ", "constexpr "}) {
      const std::size_t found = type.find(specifier);
      if (found != std::string::npos) type.erase(found, specifier.size());
    }
    made.returns = without_space(type);
    int depth = 0;
    std::size_t close = open;
    for (; close < text.size(); ++close) {
      depth += text[close] == '(' ? 1 : text[close] == ')' ? -1 : 0;
      if (depth == 0) break;
    }
    const std::string_view inside = text.substr(open + 1, close - open - 1);
    if (!without_space(inside).empty()) {
      for (const std::string& part : split(inside)) made.parameters.push_back(parameter_name(part));
    }
    found_.push_back(std::move(made));
  }

  std::string text_;
  std::vector<Declaration> found_;
  bool initializer_ = false;
};

inline bool declares(std::string_view header, std::string_view symbol) {
  std::string name(symbol), returns, parameter;
  const std::size_t arrow = symbol.find(" -> ");
  const std::size_t open = symbol.find('(');
  if (arrow != std::string_view::npos) {
    name = symbol.substr(0, arrow);
    for (const char c : symbol.substr(arrow + 4)) {
      if (c != ' ') returns += c;
    }
    if (returns.empty()) return false;
  } else if (open != std::string_view::npos) {
    if (symbol.back() != ')' || open + 2 >= symbol.size()) return false;
    name = symbol.substr(0, open);
    parameter = symbol.substr(open + 1, symbol.size() - open - 2);
  }
  const DeclarationReader reader(header);
  return std::any_of(reader.found().begin(), reader.found().end(), [&](const Declaration& d) {
    if (d.name != name) return false;
    if (!returns.empty()) return d.function && d.returns == returns;
    if (parameter.empty()) return true;
    return std::find(d.parameters.begin(), d.parameters.end(), parameter) != d.parameters.end();
  });
}

}  // namespace plumbline::test
