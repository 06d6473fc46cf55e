// A model's shape from Megatron's launch flags (megatron/training/arguments.py).
#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/config/megatron_args.h"
#include "engine/program/model_shape.h"

namespace plumbline {
namespace {

// Sums of lists of zeros and ones with counts: "[0]*3+[1]*58", "([1,0]*2)".
Result<std::vector<bool>> parse_layer_list(std::string_view text, std::size_t layers) {
  const auto refuse = [](const char* why) { return fail(ErrorCode::kParse, why); };
  std::string dense;
  for (const char c : text)
    if (c != ' ' && c != '(' && c != ')') dense += c;
  std::vector<bool> out;
  for (const std::string_view part : split(dense, '+')) {
    const std::size_t end = part.find(']');
    if (part.empty() || part.front() != '[' || end == std::string_view::npos)
      return refuse("is no number and no list like [0]*3+[1]*58");
    std::int64_t count = 1;
    if (end + 1 < part.size()) {
      const Result<std::int64_t> given = part[end + 1] == '*'
                                             ? parse_integer(part.substr(end + 2))
                                             : Result<std::int64_t>(fail(ErrorCode::kParse, ""));
      if (!given || *given < 0 || *given > (1 << 20)) return refuse("has a count that is none");
      count = *given;
    }
    std::vector<bool> once;
    for (const std::string_view entry : split(part.substr(1, end - 1), ',')) {
      if (entry != "0" && entry != "1") return refuse("lists something else than 0 and 1");
      once.push_back(entry == "1");
    }
    for (std::int64_t i = 0; i < count && out.size() <= layers; ++i)
      out.insert(out.end(), once.begin(), once.end());
  }
  if (out.size() != layers) return refuse("does not have an entry for each layer");
  return out;
}

class Reader {
 public:
  Reader(const LaunchScript& script, const MegatronImport& import, const std::string& name)
      : script_(script), import_(import), name_(name) {}

  Result<ModelShape> read() {
    PL_TRY(refuse_others());
    if (const auto broken = split_layers(import_.config).broken; broken)
      return fail(ErrorCode::kConfig, fmt::format("{} {} — {}", broken->option, broken->rule, broken->fix),
                  Where{name_, 0, 0});
    shape_ = model_shape(import_.config);
    shape_.tp = shape_.etp = import_.tp;
    shape_.cp = import_.cp;
    shape_.ep = import_.ep;
    shape_.tied_twice = false;
    shape_.ends = true;
    PL_TRY(widths());
    PL_TRY(context());
    PL_TRY(latent_attention());
    PL_TRY(predictions());
    PL_TRY(experts());
    PL_TRY(vocabulary());
    PL_TRY(recomputation());
    shape_.gated = has("--swiglu");
    shape_.bias = !has("--disable-bias-linear");
    shape_.norm_bias = word("--normalization", "LayerNorm") == "LayerNorm";
    shape_.tied = !has("--untie-embeddings-and-output-weights");
    shape_.flash =
        has("--use-flash-attn") || word("--transformer-impl", "transformer_engine") == "transformer_engine";
    shape_.sequence_parallel = has("--sequence-parallel") && shape_.tp > 1;
    const std::string positions = word("--position-embedding-type",
                                       has("--use-rotary-position-embeddings") ? "rope" : "learned_absolute");
    if (positions != "learned_absolute") shape_.positions = 0;
    return std::move(shape_);
  }

 private:
  bool has(std::string_view flag) const { return script_.find(flag) != nullptr; }
  std::string word(std::string_view flag, std::string_view without) const {
    const LaunchFlag* found = script_.find(flag);
    return std::string(found == nullptr || found->values.empty() ? without
                                                                 : std::string_view(found->values.front()));
  }
  tl::unexpected<Error> refuse(std::string_view flag, const std::string& problem, ErrorCode code) const {
    const LaunchFlag* found = script_.find(flag);
    return fail(code, fmt::format("{}: {}", flag, problem),
                Where{name_, found == nullptr ? 0 : found->line, 0});
  }

