// The rows of [model] and [train].
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
      row<LongText>("train", "samples", PL_FIELD(train.samples), {"--train-samples"},
                    "sequences in all, from which iterations follow; 0: not given"),
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

}  // namespace

std::vector<Option> make_model_options() {
  Rows all;
  for (Rows& part : std::vector<Rows>{model_rows(), train_rows()}) {
    all.insert(all.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return all;
}

}  // namespace plumbline::detail
