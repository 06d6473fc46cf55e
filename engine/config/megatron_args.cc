#include "engine/config/megatron_args.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/config/explain.h"
#include "engine/config/stage_layers.h"

namespace plumbline {
namespace {

class Importer {
 public:
  Importer(const LaunchScript& script, const std::string& name) : script_(script), name_(name) {}

  Result<MegatronImport> run() {
    for (const LaunchFlag& flag : script_.flags) {
      if (&flag != script_.find(flag.name)) continue;  // a later one counts
      PL_TRY(take(flag));
    }
    PL_TRY(sizes());
    PL_TRY(chunks());
    PL_TRY(times());
    PL_TRY(calls());
    for (const Option& option : options())
      if (given_.count(option.name()) > 0) out_.options.push_back(&option);
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> refuse(const LaunchFlag& flag, const std::string& problem) const {
    return fail(ErrorCode::kConfig, fmt::format("{}: {}", flag.name, problem), Where{name_, flag.line, 0});
  }

  Status set(const LaunchFlag& flag, const Option& option, const std::string& text) {
    if (const Status stored = option.set(out_.config, text); !stored)
      return refuse(flag, fmt::format("{}; {}", stored.error().message, option.rule));
    given_.insert(option.name());
    return {};
  }
  Status set(const LaunchFlag& flag, const char* option, const std::string& text) {
    return set(flag, *find_option(option), text);
  }

  // Handled after all are known, or no business of a pipeline.
  static bool later(const std::string& flag) {
    static const std::set<std::string> names = {"--num-layers-per-virtual-pipeline-stage",
                                                "--pipeline-model-parallel-layout",
                                                "--no-overlap-p2p-communication",
                                                "--tensor-model-parallel-size",
                                                "--context-parallel-size",
                                                "--expert-model-parallel-size",
                                                "--nproc_per_node",
                                                "--nproc-per-node",
                                                "--nnodes"};
    return names.count(flag) > 0;
  }

  Status take(const LaunchFlag& flag) {
    if (later(flag.name)) return {};
    if (const SwitchFlag* entry = find_switch_flag(flag.name))
      return set(flag, *find_option(entry->option), entry->value);
    if (const Option* option = find_option_by_flag(flag.name)) {
      if (option->type == OptionType::kSwitch) return set(flag, *option, "true");
      if (flag.values.empty()) return refuse(flag, "a value is missing");
      std::string text = flag.values.front();
      const std::size_t words = static_cast<std::size_t>(std::max(option->words, 1));
      for (std::size_t i = 1; i < std::min(words, flag.values.size()); ++i) text += "," + flag.values[i];
      return set(flag, *option, text);
    }
    const bool negated = flag.name.rfind("--no-", 0) == 0;
    const Option* option = negated ? find_option_by_flag("--" + flag.name.substr(5)) : nullptr;
    if (option != nullptr && option->type == OptionType::kSwitch) return set(flag, *option, "false");
    out_.ignored.push_back(flag.name);
    return {};
  }

  Result<int> number(const char* flag, int without) const {
    const LaunchFlag* found = script_.find(flag);
    if (found == nullptr) return without;
    const Result<std::int64_t> value = found->values.empty()
                                           ? Result<std::int64_t>(fail(ErrorCode::kParse, ""))
                                           : parse_integer(found->values.front());
    if (!value || *value < 1 || *value > (1 << 20))
      return refuse(*found, fmt::format("'{}' is no positive number",
                                        found->values.empty() ? "" : found->values.front()));
    return static_cast<int>(*value);
  }

  Status sizes() {
    const Result<int> tp = number("--tensor-model-parallel-size", 1);
    if (!tp) return tl::unexpected(tp.error());
    const Result<int> cp = number("--context-parallel-size", 1);
    if (!cp) return tl::unexpected(cp.error());
    const Result<int> ep = number("--expert-model-parallel-size", 1);
    if (!ep) return tl::unexpected(ep.error());
    out_.tp = *tp, out_.cp = *cp, out_.ep = *ep;
    if (*tp * *cp * *ep > 1) {
      out_.notes.push_back(fmt::format(
          "tp {}, cp {}, ep {}: left at 1, since the pipeline's calls do not depend on them", *tp, *cp, *ep));
    }
    return world(*tp * *cp);
  }

  // Data-parallel replicas: what is left of the processes.
  Status world(int each) {
    const char* per_node =
        script_.find("--nproc-per-node") != nullptr ? "--nproc-per-node" : "--nproc_per_node";
    const LaunchFlag* flag = script_.find(per_node);
    if (flag == nullptr || given_.count("parallel.dp") > 0) return {};
    if (flag->values.empty() || !parse_integer(flag->values.front())) {
      out_.notes.push_back(fmt::format("{} is no number here; give --data-parallel-size", per_node));
      return {};
    }
    const Result<int> processes = number(per_node, 1);
    if (!processes) return tl::unexpected(processes.error());
    const LaunchFlag* nodes_flag = script_.find("--nnodes");
    const bool known =
        nodes_flag == nullptr || (!nodes_flag->values.empty() && parse_integer(nodes_flag->values.front()));
    if (!known) {
      out_.notes.push_back("--nnodes is no number here; give --data-parallel-size");
      return {};
    }
    const Result<int> nodes = number("--nnodes", 1);
    if (!nodes) return tl::unexpected(nodes.error());
    const std::int64_t ranks = std::int64_t{*processes} * *nodes;
    const std::int64_t replica = std::int64_t{each} * out_.config.parallel.pp;
    if (ranks % replica != 0) {
      return refuse(
          *flag, fmt::format("{} processes are no multiple of the {} of one replica (tp {} x cp {} x pp {})",
                             ranks, replica, out_.tp, out_.cp, out_.config.parallel.pp));
    }
    out_.notes.push_back(
        fmt::format("{} processes / {} of one replica: {} replicas", ranks, replica, ranks / replica));
    return set(*flag, "parallel.dp", std::to_string(ranks / replica));
  }

  Status chunks() {
    const int pp = out_.config.parallel.pp;
    if (const LaunchFlag* flag = script_.find("--pipeline-model-parallel-layout"); flag != nullptr) {
      if (flag->values.empty()) return refuse(*flag, "a layout is missing");
      Result<std::vector<StageLayers>> layout = parse_pipeline_layout(flag->values.front(), pp);
      if (!layout) return refuse(*flag, layout.error().message);
      const int layers = layers_of(*layout);
      const bool given = given_.count("model.layers") > 0;
      if (given && layers != out_.config.model.layers)
        return refuse(*flag, fmt::format("has {} decoder layers, --num-layers {}; they must be equal", layers,
                                         out_.config.model.layers));
      PL_TRY(set(*flag, "model.layout", flag->values.front()));
      PL_TRY(set(*flag, "model.layers", std::to_string(std::max(1, layers))));
      return set(*flag, "schedule.chunks", std::to_string(layout->size() / static_cast<std::size_t>(pp)));
    }
    const LaunchFlag* flag = script_.find("--num-layers-per-virtual-pipeline-stage");
    if (flag == nullptr) return {};
    const Result<int> each = number("--num-layers-per-virtual-pipeline-stage", 1);
    if (!each) return tl::unexpected(each.error());
    const int layers = out_.config.model.layers;
    if (layers % (pp * *each) != 0) {
      return refuse(*flag, fmt::format("{} layers are no multiple of {} ranks x {} layers a virtual stage",
                                       layers, pp, *each));
    }
    out_.notes.push_back(fmt::format("{} layers / ({} ranks x {} a virtual stage): {} chunks", layers, pp,
                                     *each, layers / (pp * *each)));
    return set(*flag, "schedule.chunks", std::to_string(layers / (pp * *each)));
  }

  // A stage's times follow its layers: a millisecond each forward, twice that backward.
  Status times() {
    if (!has_layer_split(out_.config.model)) return {};
    const std::vector<StageLayers> stages = split_layers(out_.config).stages;  // empty: validation tells why
    const bool equal = std::all_of(stages.begin(), stages.end(), [&](const StageLayers& stage) {
      return stage.layers + stage.mtp == stages.front().layers + stages.front().mtp;
    });
    if (equal || given_.count("time.forward") > 0) return {};
    const LaunchFlag& flag = script_.flags.front();
    const auto list = [&](int each) {
      std::string text;
      for (const StageLayers& stage : stages)
        text += fmt::format("{}{}us", text.empty() ? "" : ",",
                            std::max(1, each * (stage.layers + stage.mtp) * 1000));
      return text;
    };
    PL_TRY(set(flag, "time.forward", list(1)));
    PL_TRY(set(flag, "time.backward", list(2)));
    PL_TRY(set(flag, "time.input_grad", list(1)));
    PL_TRY(set(flag, "time.weight_grad", list(1)));
    out_.notes.push_back(
        "uneven layout: times of stages in proportion to their layers, 1 ms a layer forward");
    return {};
  }

  Status calls() {
    if (out_.config.schedule.chunks < 2) return {};
    const LaunchFlag* batched = script_.find("--no-overlap-p2p-communication");
    const LaunchFlag& flag = batched != nullptr ? *batched : script_.flags.front();
    if (given_.count("schedule.kind") == 0) PL_TRY(set(flag, "schedule.kind", "interleaved"));
    if (given_.count("schedule.p2p") > 0 || batched != nullptr) return {};
    out_.notes.push_back("interleaved without --no-overlap-p2p-communication: separate calls");
    return set(flag, "schedule.p2p", "separate");
  }

  const LaunchScript& script_;
  const std::string& name_;
  MegatronImport out_;
  std::set<std::string> given_;  // names
};

std::string comment_of(const std::vector<std::string>& words) {
  std::string text;
  std::string line = "#";
  for (const std::string& word : words) {
    if (line.size() + word.size() > 110) {
      text += line + "\n";
      line = "#";
    }
    line += " " + word;
  }
  return text + line + "\n";
}

}  // namespace

Result<MegatronImport> import_megatron(const LaunchScript& script, const std::string& name) {
  return Importer(script, name).run();
}

std::string megatron_import_toml(const MegatronImport& import) {
  std::string out;
  for (const std::string& note : import.notes) out += "# " + note + "\n";
  if (!import.ignored.empty()) {
    std::vector<std::string> words = {"not", "taken", "over:"};
    words.insert(words.end(), import.ignored.begin(), import.ignored.end());
    out += comment_of(words);
  }
  if (!out.empty()) out += "\n";
  return out + config_toml(import.config, import.options);
}

}  // namespace plumbline
