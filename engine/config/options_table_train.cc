// The rows of [model], [train], [optimizer] and [loss_scale].
#include "engine/config/option_row.h"

namespace plumbline::detail {
namespace {

using namespace option_text;  // NOLINT: the table is made of these names

using Rows = std::vector<Option>;

Rows model_rows() {
  return {
      row<PlainText>("model", "name", PL_FIELD(model.name), {"--model"},
                     "a registered stage model; not empty"),
      row<IntegerText>("model", "layers", PL_FIELD(model.layers), {"--num-layers"},
                       "transformer layers; a multiple of pp * chunks to train"),
      row<IntegerText>("model", "hidden", PL_FIELD(model.hidden), {"--hidden-size"},
                       "a multiple of heads to train"),
      row<IntegerText>("model", "heads", PL_FIELD(model.heads), {"--num-attention-heads"}, "at least 1"),
      row<IntegerText>("model", "ffn_hidden", PL_FIELD(model.ffn_hidden), {"--ffn-hidden-size"},
                       "0: 4 * hidden"),
      row<IntegerText>("model", "seq_length", PL_FIELD(model.seq_length), {"--seq-length"},
                       "tokens a sequence; at least 1"),
      row<IntegerText>("model", "vocab", PL_FIELD(model.vocab), {"--vocab-size"},
                       "at least 1; at least 256 to train gpt, whose tokens are bytes"),
      row<NumberText>("model", "init_std", PL_FIELD(model.init_std), {"--init-method-std"},
                      "standard deviation of the initial weights; not negative"),
  };
}

Rows train_rows() {
  return {
      row<SeedText>("train", "seed", PL_FIELD(train.seed), {"--seed"},
                    "decimal or 0x hexadecimal, below 2^64"),
      row<IntegerText>("train", "iterations", PL_FIELD(train.iterations), {"--train-iters"},
                       "optimizer steps, skipped ones included; at least 1"),
      row<IntegerText>("train", "micro_batch_size", PL_FIELD(train.micro_batch_size), {"--micro-batch-size"},
                       "sequences a microbatch; at least 1"),
      row<IntegerText>("train", "eval_interval", PL_FIELD(train.eval_interval), {"--eval-interval"},
                       "steps between evaluations; 0: only at the end"),
      row<IntegerText>("train", "eval_iterations", PL_FIELD(train.eval_iterations), {"--eval-iters"},
                       "forward-only steps of an evaluation; 0: none"),
      row<PlainText>("train", "data", PL_FIELD(train.data), {"--data", "--data-path"},
                     "file or directory of the training text; empty: the text that comes with plumbline"),
      choice<Precision>("train", "precision", PL_FIELD(train.precision), {"--precision"},
                        "type of parameters and activations; main parameters are fp32"),
  };
}

Rows optimizer_rows() {
  return {
      row<NumberText>("optimizer", "lr", PL_FIELD(optimizer.lr), {"--lr"}, "not negative"),
      row<NumberText>("optimizer", "min_lr", PL_FIELD(optimizer.min_lr), {"--min-lr"}, "from 0 to lr"),
      choice<DecayStyle>("optimizer", "decay", PL_FIELD(optimizer.decay), {"--lr-decay-style"},
                         "how lr falls to min_lr"),
      row<IntegerText>("optimizer", "warmup_iterations", PL_FIELD(optimizer.warmup_iterations),
                       {"--lr-warmup-iters"}, "steps of linear warm-up; fewer than iterations"),
      row<NumberText>("optimizer", "beta1", PL_FIELD(optimizer.beta1), {"--adam-beta1"}, "in [0, 1)"),
      row<NumberText>("optimizer", "beta2", PL_FIELD(optimizer.beta2), {"--adam-beta2"}, "in [0, 1)"),
      row<NumberText>("optimizer", "eps", PL_FIELD(optimizer.eps), {"--adam-eps"}, "above 0"),
      row<NumberText>("optimizer", "weight_decay", PL_FIELD(optimizer.weight_decay), {"--weight-decay"},
                      "decoupled (AdamW); not negative"),
      row<NumberText>("optimizer", "clip_grad", PL_FIELD(optimizer.clip_grad), {"--clip-grad"},
                      "largest gradient norm; 0: no clipping"),
  };
}

Rows loss_scale_rows() {
  return {
      row<NumberText>("loss_scale", "constant", PL_FIELD(loss_scale.constant), {"--loss-scale"},
                      "above 0: this scale, always; 0: dynamic with fp16, none otherwise"),
      row<NumberText>("loss_scale", "initial", PL_FIELD(loss_scale.initial), {"--initial-loss-scale"},
                      "at least minimum"),
      row<NumberText>("loss_scale", "minimum", PL_FIELD(loss_scale.minimum), {"--min-loss-scale"}, "above 0"),
      row<NumberText>("loss_scale", "growth_factor", PL_FIELD(loss_scale.growth_factor),
                      {"--loss-scale-growth-factor"}, "above 1"),
      row<NumberText>("loss_scale", "backoff_factor", PL_FIELD(loss_scale.backoff_factor),
                      {"--loss-scale-backoff-factor"}, "between 0 and 1"),
      row<IntegerText>("loss_scale", "window", PL_FIELD(loss_scale.window), {"--loss-scale-window"},
                       "steps without overflow after which the scale grows; at least 1"),
      row<IntegerText>("loss_scale", "hysteresis", PL_FIELD(loss_scale.hysteresis), {"--hysteresis"},
                       "overflows before the scale falls; at least 1"),
  };
}

}  // namespace

std::vector<Option> make_model_options() {
  Rows all;
  for (Rows& part : std::vector<Rows>{model_rows(), train_rows(), optimizer_rows(), loss_scale_rows()}) {
    all.insert(all.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return all;
}

}  // namespace plumbline::detail
