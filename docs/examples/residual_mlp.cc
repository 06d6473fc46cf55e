#include "engine/model/init.h"
#include "engine/model/ops.h"
#include "engine/model/precision.h"

namespace plumbline {
namespace {

// Every stage adds one MLP of the current byte's vector; the last one predicts the next byte.
class ResidualMlp : public Stage {
 public:
  explicit ResidualMlp(const StageSpec& spec) : spec_(spec) {
    const std::int64_t h = spec.config->model.hidden, f = spec.config->model.ffn_hidden,
                       v = spec.config->model.vocab;
    const std::string at = "mlp." + std::to_string(spec.stage) + ".";
    if (spec.first()) p_.push_back(normal_parameter(spec, "bytes", {v, h}, 1.0));
    if (spec.first())
      p_.push_back(constant_parameter(spec, "places", {spec.config->model.seq_length, h}, 0.0));
    p_.push_back(normal_parameter(spec, at + "in", {f, h}, 0.1));
    p_.push_back(constant_parameter(spec, at + "in.bias", {f}, 0.0));
    p_.push_back(normal_parameter(spec, at + "out", {h, f}, 0.02));
    p_.push_back(constant_parameter(spec, at + "out.bias", {h}, 0.0));
    if (spec.last()) p_.push_back(normal_parameter(spec, "head", {v, h}, 0.02));
  }
  std::vector<StageParameter>& parameters() override { return p_; }
  at::Tensor forward(const at::Tensor& input, const Batch& batch) override {
    const std::size_t i = spec_.first() ? 2 : 0;
    at::Tensor x = spec_.first() ? ops::embedding(batch.tokens, p_[0].value, p_[1].value) : input;
    x = ops::linear_add(ops::linear_gelu(x, p_[i].value, p_[i + 1].value), p_[i + 2].value, p_[i + 3].value,
                        x);
    return spec_.last() ? ops::cross_entropy(ops::linear(x, p_[i + 4].value), batch.targets) : x;
  }

 private:
  StageSpec spec_;
  std::vector<StageParameter> p_;
};

const RegisterModel kModel({"residual-mlp", "one MLP a stage, no attention",
                            [](const StageSpec& spec) -> std::unique_ptr<Stage> {
                              return std::make_unique<ResidualMlp>(spec);
                            },
                            [](const RunConfig& config) { return sizes_by_making<ResidualMlp>(config); }});

}  // namespace
}  // namespace plumbline
