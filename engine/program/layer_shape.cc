// Activation memory of a transformer layer: Korthikanti et al. 2022 (arXiv 2205.05198), section 4, in 2-byte
// elements:
//
//   s b h (10 + 24/t + 5 a s / (h t))    tensor parallel of size t
//   s b h / t (34 + 5 a s / h)           and sequence parallel
//
// taken apart, so that widths other than h and 4h have their own terms, with s the tokens of one context-parallel
// rank. With 4-byte elements all of it doubles, mask bytes included. Latent attention and experts: docs/estimate.md.
#include "engine/program/layer_shape.h"

namespace plumbline::detail {
namespace {

// Half bytes would be lost in integers, so everything below is in bytes of 2-byte elements, scaled once.
Bytes scaled(const ModelShape& shape, Bytes two_byte) { return two_byte * shape.element() / 2; }

Bytes tokens_of(const ModelShape& shape) { return shape.tokens() * shape.micro; }

// What every rank of a tensor-parallel group holds in full unless the sequence is cut.
Bytes unless_cut(const ModelShape& shape, Bytes bytes) {
  return shape.sequence_parallel ? bytes / shape.tp : bytes;
}

std::int64_t query_head(const ModelShape& shape) { return shape.qk_head + shape.qk_rope; }

// Queries and keys, values and the attention's output; the latent ones and what their norms make of them.
Bytes attention_bytes(const ModelShape& shape) {
  const Bytes sb = tokens_of(shape);
  if (!shape.latent()) return sb * (2 * shape.query + 4 * shape.kv + 2 * shape.query) / shape.tp;
  const Bytes heads = shape.heads * (2 * query_head(shape) + 2 * shape.v_head);
  const Bytes latents = 2 * shape.q_rank + 2 * shape.kv_rank + shape.qk_rope;
  return sb * 2 * heads / shape.tp + unless_cut(shape, sb * 2 * latents);
}

// The first matrix's output, and the activation of it.
Bytes feed_forward_bytes(const ModelShape& shape, std::int64_t width) {
  return 2 * width * (shape.gated ? 2 : 1) + 2 * width;
}

// Tokens that are routed here, if all experts get equally many: `topk` copies of the own ones; and the router's fp32
// scores and probabilities. Experts that are split over ranks gather their tokens.
Bytes experts_bytes(const ModelShape& shape) {
  const Bytes sb = tokens_of(shape);
  const Bytes copies = sb * shape.topk / shape.tp * shape.etp;
  const Bytes each = 2 * shape.hidden + feed_forward_bytes(shape, shape.expert_ffn) / shape.etp;
  const Bytes router =
      unless_cut(shape, 8 * sb * shape.experts) * 2 / shape.element();  // fp32 whatever the model is
  return copies * each + router + sb * feed_forward_bytes(shape, shape.shared_ffn) / shape.tp;
}

class Tensors {
 public:
  Tensors(const ModelShape& shape, std::vector<ParamSize>& out) : shape_(shape), out_(out) {}
  void norm(std::int64_t width) {
    out_.push_back({width, false});
    if (shape_.norm_bias) out_.push_back({width, false});
  }
  void matrix(std::int64_t weight) { out_.push_back({weight, false}); }
  void linear(std::int64_t weight, std::int64_t bias) {
    matrix(weight);
    if (shape_.bias) matrix(bias);
  }

 private:
  const ModelShape& shape_;
  std::vector<ParamSize>& out_;
};

// Down-projections lie whole on every tensor-parallel rank, up-projections by head (multi_latent_attention.py); none
// of them has a bias.
void add_latent_attention(const ModelShape& shape, Tensors& tensors) {
  const std::int64_t h = shape.hidden, heads = shape.heads / shape.tp;
  if (shape.q_rank > 0) {
    tensors.matrix(h * shape.q_rank);
    tensors.matrix(shape.q_rank * heads * query_head(shape));
  } else {
    tensors.matrix(h * heads * query_head(shape));
  }
  tensors.matrix(h * (shape.kv_rank + shape.qk_rope));
  tensors.matrix(shape.kv_rank * heads * (shape.qk_head + shape.v_head));
  if (shape.q_rank > 0) tensors.norm(shape.q_rank);
  tensors.norm(shape.kv_rank);
  tensors.linear(heads * shape.v_head * h, h);
}

}  // namespace

Bytes scores_bytes(const ModelShape& shape) {
  if (shape.flash) return 0;
  return scaled(shape, 5 * shape.heads * shape.tokens() * shape.seq * shape.micro / shape.tp);
}

Bytes layer_bytes(const ModelShape& shape, bool experts) {
  // Both norms' inputs, the inputs of attention and feed-forward, both dropout masks.
  const Bytes around = unless_cut(shape, 10 * tokens_of(shape) * shape.hidden);
  const Bytes inside =
      experts ? experts_bytes(shape) : tokens_of(shape) * feed_forward_bytes(shape, shape.ffn) / shape.tp;
  return scaled(shape, around + attention_bytes(shape) + inside) + scores_bytes(shape);
}

double scores_share(const ModelShape& shape, bool experts) {
  const double h = static_cast<double>(shape.hidden), a = static_cast<double>(shape.heads);
  const double gates = shape.gated ? 3 : 2;
  const double width = experts ? static_cast<double>(shape.topk * shape.expert_ffn + shape.shared_ffn)
                               : static_cast<double>(shape.ffn);
  double weights = h * width * gates;
  double rows = 2 * static_cast<double>(shape.query);  // of scores and of values, a token and a key
  if (shape.latent()) {
    ModelShape whole = shape;
    whole.tp = 1;
    whole.bias = whole.norm_bias = false;
    std::vector<ParamSize> attention;
    Tensors tensors(whole, attention);
    add_latent_attention(whole, tensors);
    for (const ParamSize& tensor : attention) weights += static_cast<double>(tensor.numel);
    rows = a * static_cast<double>(query_head(shape) + shape.v_head);
  } else {
    weights += h * static_cast<double>(2 * shape.query + 2 * shape.kv);
  }
  const double core = static_cast<double>(shape.seq) * rows;
  return core / (core + weights);
}

void add_layer(const ModelShape& shape, bool experts, std::vector<ParamSize>& out) {
  Tensors tensors(shape, out);
  const std::int64_t h = shape.hidden, t = shape.tp;
  const auto feed_forward = [&](std::int64_t width) {
    const std::int64_t first = width * (shape.gated ? 2 : 1) / t;
    tensors.linear(first * h, first);
    tensors.linear(width / t * h, h);
  };
  tensors.norm(h);
  if (shape.latent()) {
    add_latent_attention(shape, tensors);
  } else {
    const std::int64_t qkv = (shape.query + 2 * shape.kv) / t;
    tensors.linear(qkv * h, qkv);
    tensors.linear(shape.query / t * h, h);
  }
  tensors.norm(h);
  if (!experts) return feed_forward(shape.ffn);
  tensors.matrix(shape.experts * h);  // the router
  if (shape.shared_ffn > 0) feed_forward(shape.shared_ffn);
}

void add_experts(const ModelShape& shape, std::vector<ParamSize>& out) {
  Tensors tensors(shape, out);
  const std::int64_t first = shape.expert_ffn * (shape.gated ? 2 : 1) / shape.etp;
  for (std::int64_t expert = 0; expert < shape.experts / shape.ep; ++expert) {
    tensors.linear(first * shape.hidden, first);
    tensors.linear(shape.expert_ffn / shape.etp * shape.hidden, shape.hidden);
  }
}

}  // namespace plumbline::detail