  // A positive number below 2^40; `without` where the flag is not given.
  Status number(std::string_view flag, std::int64_t without, std::int64_t* out) const {
    const LaunchFlag* found = script_.find(flag);
    *out = without;
    if (found == nullptr) return {};
    const std::string text = found->values.empty() ? std::string() : found->values.front();
    const Result<std::int64_t> value = parse_integer(text);
    if (!value || *value < 1 || *value > (std::int64_t{1} << 30))
      return refuse(flag, fmt::format("'{}' is no number from 1 to 2^30", text), ErrorCode::kConfig);
    *out = *value;
    return {};
  }

  Status refuse_others() const {
    for (const char* flag : {"--mamba-num-heads", "--encoder-num-layers", "--hybrid-layer-pattern"})
      if (has(flag)) return refuse(flag, "such models are not estimated", ErrorCode::kUnsupported);
    if (!has("--num-layers") && import_.config.model.layout.empty())
      return refuse("--num-layers", "is missing", ErrorCode::kConfig);
    for (const char* flag : {"--hidden-size", "--num-attention-heads", "--seq-length"})
      if (!has(flag)) return refuse(flag, "is missing", ErrorCode::kConfig);
    return {};
  }

  Status widths() {
    std::int64_t channels = 0, groups = 0;
    if (shape_.hidden % shape_.heads != 0 && !has("--kv-channels"))
      return refuse("--hidden-size",
                    fmt::format("{} is no multiple of {} heads", shape_.hidden, shape_.heads),
                    ErrorCode::kConfig);
    PL_TRY(number("--kv-channels", shape_.hidden / shape_.heads, &channels));
    PL_TRY(number("--num-query-groups", shape_.heads, &groups));
    if (!has("--group-query-attention")) groups = shape_.heads;
    // Megatron's default of SwiGLU keeps the number of parameters: two thirds, rounded to 64.
    const std::int64_t gated = (shape_.hidden * 4 * 2 / 3) / 64 * 64;
    PL_TRY(number("--ffn-hidden-size", has("--swiglu") ? gated : 4 * shape_.hidden, &shape_.ffn));
    PL_TRY(number("--max-position-embeddings", shape_.seq, &shape_.positions));
    shape_.query = shape_.heads * channels;
    shape_.kv = groups * channels;
    for (const auto& [what, value] : {std::pair{"heads", shape_.heads}, std::pair{"query groups", groups},
                                      std::pair{"the feed-forward width", shape_.ffn}})
      if (value % shape_.tp != 0)
        return refuse("--tensor-model-parallel-size",
                      fmt::format("{} does not divide {} ({})", shape_.tp, what, value), ErrorCode::kConfig);
    return {};
  }

  Status context() const {
    if (shape_.seq % shape_.cp == 0) return {};
    return refuse("--context-parallel-size",
                  fmt::format("{} does not divide {} tokens", shape_.cp, shape_.seq), ErrorCode::kConfig);
  }

  // Defaults of megatron/core/transformer/transformer_config.py; that of the latent's width is not the same in all
  // versions.
  Status latent_attention() {
    if (!has("--multi-latent-attention")) return {};
    if (has("--group-query-attention"))
      return refuse("--multi-latent-attention", "does not go with --group-query-attention",
                    ErrorCode::kConfig);
    if (has("--q-lora-rank")) PL_TRY(number("--q-lora-rank", 0, &shape_.q_rank));
    if (!has("--kv-lora-rank"))
      return refuse("--multi-latent-attention",
                    "needs --kv-lora-rank, whose default is not the same in all versions",
                    ErrorCode::kConfig);
    PL_TRY(number("--kv-lora-rank", 1, &shape_.kv_rank));
    PL_TRY(number("--qk-head-dim", 128, &shape_.qk_head));
    PL_TRY(number("--qk-pos-emb-head-dim", 64, &shape_.qk_rope));
    return number("--v-head-dim", 128, &shape_.v_head);
  }

  // Without a layout that places them they stand in the last stage.
  Status predictions() {
    std::int64_t layers = 0;
    if (!has("--mtp-num-layers") || !import_.config.model.layout.empty()) return {};
    PL_TRY(number("--mtp-num-layers", 1, &layers));
    shape_.stages.back().mtp = static_cast<int>(std::min<std::int64_t>(layers, 1 << 20));
    return {};
  }

