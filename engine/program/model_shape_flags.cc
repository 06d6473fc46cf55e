// A model's shape from Megatron's launch flags (megatron/training/arguments.py).
#include <algorithm>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/config/megatron_args.h"
#include "engine/program/model_shape.h"

namespace plumbline {
namespace {

class Reader {
 public:
  Reader(const LaunchScript& script, const MegatronImport& import, const std::string& name)
      : script_(script), import_(import), name_(name) {}

  Result<ModelShape> read() {
    PL_TRY(refuse_others());
    shape_ = model_shape(import_.config);
    shape_.tp = import_.tp;
    shape_.tied_twice = false;
    shape_.ends = true;
    PL_TRY(widths());
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
    if (!import_.layout.empty()) shape_.stages = import_.layout;
    PL_TRY(first_and_last());
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
    for (const char* flag :
         {"--num-experts", "--multi-latent-attention", "--mamba-num-heads", "--encoder-num-layers"})
      if (has(flag)) return refuse(flag, "such models are not estimated", ErrorCode::kUnsupported);
    if (import_.cp > 1)
      return refuse("--context-parallel-size", "is not estimated; set 1", ErrorCode::kUnsupported);
    if (!has("--num-layers") && import_.layout.empty())
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

  Status recomputation() {
    std::string granularity = word("--recompute-granularity", "");
    if (has("--recompute-activations")) granularity = "selective";
    if (!granularity.empty() && granularity != "selective" && granularity != "full")
      return refuse("--recompute-granularity", fmt::format("'{}' is not one of selective, full", granularity),
                    ErrorCode::kConfig);
    if (granularity == "selective") shape_.recompute = Recompute::kSelective;
    if (granularity != "full") return {};
    shape_.recompute = Recompute::kFull;
    const std::string method = word("--recompute-method", "");
    if (method != "uniform" && method != "block")
      return refuse("--recompute-method", fmt::format("'{}' is not one of uniform, block", method),
                    ErrorCode::kConfig);
    shape_.method = method == "block" ? RecomputeMethod::kBlock : RecomputeMethod::kUniform;
    std::int64_t layers = 1;
    PL_TRY(number("--recompute-num-layers", 1, &layers));
    shape_.recompute_layers = static_cast<int>(std::min<std::int64_t>(layers, 1 << 20));
    return {};
  }

  // Uneven first and last pipeline stages: the rest is dealt out over the others.
  Status first_and_last() {
    const char* first_flag = "--decoder-first-pipeline-num-layers";
    const char* last_flag = "--decoder-last-pipeline-num-layers";
    if (!has(first_flag) && !has(last_flag)) return {};
    const int ranks = import_.config.parallel.pp;
    const int chunks = import_.config.schedule.chunks;
    std::int64_t first = 0, last = 0;
    PL_TRY(number(first_flag, 1, &first));
    PL_TRY(number(last_flag, 1, &last));
    std::int64_t left = import_.config.model.layers;
    int others = ranks;
    if (has(first_flag)) left -= first, --others;
    if (has(last_flag)) left -= last, --others;
    const bool fits = left >= 0 && (others > 0 ? left % (std::int64_t{others} * chunks) == 0 : left == 0) &&
                      (!has(first_flag) || first % chunks == 0) && (!has(last_flag) || last % chunks == 0);
    if (!fits)
      return refuse(has(first_flag) ? first_flag : last_flag,
                    fmt::format("leaves {} layers for {} ranks of {} chunks", left, others, chunks),
                    ErrorCode::kConfig);
    for (int stage = 0; stage < ranks * chunks; ++stage) {
      const int rank = stage % ranks;
      std::int64_t layers = others > 0 ? left / (std::int64_t{others} * chunks) : 0;
      if (rank == 0 && has(first_flag)) layers = first / chunks;
      if (rank == ranks - 1 && has(last_flag)) layers = last / chunks;
      shape_.stages[static_cast<std::size_t>(stage)].layers = static_cast<int>(layers);
    }
    return {};
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
