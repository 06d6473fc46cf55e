#include "engine/config/flags.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace plumbline {
namespace {

// "-" alone is a word (standard input by custom), and so is a negative number where no flag wants a value.
bool is_flag(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-' && (argument[1] < '0' || argument[1] > '9');
}

class FlagReader {
 public:
  explicit FlagReader(const std::vector<std::string>& arguments) : arguments_(arguments) {}

  Result<ParsedFlags> read() {
    while (next_ < arguments_.size()) {
      const std::string& argument = arguments_[next_++];
      if (argument == "--") {
        out_.words.insert(out_.words.end(), arguments_.begin() + static_cast<std::ptrdiff_t>(next_),
                          arguments_.end());
        break;
      }
      if (is_flag(argument)) {
        PL_TRY(read_flag(argument));
      } else {
        out_.words.push_back(argument);
      }
    }
    return std::move(out_);
  }

 private:
  Status read_flag(const std::string& argument) {
    const std::size_t equals = argument.find('=');
    flag_ = argument.substr(0, equals);
    attached_ =
        equals == std::string::npos ? std::nullopt : std::optional<std::string>(argument.substr(equals + 1));
    if (flag_ == "--set") return read_set();
    if (flag_ == "--config") return read_config();
    if (const SwitchFlag* entry = find_switch_flag(flag_)) return read_switch_flag(*entry);
    if (const Option* option = find_option_by_flag(flag_)) return read_option(*option);
    return read_negated();
  }

  Result<std::string> value(std::string_view what) {
    if (attached_) return *attached_;
    const bool none = next_ >= arguments_.size() || is_flag(arguments_[next_]);
    if (none) return fail(ErrorCode::kUsage, fmt::format("{} needs {} — write {} VALUE", flag_, what, flag_));
    return arguments_[next_++];
  }

  void add(const Option& option, std::string text, bool append, std::string origin) {
    out_.assignments.push_back(
        {&option, std::move(text), Origin{Layer::kCommandLine, std::move(origin), {}}, append});
  }

  Status read_set() {
    const Result<std::string> pair = value("section.key=value");
    if (!pair) return tl::unexpected(pair.error());
    const std::size_t equals = pair->find('=');
    const std::size_t dot = pair->find('.');
    if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
      return fail(ErrorCode::kUsage, fmt::format("--set '{}' is not of the form section.key=value", *pair));
    }
    const std::string name = pair->substr(0, equals);
    const Option* option = find_option(name);
    if (option == nullptr) {
      return fail(ErrorCode::kUsage, "--set: " + unknown_option(name.substr(0, dot), name.substr(dot + 1)));
    }
    add(*option, pair->substr(equals + 1), false, "--set " + option->name());
    return {};
  }

  Status read_config() {
    const Result<std::string> file = value("a file");
    if (!file) return tl::unexpected(file.error());
    if (!out_.file.empty())
      return fail(ErrorCode::kUsage, "--config is given twice — merge the files into one");
    out_.file = *file;
    return {};
  }

  Status read_switch_flag(const SwitchFlag& entry) {
    if (attached_)
      return fail(ErrorCode::kUsage, fmt::format("{} takes no value — write {} alone", flag_, flag_));
    add(*find_option(entry.option), entry.value, false, flag_);
    return {};
  }

  Status read_option(const Option& option) {
    if (option.type == OptionType::kSwitch) {
      add(option, attached_.value_or("true"), false, flag_);
      return {};
    }
    Result<std::string> text = value(option.rule);
    if (!text) return tl::unexpected(text.error());
    for (int more = 1; more < option.words && !attached_ && is_number(next_); ++more)
      *text += "," + arguments_[next_++];
    add(option, *text, option.repeatable(), flag_);
    return {};
  }

  // Digits alone: what may stand behind the first number of a list given as Megatron has it.
  bool is_number(std::size_t index) const {
    if (index >= arguments_.size() || arguments_[index].empty()) return false;
    return arguments_[index].find_first_not_of("0123456789") == std::string::npos;
  }

  // --no-X of a switch --X.
  Status read_negated() {
    const bool negated = flag_.size() > 5 && (flag_.substr(0, 5) == "--no-" || flag_.substr(0, 5) == "--no_");
    const Option* option = negated ? find_option_by_flag("--" + flag_.substr(5)) : nullptr;
    if (option == nullptr || option->type != OptionType::kSwitch)
      return fail(ErrorCode::kUsage, unknown_flag(flag_));
    if (attached_)
      return fail(ErrorCode::kUsage, fmt::format("{} takes no value — write {} alone", flag_, flag_));
    add(*option, "false", false, flag_);
    return {};
  }

  const std::vector<std::string>& arguments_;
  std::size_t next_ = 0;
  std::string flag_;                     // being read, without its value
  std::optional<std::string> attached_;  // the value after '='
  ParsedFlags out_;
};

}  // namespace

Result<ParsedFlags> parse_flags(const std::vector<std::string>& arguments) {
  return FlagReader(arguments).read();
}

}  // namespace plumbline
