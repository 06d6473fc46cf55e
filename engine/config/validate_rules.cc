// Rules that relate values to each other, and the values derived from others.
#include "engine/config/validate_rules.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/config/names.h"
#include "engine/config/options.h"
#include "engine/config/stage_layers.h"

namespace plumbline::detail {
namespace {

bool is_interleaved(const RunConfig& c) {
  // A forward-only pass over several chunks walks the interleaved tables without the backwards.
  return c.schedule.kind == ScheduleKind::kInterleaved ||
         (c.schedule.kind == ScheduleKind::kForwardOnly && c.schedule.chunks > 1);
}

int round_up(int value, int step) { return (value + step - 1) / step * step; }

void check_interleaved(RuleBook& book) {
  ScheduleConfig& s = book.config.schedule;
  const int pp = book.config.parallel.pp;
  if (s.chunks < 2) {
    book.refuse("schedule.chunks", fmt::format("is too few for {}, which needs at least 2", name(s.kind)),
                "use --vp 2, or --schedule 1f1b");
  }
  if (pp < 2) {
    book.refuse("parallel.pp", fmt::format("is too few for {}, which needs at least 2 ranks", name(s.kind)),
                "use --pp 2, or --schedule 1f1b with one chunk");
  }
}

// Megatron's rules for the microbatch group: g < pp and g > m are a ValueError, 0 < m mod g < pp leaves
// bubbles in the dependencies of the last group (RuntimeError).
void check_group_size(RuleBook& book, int microbatches, const std::string& when) {
  const ScheduleConfig& s = book.config.schedule;
  const int pp = book.config.parallel.pp;
  const int g = s.group_size;
  if (g > microbatches) {
    if (g != pp) {
      return book.refuse("schedule.group_size",
                         fmt::format("must not exceed schedule.microbatches={}{}", microbatches, when),
                         fmt::format("use at least {} microbatches or a smaller group", g));
    }
    return book.refuse("schedule.microbatches",
                       fmt::format("must be at least parallel.pp={} in an interleaved schedule{}", pp, when),
                       fmt::format("use {}", pp));
  }
  if (g < pp) {
    return book.refuse("schedule.group_size", fmt::format("must be at least parallel.pp={}", pp),
                       fmt::format("use {}, or 0 for pp", pp));
  }
  const int rest = microbatches % g;
  if (rest > 0 && rest < pp) {
    book.refuse(
        "schedule.microbatches",
        fmt::format("leaves a last group of {}, fewer than parallel.pp={}, after groups of "
                    "schedule.group_size={}{}",
                    rest, pp, g, when),
        fmt::format("use {} or {}, or another group size", microbatches - rest, round_up(microbatches, g)));
  }
}

void check_group_of_2022(RuleBook& book, int microbatches, const std::string& when) {
  const ScheduleConfig& s = book.config.schedule;
  const int pp = book.config.parallel.pp;
  if (microbatches % pp != 0) {
    book.refuse("schedule.microbatches",
                fmt::format("is not a multiple of parallel.pp={} (interleaved-2022){}", pp, when),
                fmt::format("use {}, or --schedule interleaved", round_up(microbatches, pp)));
  }
  if (s.group_size != pp) {
    book.refuse("schedule.group_size",
                fmt::format("must be parallel.pp={} in interleaved-2022, which has no other", pp),
                "use 0, or --schedule interleaved");
  }
}

void check_time_lists(RuleBook& book) {
  const TimeConfig& t = book.config.time;
  const std::size_t stages = static_cast<std::size_t>(book.config.stages());
  const auto check = [&](const char* option, const std::vector<Nanoseconds>& list) {
    if (list.size() == 1 || list.size() == stages) return;
    book.refuse(option, fmt::format("has {} entries for {} stages", list.size(), stages),
                fmt::format("give 1 entry or {}", stages));
  };
  check("time.forward", t.forward);
  check("time.backward", t.backward);
  check("time.input_grad", t.input_grad);
  check("time.weight_grad", t.weight_grad);
}

void check_faults(RuleBook& book) {
  const RunConfig& c = book.config;
  if (c.faults.overflow.empty()) return;
  if (c.train.precision != Precision::kFp16 && c.loss_scale.constant <= 0.0) {
    book.refuse("faults.overflow", "needs a loss scale, and nothing checks for overflow without one",
                "add --fp16, or --loss-scale 1");
  }
  for (const OverflowFault& fault : c.faults.overflow) {
    if (fault.rank < 0 || fault.rank >= c.grid.world()) {
      book.refuse("faults.overflow",
                  fmt::format("names rank {} of a world of {}", fault.rank, c.grid.world()),
                  fmt::format("use a rank from 0 to {}", c.grid.world() - 1));
    }
    if (fault.iteration < 1 || fault.iteration > c.train.iterations) {
      book.refuse("faults.overflow",
                  fmt::format("names step {} of train.iterations={}", fault.iteration, c.train.iterations),
                  "steps count from 1");
    }
  }
}

void check_sim(RuleBook& book) {
  const SimConfig& s = book.config.sim;
  const bool eager = s.send == SendCompletion::kEager && s.eager_links == EagerLinks::kSame;
  if (eager && s.eager_bytes <= 0)
    book.refuse("sim.send", "needs a size above 0", "write eager:2MiB, or always-eager");
  if (s.ring_chunk < 8 || s.ring_chunk > (Bytes{1} << 40))
    book.refuse("sim.ring_chunk", "must be from 8 bytes to 2^40", "the default is 128KiB");
  if (s.eager_bytes > (Bytes{1} << 50))
    book.refuse("sim.send", "must be at most 2^50 bytes", "write always-eager");
}

}  // namespace

void derive_grid(RuleBook& book) {
  const ParallelConfig& p = book.config.parallel;
  const Result<RankGrid> grid = RankGrid::create({p.tp, p.cp, p.ep, p.dp, p.pp}, p.order);
  if (grid) {
    book.config.grid = *grid;
    return;
  }
  // Sizes below 1 were refused before, so that it is the order or the size of the world.
  const bool order = !RankGrid::create({}, p.order);
  book.refuse(order ? "parallel.order" : "parallel.pp",
              order ? "must name tp, cp, ep, dp and pp once each" : "makes more than 2^20 ranks",
              order ? "the default is tp-cp-ep-dp-pp" : "use fewer ranks or replicas");
}

void derive_layout(RuleBook& book) {
  RunConfig& config = book.config;
  if (config.model.layout.empty()) return;
  const auto stages = parse_pipeline_layout(config.model.layout, config.parallel.pp);
  if (!stages) return;  // check_model tells
  if (!book.origins.given("model.layers")) config.model.layers = std::max(1, layers_of(*stages));
  if (!book.origins.given("schedule.chunks"))
    config.schedule.chunks = static_cast<int>(stages->size()) / config.parallel.pp;
}

void check_schedule(RuleBook& book) {
  ScheduleConfig& s = book.config.schedule;
  const int pp = book.config.parallel.pp;
  if (!s.generator.empty()) s.kind = ScheduleKind::kGenerator;
  const bool plain = s.kind == ScheduleKind::kGpipe || s.kind == ScheduleKind::kOneFOneB;
  if (plain && s.chunks != 1) {
    book.refuse("schedule.chunks", fmt::format("must be 1 in {}", name(s.kind)),
                "use --schedule interleaved, or --vp 1");
  }
  if (s.kind == ScheduleKind::kCsv && s.csv.empty()) {
    book.refuse("schedule.csv", "must name a file when the schedule is csv", "use --schedule-csv FILE");
  }
  if (s.kind == ScheduleKind::kGenerator && s.generator.empty()) {
    book.refuse("schedule.generator", "must name a generator when the schedule is generator",
                "use --generator NAME");
  }
  if (s.group_size == 0) s.group_size = pp;
  const bool of_2022 = s.kind == ScheduleKind::kInterleaved2022;
  if (of_2022 || is_interleaved(book.config)) {
    check_interleaved(book);
    for (const auto& [iteration, microbatches] : book.microbatches) {
      // The first number that breaks the rules is told; a constant one needs no place.
      if (!book.ok()) break;
      const std::string when = book.microbatches.size() > 1 ? fmt::format(", and step {} of the run has {}",
                                                                          iteration + 1, microbatches)
                                                            : std::string();
      (of_2022 ? check_group_of_2022 : check_group_size)(book, microbatches, when);
    }
  }
  const bool keeps_handles = s.p2p == P2pStyle::kFlush || s.p2p == P2pStyle::kOverlap;
  if (keeps_handles && (of_2022 || !is_interleaved(book.config))) {
    book.refuse("schedule.p2p",
                fmt::format("may be {} in the current interleaved schedule alone, training or forward only",
                            name(s.p2p)),
                "use --p2p separate, or --schedule interleaved --vp 2");
  }
  if (s.p2p == P2pStyle::kDeferred && s.kind != ScheduleKind::kGenerator) {
    book.refuse("schedule.p2p", "may be deferred in schedules that Megatron has no calls for",
                "name the schedule by --generator, or use --p2p separate");
  }
  if (s.combined && !keeps_handles) {
    book.refuse("schedule.combined", "needs communication that runs beside computation", "add --p2p overlap");
  }
  const bool called = s.kind != ScheduleKind::kCsv &&
                      s.kind != ScheduleKind::kGenerator;  // a listed schedule has no combined calls
  if (called && s.p2p == P2pStyle::kBatched && pp == 2 && s.chunks > 1) {
    book.warn(
        "batched calls with pp = 2 and several chunks may pair the wrong messages, as both neighbours are "
        "one rank; "
        "Megatron refuses this (pp > 2 without overlap) — use --p2p separate, or let 'plumbline check' show "
        "the fault");
  }
}

void check_model(RuleBook& book) {
  ModelConfig& m = book.config.model;
  if (m.ffn_hidden == 0) m.ffn_hidden = 4 * m.hidden;
  const LayerSplit split = split_layers(book.config);
  if (split.broken) book.refuse(split.broken->option, split.broken->rule, split.broken->fix);
  if (book.purpose != Purpose::kRun) return;
  const auto predicts = [](const StageLayers& stage) { return stage.mtp > 0; };
  if (std::any_of(split.stages.begin(), split.stages.end(), predicts))
    book.refuse("model.layout", "has layers of multi-token prediction, and no model here trains them",
                "leave out 'm'", ErrorCode::kUnsupported);
  const int stages = book.config.stages();
  if (!has_layer_split(m) && m.layers % stages != 0) {
    book.refuse("model.layers",
                fmt::format("is not a multiple of the {} stages (parallel.pp={} * schedule.chunks={})",
                            stages, book.config.parallel.pp, book.config.schedule.chunks),
                fmt::format("use {}", round_up(m.layers, stages)));
  }
  if (m.hidden % m.heads != 0) {
    book.refuse("model.hidden", fmt::format("is not a multiple of model.heads={}", m.heads),
                fmt::format("use {}", round_up(m.hidden, m.heads)));
  }
  if (m.name == "gpt" && m.vocab < 256)
    book.refuse("model.vocab", "is below 256, and gpt's tokens are bytes", "use 256");
}

namespace {

// Megatron's rules and names, and what it accepts and we cannot do.
void check_non_persistent(RuleBook& book) {
  const CheckpointConfig& c = book.config.checkpoint;
  const auto only_with = [&](const char* option, bool given, NonPersistent type) {
    if (given && c.non_persistent != type)
      book.refuse(
          option,
          fmt::format("is for checkpoint.non_persistent={}, it is {}", name(type), name(c.non_persistent)),
          fmt::format("give --non-persistent-ckpt-type {}", name(type)));
  };
  only_with("checkpoint.non_persistent_global", !c.non_persistent_global.empty(), NonPersistent::kGlobal);
  only_with("checkpoint.non_persistent_local", !c.non_persistent_local.empty(), NonPersistent::kLocal);
  if (c.non_persistent_interval > 0 && c.non_persistent == NonPersistent::kNone)
    book.refuse("checkpoint.non_persistent_interval", "needs checkpoint.non_persistent",
                "give --non-persistent-ckpt-type global or local");
  if (c.non_persistent == NonPersistent::kInMemory)
    book.refuse("checkpoint.non_persistent",
                "is in_memory, and memory ends with the process that would load it (Megatron refuses it too)",
                "use local with a directory on a RAM disk, such as /dev/shm");
  if (c.non_persistent == NonPersistent::kLocal && c.non_persistent_local.empty())
    book.refuse("checkpoint.non_persistent", "is local and needs a directory",
                "give --non-persistent-local-ckpt-dir");
  if (c.non_persistent == NonPersistent::kLocal && book.config.optimizer.shard_parameters)
    book.refuse("checkpoint.non_persistent",
                "is local, and with optimizer.shard_parameters no rank holds what it loads", "use global");
  if (c.non_persistent_algorithm == LocalAlgorithm::kFullyParallel)
    book.refuse("checkpoint.non_persistent_algorithm",
                "is fully_parallel, which needs the other machines' files to load any rank", "use atomic");
}

// What Megatron's files have no place for, and Megatron does not do with them.
void check_format(RuleBook& book) {
  const CheckpointConfig& c = book.config.checkpoint;
  if (c.format != CheckpointFormat::kTorch) return;
  const auto refuse = [&](const char* option, bool given, const char* why) {
    if (given) book.refuse(option, why, "leave out one of the two");
  };
  refuse("checkpoint.async_save", c.async_save, "does not go with checkpoint.format=torch, as with Megatron");
  refuse("checkpoint.keep_last", c.keep_last > 0,
         "does not go with checkpoint.format=torch: only plumbline's own checkpoints are removed");
  refuse("optimizer.distributed", book.config.optimizer.distributed,
         "does not go with checkpoint.format=torch: its states lie on all ranks, and those files hold one "
         "rank's");
}

}  // namespace

void check_checkpoint(RuleBook& book) {
  check_non_persistent(book);
  check_format(book);
  const CheckpointConfig& c = book.config.checkpoint;
  const auto needs = [&](const char* option, bool given, const std::string& directory, const char* flag) {
    if (given && directory.empty())
      book.refuse(option, fmt::format("needs {} DIRECTORY", flag), fmt::format("give {}", flag));
  };
  needs("checkpoint.interval", c.interval > 0, c.save, "--save");
  needs("checkpoint.keep_last", c.keep_last > 0, c.save, "--save");
  needs("checkpoint.async_save", c.async_save, c.save, "--save");
  needs("checkpoint.non_persistent_interval", c.non_persistent_interval > 0, c.save, "--save");
  needs("checkpoint.finetune", c.finetune, c.load, "--load");
  needs("checkpoint.step", c.step >= 0, c.load, "--load");
  needs("checkpoint.exit_on_missing", c.exit_on_missing, c.load, "--load");
}

void check_what_if(RuleBook& book) {
  TimeConfig& t = book.config.time;
  const int world = book.config.grid.world();
  check_time_lists(book);
  for (auto& [ends, link] : t.links) {
    if (ends.first < 0 || ends.second >= world || ends.first == ends.second) {
      book.refuse("time.links",
                  fmt::format("names the link {}-{} in a world of {} ranks", ends.first, ends.second, world),
                  fmt::format("use two different ranks from 0 to {}", world - 1));
    }
    if (link.latency < 0) link.latency = t.link.latency;
    if (!(link.bytes_per_second > 0.0))
      book.refuse("time.links", "has a bandwidth of 0", "use a bandwidth above 0");
  }
  for (const auto& [rank, factor] : t.slow) {
    if (rank < 0 || rank >= world) {
      book.refuse("time.slow", fmt::format("names rank {} of a world of {}", rank, world),
                  fmt::format("use a rank from 0 to {}", world - 1));
    }
    if (!(factor > 0.0 && factor <= 1000.0)) {
      book.refuse("time.slow",
                  fmt::format("has the factor {}, which must be above 0 and at most 1000", factor),
                  "1.2 makes a rank a fifth slower");
    }
  }
  check_sim(book);
  check_faults(book);
}

}  // namespace plumbline::detail
