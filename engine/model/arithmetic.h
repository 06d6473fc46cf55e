// Who computes the operations of a stage (ops.h). Every operation takes fp32, fp16 or bf16, computes in fp32 and rounds
// to the run's precision where it says so; there are two ways of doing that.
//
//   engine    this project's loops (kernels.h) around LibTorch's matrix product. One thread, many threads and any
//             LibTorch give the same bits. For tensors in host memory only; what runs use if nobody says otherwise.
//   libtorch  LibTorch's operators: on a GPU with tensor cores in 16 bits, on the CPU by way of fp32, which means the
//             same. Its sums have another order, so results are close to the engine's (engine/runtime/tolerance.h).
//
// What a function takes and returns between the two roundings is an *operand*: fp32 of values that are already rounded
// for the engine, the tensor itself for LibTorch. operand() makes one of a tensor in the run's precision, stored() the
// reverse. No function makes the host wait for a device, and none reads a tensor's values on the host.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace plumbline {

class Arithmetic {
 public:
  virtual ~Arithmetic() = default;

  virtual at::Tensor operand(const at::Tensor& tensor) const = 0;
  virtual at::Tensor stored(const at::Tensor& operand, at::ScalarType type) const = 0;

  // Products; those of layers are rounded when they are stored.
  // round(x @ weight^T + bias), bias may be undefined: x [..., in] -> [..., out].
  virtual at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            at::ScalarType type) const = 0;
  virtual at::Tensor product(const at::Tensor& a, const at::Tensor& b) const = 0;             // a b
  virtual at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b) const = 0;  // a^T b
  virtual at::Tensor column_sums(const at::Tensor& rows) const = 0;  // of [rows, columns]

  virtual at::Tensor add(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) const = 0;
  virtual at::Tensor gelu(const at::Tensor& x, at::ScalarType type) const = 0;
  virtual at::Tensor gelu_grad(const at::Tensor& x, const at::Tensor& gradient,
                               at::ScalarType type) const = 0;

  struct Normed {
    at::Tensor out, mean, rstd;  // moments are fp32, one a row
  };
  struct NormGradient {
    at::Tensor x, weight, bias;
  };
  virtual Normed layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const = 0;
  virtual NormGradient layer_norm_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& mean,
                                       const at::Tensor& rstd, const at::Tensor& gradient) const = 0;

  // As ops.h has it; probabilities [batch, heads, length, length], zero above the diagonal, in the run's precision.
  struct Attended {
    at::Tensor out, probabilities;
  };
  virtual Attended attention(const at::Tensor& qkv, std::int64_t heads) const = 0;
  virtual at::Tensor attention_grad(const at::Tensor& qkv, const at::Tensor& probabilities,
                                    const at::Tensor& gradient, std::int64_t heads) const = 0;

  virtual at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table,
                               const at::Tensor& positions) const = 0;
  // The rows of a gradient [batch, length, hidden] added up by token, or by place in the sequence: [count, hidden].
  virtual at::Tensor sums_by_token(const at::Tensor& tokens, const at::Tensor& gradient,
                                   std::int64_t count) const = 0;
  virtual at::Tensor sums_by_place(const at::Tensor& gradient, std::int64_t count) const = 0;

  // fp32 scalar, and its gradient times `scale`, an fp32 scalar.
  virtual at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) const = 0;
  virtual at::Tensor cross_entropy_grad(const at::Tensor& logits, const at::Tensor& targets,
                                        const at::Tensor& scale) const = 0;
};

const Arithmetic& engine_arithmetic();
const Arithmetic& libtorch_arithmetic();

// LibTorch's for tensors that are not in host memory, else what use_libtorch_arithmetic() said last; the engine's if
// nothing did. Process-wide: set it before stages run.
const Arithmetic& arithmetic_for(const at::Tensor& tensor);
void use_libtorch_arithmetic(bool on);

}  // namespace plumbline