  Status experts() {
    if (!has("--num-experts")) return {};
    std::int64_t split = shape_.tp;
    PL_TRY(number("--num-experts", 1, &shape_.experts));
    PL_TRY(number("--moe-router-topk", 2, &shape_.topk));
    PL_TRY(number("--moe-ffn-hidden-size", shape_.ffn, &shape_.expert_ffn));
    if (has("--moe-shared-expert-intermediate-size"))
      PL_TRY(number("--moe-shared-expert-intermediate-size", 1, &shape_.shared_ffn));
    PL_TRY(number("--expert-tensor-parallel-size", shape_.tp, &split));
    shape_.etp = static_cast<int>(split);
    if (shape_.topk > shape_.experts)
      return refuse("--moe-router-topk", fmt::format("{} of {} experts", shape_.topk, shape_.experts),
                    ErrorCode::kConfig);
    const std::int64_t ranks = std::int64_t{import_.config.parallel.dp} * shape_.cp * shape_.tp;
    for (const auto& [flag, value, what, of] :
         {std::tuple{"--expert-model-parallel-size", std::int64_t{shape_.ep}, "experts", shape_.experts},
          std::tuple{"--expert-tensor-parallel-size", split, "the experts' width", shape_.expert_ffn},
          std::tuple{"--expert-model-parallel-size", shape_.ep * split, "ranks (dp x cp x tp)", ranks}}) {
      if (of % value != 0)
        return refuse(flag, fmt::format("{} does not divide {} {}", value, of, what), ErrorCode::kConfig);
    }
    return expert_layers();
  }

  // Every N-th layer from the first on, or a list of zeros and ones, as "([0]*3+[1]*58)".
  Status expert_layers() {
    const std::string text = word("--moe-layer-freq", "1");
    const int layers = layers_of(shape_.stages);
    const auto wrong = [&](const std::string& why) {
      return refuse("--moe-layer-freq", fmt::format("'{}' {}", text, why), ErrorCode::kConfig);
    };
    if (const Result<std::int64_t> every = parse_integer(text); every) {
      if (*every < 1) return wrong("is below 1");
      for (int layer = 0; layer < layers; ++layer) shape_.expert_layers.push_back(layer % *every == 0);
      return {};
    }
    const Result<std::vector<bool>> listed = parse_layer_list(text, static_cast<std::size_t>(layers));
    if (!listed) return wrong(listed.error().message);
    shape_.expert_layers = *listed;
    return {};
  }

  Status vocabulary() {
    std::int64_t multiple = 128, padded = 0;
    PL_TRY(number("--make-vocab-size-divisible-by", 128, &multiple));
    PL_TRY(number("--padded-vocab-size", 1, &padded));
    if (has("--padded-vocab-size")) {
      shape_.vocab = padded;
    } else if (!has("--vocab-size")) {
      return refuse("--vocab-size", "is missing, and the tokenizer's is not known here; give it",
                    ErrorCode::kConfig);
    } else {
      multiple *= shape_.tp;
      shape_.vocab = (shape_.vocab + multiple - 1) / multiple * multiple;
    }
    if (shape_.vocab % shape_.tp != 0)
      return refuse("--padded-vocab-size", fmt::format("{} is no multiple of tp {}", shape_.vocab, shape_.tp),
                    ErrorCode::kConfig);
    return {};
  }

  // The configuration has the rest.
  Status recomputation() const {
    if (!has("--recompute-granularity") || has("--recompute-method") || shape_.recompute != Recompute::kFull)
      return {};
    return refuse("--recompute-granularity", "full needs --recompute-method, uniform or block",
                  ErrorCode::kConfig);
  }

  const LaunchScript& script_;
  const MegatronImport& import_;
  const std::string& name_;
  ModelShape shape_;
};

}  // namespace

Result<ModelShape> model_shape(const LaunchScript& script, const MegatronImport& import,
                               const std::string& name) {
  return Reader(script, import, name).read();
}

}  // namespace plumbline
