// The rows of [model], [train] and [checkpoint].
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
      row<IntegerText>("model", "first_layers", PL_FIELD(model.first_layers),
                       {"--decoder-first-pipeline-num-layers"},
                       "layers of a pipeline's first rank, its chunks together; 0: as the others"),
      row<IntegerText>("model", "last_layers", PL_FIELD(model.last_layers),
                       {"--decoder-last-pipeline-num-layers"}, "the same of the last rank"),
      row<SwitchText>("model", "embedding_as_layer", PL_FIELD(model.embedding_as_layer),
                      {"--account-for-embedding-in-pipeline-split"},
                      "the embedding counts as a layer when layers are dealt out to stages"),
      row<SwitchText>("model", "loss_as_layer", PL_FIELD(model.loss_as_layer),
                      {"--account-for-loss-in-pipeline-split"}, "the same of the loss"),
      row<PlainText>(
          "model", "layout", PL_FIELD(model.layout), {"--pipeline-model-parallel-layout"},
          "what each stage holds, as Et*3|(tt|)*2,L: E embedding, t layer, L loss, | ends a stage; sets "
          "layers and chunks where these are not given; empty: layers are dealt out"),
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
      row<IntegerText>("train", "exit_interval", PL_FIELD(train.exit_interval), {"--exit-interval"},
                       "stop after an iteration that is a multiple of it; 0: run to the end"),
      row<PlainText>("train", "data", PL_FIELD(train.data), {"--data", "--data-path"},
                     "file or directory of the training text; empty: the text that comes with plumbline"),
      choice<Precision>("train", "precision", PL_FIELD(train.precision), {"--precision"},
                        "type of parameters and activations; main parameters are fp32"),
  };
}

Rows checkpoint_rows() {
  return {
      row<PlainText>("checkpoint", "save", PL_FIELD(checkpoint.save), {"--save"},
                     "directory for checkpoints; empty: none are saved"),
      row<PlainText>("checkpoint", "load", PL_FIELD(checkpoint.load), {"--load"},
                     "directory of checkpoints to go on from; without a tracker in it training starts at 0"),
      row<IntegerText>("checkpoint", "interval", PL_FIELD(checkpoint.interval),
                       {"--save-interval", "--persistent-save-interval"},
                       "iterations between checkpoints; 0: only where the run ends; needs save"),
      row<IntegerText>("checkpoint", "keep_last", PL_FIELD(checkpoint.keep_last), {"--ckpt-keep-last"},
                       "checkpoints to keep, older ones are removed after a save; 0: all"),
      choice<CheckpointFormat>(
          "checkpoint", "format", PL_FIELD(checkpoint.format), {"--ckpt-format"},
          "what save writes: plumbline's own files, which any layout loads, or torch, Megatron's "
          "mp_rank_* files; load recognizes both"),
      row<SwitchText>("checkpoint", "async_save", PL_FIELD(checkpoint.async_save), {"--async-save"},
                      "training goes on while a copy of the state is written"),
      row<SwitchText>("checkpoint", "save_optim", PL_FIELD(checkpoint.save_optim), {"--save-optim"},
                      "optimizer, loss scaler and scheduler are saved (--no-save-optim: weights alone)"),
      row<SwitchText>("checkpoint", "save_rng", PL_FIELD(checkpoint.save_rng), {"--save-rng"},
                      "random states are saved"),
      row<SwitchText>("checkpoint", "load_optim", PL_FIELD(checkpoint.load_optim), {"--load-optim"},
                      "optimizer, loss scaler and scheduler are loaded (--no-load-optim: they start anew)"),
      row<SwitchText>("checkpoint", "load_rng", PL_FIELD(checkpoint.load_rng), {"--load-rng"},
                      "random states are loaded"),
      row<SwitchText>("checkpoint", "finetune", PL_FIELD(checkpoint.finetune), {"--finetune"},
                      "load weights alone: training starts at iteration 0 with a new optimizer"),
      row<IntegerText>("checkpoint", "step", PL_FIELD(checkpoint.step), {"--ckpt-step"},
                       "iteration to load; -1: the one that the tracker names"),
      row<SwitchText>("checkpoint", "exit_on_missing", PL_FIELD(checkpoint.exit_on_missing),
                      {"--exit-on-missing-checkpoint"}, "nothing to load is an error"),
      choice<NonPersistent>(
          "checkpoint", "non_persistent", PL_FIELD(checkpoint.non_persistent), {"--non-persistent-ckpt-type"},
          "further checkpoints of which the newest alone is kept: global, in a directory of "
          "their own, or local, on each rank's machine; load looks there too"),
      row<IntegerText>("checkpoint", "non_persistent_interval", PL_FIELD(checkpoint.non_persistent_interval),
                       {"--non-persistent-save-interval"},
                       "iterations between them, where none of interval is due; 0: none; needs save"),
      row<PlainText>("checkpoint", "non_persistent_global", PL_FIELD(checkpoint.non_persistent_global),
                     {"--non-persistent-global-ckpt-dir"},
                     "directory of global ones; empty: non_persistent below save, or below load"),
      row<PlainText>("checkpoint", "non_persistent_local", PL_FIELD(checkpoint.non_persistent_local),
                     {"--non-persistent-local-ckpt-dir"},
                     "directory of local ones on each machine; every rank has one of its own in it"),
      choice<LocalAlgorithm>("checkpoint", "non_persistent_algorithm",
                             PL_FIELD(checkpoint.non_persistent_algorithm),
                             {"--non-persistent-local-ckpt-algo"},
                             "atomic: a rank writes all it holds, and loads without the others"),
  };
}

}  // namespace

std::vector<Option> make_model_options() {
  Rows all;
  for (Rows& part : std::vector<Rows>{model_rows(), train_rows(), checkpoint_rows()}) {
    all.insert(all.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return all;
}

}  // namespace plumbline::detail
