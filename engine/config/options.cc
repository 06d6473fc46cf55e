#include "engine/config/options.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "engine/base/text.h"

namespace plumbline {
namespace {

bool same_letter(char a, char b) { return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_')); }

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_letter);
}

std::string suggestion(std::string_view text, const std::vector<std::string>& candidates) {
  const std::string near = nearest(text, candidates);
  return near.empty() ? std::string() : fmt::format(" — did you mean '{}'?", near);
}

// "--layers" is far from "--num-layers" by edit distance and still plainly meant.
std::string flag_containing(std::string_view flag, const std::vector<std::string>& flags) {
  const std::string_view word = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  if (word.size() < 4) return {};
  for (const std::string& candidate : flags) {
    const auto at = std::search(candidate.begin(), candidate.end(), word.begin(), word.end(), same_letter);
    if (at != candidate.end()) return candidate;
  }
  return {};
}

// Flags that a Megatron launch script may hold and that plumbline spells differently or leaves out.
struct Foreign {
  std::string_view flag;
  std::string_view advice;
};
constexpr std::array<Foreign, 26> kForeign{{
    {"--num-layers-per-virtual-pipeline-stage",
     "give the number of chunks instead: --num-virtual-stages-per-pipeline-rank = layers / (pp * this)"},
    {"--warmup", "give --lr-warmup-fraction instead"},
    {"--ddp-num-buckets", "give --ddp-bucket-size, in elements, instead"},
    {"--overlap-param-gather-with-optimizer-step",
     "gathers overlap with the next step's begin: --overlap-param-gather"},
    {"--num-distributed-optimizer-instances", "states are sharded over all replicas; remove the flag"},
    {"--ddp-average-in-collective", "the loss is divided before the backward; remove the flag"},
    {"--accumulate-allreduce-grads-in-fp32", "gradients always are added up in fp32; remove the flag"},
    {"--grad-reduce-in-bf16", "gradients are reduced in fp32; remove the flag"},
    {"--main-grads-dtype", "main gradients are fp32; remove the flag"},
    {"--use-torch-optimizer-for-cpu-offload", "both devices run one update rule; remove the flag"},
    {"--overlap-cpu-optimizer-d2h-h2d", "copies and updates of the CPU part run one by one; remove the flag"},
    {"--optimizer-cuda-graph", "the optimizer is launched kernel by kernel; remove the flag"},
    {"--apply-wd-to-qk-layernorm", "no model here normalizes queries and keys; remove the flag"},
    {"--no-weight-decay-cond-type", "tensors of one dimension have no weight decay; remove the flag"},
    {"--use-megatron-fsdp", "give --use-distributed-optimizer instead"},
    {"--use-torch-fsdp2", "give --use-distributed-optimizer instead"},
    {"--save-retain-interval", "give the number of checkpoints to keep instead: --ckpt-keep-last"},
    {"--use-dist-ckpt", "any layout loads what any layout saved; remove the flag"},
    {"--dist-ckpt-format", "--save writes plumbline's own format; remove the flag"},
    {"--dist-ckpt-strictness", "a key that is missing or not asked for is an error; remove the flag"},
    {"--ckpt-fully-parallel-save", "every rank writes what it answers for; remove the flag"},
    {"--no-ckpt-fully-parallel-save", "every rank writes what it answers for; remove the flag"},
    {"--ckpt-assume-constant-structure", "every save is checked; remove the flag"},
    {"--exit-duration-in-mins", "give --exit-interval instead, in iterations"},
    {"--override-ckpt-iteration", "--finetune starts at iteration 0; there is nothing else to override"},
    {"--check-for-large-grads", "see --clip-grad and the norm in the record; remove the flag"},
}};

}  // namespace

std::string Option::environment() const {
  std::string out = "PLUMBLINE_" + section + "_" + key;
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

const std::vector<Option>& options() {
  static const std::vector<Option> table = detail::make_options();
  return table;
}

const std::vector<SwitchFlag>& switch_flags() {
  static const std::vector<SwitchFlag> table = detail::make_switch_flags();
  return table;
}

std::vector<std::string> option_sections() {
  std::vector<std::string> out;
  for (const Option& option : options()) {
    if (out.empty() || out.back() != option.section) out.push_back(option.section);
  }
  return out;
}

const Option* find_option(std::string_view name) {
  for (const Option& option : options()) {
    if (same(name, option.name())) return &option;
  }
  return nullptr;
}

const Option* find_option_by_flag(std::string_view flag) {
  for (const Option& option : options()) {
    for (const std::string& spelling : option.flags) {
      if (same(flag, spelling)) return &option;
    }
  }
  return nullptr;
}

const SwitchFlag* find_switch_flag(std::string_view flag) {
  for (const SwitchFlag& entry : switch_flags()) {
    if (same(flag, entry.flag)) return &entry;
  }
  return nullptr;
}

std::vector<std::string> all_flags() {
  std::vector<std::string> out{"--config", "--set"};
  for (const Option& option : options()) {
    for (const std::string& flag : option.flags) {
      out.push_back(flag);
      if (option.type == OptionType::kSwitch) out.push_back("--no" + flag.substr(1));
    }
  }
  for (const SwitchFlag& entry : switch_flags()) out.push_back(entry.flag);
  return out;
}

std::string unknown_section(std::string_view section) {
  const std::vector<std::string> sections = option_sections();
  const std::string near = suggestion(section, sections);
  return fmt::format("unknown section [{}]{}", section,
                     near.empty() ? fmt::format("; the sections are {}", fmt::join(sections, ", ")) : near);
}

std::string unknown_option(std::string_view section, std::string_view key) {
  std::vector<std::string> keys;
  std::vector<std::string> elsewhere;
  for (const Option& option : options()) {
    if (option.section == section) keys.push_back(option.key);
    if (option.key == key) elsewhere.push_back(option.name());
  }
  if (keys.empty()) return unknown_section(section);
  const std::string text = fmt::format("unknown option {}.{}", section, key);
  if (!elsewhere.empty()) return fmt::format("{} — did you mean '{}'?", text, elsewhere.front());
  const std::string near = nearest(key, keys);
  if (!near.empty()) return fmt::format("{} — did you mean '{}.{}'?", text, section, near);
  return fmt::format("{}; [{}] has {}", text, section, fmt::join(keys, ", "));
}

std::string unknown_flag(std::string_view flag) {
  for (const Foreign& foreign : kForeign) {
    if (same(flag, foreign.flag))
      return fmt::format("{} is a Megatron flag without a meaning here — {}", flag, foreign.advice);
  }
  const std::vector<std::string> flags = all_flags();
  std::string near = nearest(flag, flags);
  if (near.empty()) near = flag_containing(flag, flags);
  return fmt::format(
      "unknown flag {} — {}", flag,
      near.empty() ? "'plumbline help config' lists all flags" : fmt::format("did you mean '{}'?", near));
}

}  // namespace plumbline
