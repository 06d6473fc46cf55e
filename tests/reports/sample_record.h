// Records made by a small list scheduler, for tests and for looking at pages without an engine: every rank
// executes its computations in order as soon as their inputs have come; a receive is posted when the rank is
// free, a send when its tensor is there, and the transfer takes `latency` from the moment both are.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/rng.h"
#include "engine/runtime/run_record.h"

namespace plumbline::sample {

struct Job {
  KernelKind kind = KernelKind::kForward;
  int stage = 0;
  int microbatch = 0;
};
using Rows = std::vector<std::vector<Job>>;  // per rank, in order

struct Shape {
  int ranks = 4;
  int chunks = 1;
  int microbatches = 8;
  Nanoseconds forward = 1'000'000;
  Nanoseconds backward = 2'000'000;
  Nanoseconds latency = 0;
  double jitter = 0.0;  // relative, deterministic
  bool split = false;   // B as I and W
  int steps = 1;
  bool tail = false;  // agreement and optimizer after the pipeline
  bool losses = false;
  int stages() const { return ranks * chunks; }
};

// Megatron's order of chunk steps: groups of `ranks` microbatches, all chunks of a group before the next
// group.
inline Rows interleaved_rows(const Shape& s) {
  Rows rows(static_cast<std::size_t>(s.ranks));
  const int total = s.microbatches * s.chunks, group = s.ranks * s.chunks;
  const auto job = [&](int rank, int k, bool forward) {
    const int in_group = k % group, chunk = in_group / s.ranks;
    const int stage = (forward ? chunk : s.chunks - 1 - chunk) * s.ranks + rank;
    return Job{forward ? KernelKind::kForward : KernelKind::kBackward, stage,
               k / group * s.ranks + in_group % s.ranks};
  };
  for (int r = 0; r < s.ranks; ++r) {
    const int ahead = s.chunks == 1 ? s.ranks - 1 - r : (s.chunks - 1) * s.ranks + 2 * (s.ranks - 1 - r);
    const int warmup = std::min(ahead, total);
    auto& row = rows[static_cast<std::size_t>(r)];
    for (int k = 0; k < warmup; ++k) row.push_back(job(r, k, true));
    for (int k = warmup; k < total; ++k) {
      row.push_back(job(r, k, true));
      row.push_back(job(r, k - warmup, false));
    }
    for (int k = total - warmup; k < total; ++k) row.push_back(job(r, k, false));
  }
  return rows;
}

// Every B becomes I; its W follows `delay` backwards later, the rest at the end.
inline Rows split_rows(const Rows& rows) {
  Rows result;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<Job> out, held;
    const std::size_t delay = r;
    for (const Job& job : rows[r]) {
      if (job.kind != KernelKind::kBackward) {
        out.push_back(job);
        continue;
      }
      out.push_back({KernelKind::kInputGrad, job.stage, job.microbatch});
      held.push_back({KernelKind::kWeightGrad, job.stage, job.microbatch});
      if (held.size() > delay) {
        out.push_back(held.front());
        held.erase(held.begin());
      }
    }
    out.insert(out.end(), held.begin(), held.end());
    result.push_back(out);
  }
  return result;
}

class Scheduler {
 public:
  Scheduler(const Shape& shape, Rows rows) : s_(shape), rows_(std::move(rows)), rng_(7, "sample") {
    header();
  }

  RunRecord run() {
    Nanoseconds begin = 0;
    for (int step = 0; step < s_.steps; ++step) begin = one_step(step, begin);
    return std::move(record_);
  }

 private:
  void header() {
    record_.producer = "plumbline 0.1.0";
    record_.backend = "sim";
    record_.schedule = s_.split ? "zb-h1" : s_.chunks > 1 ? "interleaved" : "1f1b";
    record_.config = "[schedule]\nname = \"" + record_.schedule + "\"\n\n[time]\nforward = \"" +
                     std::to_string(s_.forward) + "ns\"\nbackward = \"" + std::to_string(s_.backward) +
                     "ns\"\n\n[run]\nseed = 1234\n";
    record_.command = "plumbline sim run.toml --seed 1234";
    record_.seed = 1234;
    record_.program_digest = 0x5eed5eed5eed5eedULL;
    record_.ranks = s_.ranks;
    record_.stages = s_.stages();
    record_.microbatches = s_.microbatches;
    for (int r = 0; r < s_.ranks; ++r) {
      record_.pipeline_coordinate.push_back(r);
      record_.replica.push_back(0);
    }
    record_.streams = {"compute", "pp", "world"};
  }

  std::uint16_t label(const EventLabel& wanted) {
    for (std::size_t k = 0; k < record_.labels.size(); ++k) {
      if (record_.labels[k] == wanted) return static_cast<std::uint16_t>(k);
    }
    record_.labels.push_back(wanted);
    return static_cast<std::uint16_t>(record_.labels.size() - 1);
  }
  std::uint16_t kernel_label(KernelKind kind, int stage) {
    EventLabel l;
    l.kernel = kind;
    l.stage = stage;
    l.name = std::string(kind == KernelKind::kForward      ? "F."
                         : kind == KernelKind::kBackward   ? "B."
                         : kind == KernelKind::kInputGrad  ? "I."
                         : kind == KernelKind::kWeightGrad ? "W."
                                                           : "optimizer.") +
             std::to_string(stage);
    return label(l);
  }
  std::uint16_t p2p_label(EndpointKind kind, SlotKind slot, int stage) {
    EventLabel l;
    l.communication = true;
    l.endpoint = kind;
    l.slot = slot;
    l.stage = stage;
    l.bytes = 8 << 20;
    l.name = std::string(kind == EndpointKind::kSend ? "send" : "recv") +
             (slot == SlotKind::kActivation ? ".activation." : ".gradient.") + std::to_string(stage);
    return label(l);
  }

  Nanoseconds cost(const Job& job) {
    Nanoseconds base = job.kind == KernelKind::kForward ? s_.forward : s_.backward;
    if (job.kind == KernelKind::kInputGrad || job.kind == KernelKind::kWeightGrad) base = s_.backward / 2;
    if (s_.jitter == 0.0) return base;
    const double factor =
        1.0 + s_.jitter * (rng_.uniform(draws_++) - 0.3) + (job.stage == s_.stages() - 1 ? s_.jitter : 0.0);
    return static_cast<Nanoseconds>(static_cast<double>(base) * factor);
  }

  void event(int step, int rank, std::uint16_t l, int stream, int microbatch, int peer, Nanoseconds start,
             Nanoseconds ready, Nanoseconds end) {
    record_.events.push_back(
        {step, rank, l, static_cast<std::uint16_t>(stream), microbatch, peer, start, ready, end});
  }

  // The (stage, microbatch) whose result a job takes over from another stage; stage -1: none.
  std::tuple<SlotKind, int, int> input_of(const Job& job) const {
    if (job.kind == KernelKind::kForward) return {SlotKind::kActivation, job.stage - 1, job.stage};
    if (job.kind == KernelKind::kWeightGrad || job.stage + 1 >= s_.stages())
      return {SlotKind::kGradient, -1, -1};
    return {SlotKind::kGradient, job.stage + 1, job.stage + 1};
  }

  bool try_job(int step, int rank, const Job& job) {
    Nanoseconds& free = free_[static_cast<std::size_t>(rank)];
    const auto [slot, from_stage, slot_stage] = input_of(job);
    Nanoseconds start = free;
    if (from_stage >= 0) {
      const auto made = done_.find({slot == SlotKind::kActivation, from_stage, job.microbatch});
      if (made == done_.end()) return false;
      const int from = from_stage % s_.ranks;
      if (from != rank) {
        const Nanoseconds ready = std::max(made->second, free);
        start = ready + s_.latency;
        event(step, from, p2p_label(EndpointKind::kSend, slot, slot_stage), 1, job.microbatch, rank,
              made->second, ready, start);
        event(step, rank, p2p_label(EndpointKind::kRecv, slot, slot_stage), 1, job.microbatch, from, free,
              ready, start);
      }
    }
    const Nanoseconds end = start + cost(job);
    event(step, rank, kernel_label(job.kind, job.stage), 0, job.microbatch, -1, start, start, end);
    remember(step, rank, job, start, end);
    free = end;
    return true;
  }

  void remember(int step, int rank, const Job& job, Nanoseconds start, Nanoseconds end) {
    Bytes& live = live_[static_cast<std::size_t>(rank)];
    const Bytes stash = (96LL << 20) / s_.chunks;
    if (job.kind == KernelKind::kForward) {
      done_[{true, job.stage, job.microbatch}] = end;
      record_.memory.push_back({step, rank, start, live += stash});
    } else if (job.kind != KernelKind::kWeightGrad) {
      done_[{false, job.stage, job.microbatch}] = end;
      record_.memory.push_back({step, rank, start, live += 16LL << 20});
      record_.memory.push_back({step, rank, end, live -= (16LL << 20) + (s_.split ? stash / 2 : stash)});
    } else {
      record_.memory.push_back({step, rank, end, live -= stash / 2});
    }
  }

  Nanoseconds one_step(int step, Nanoseconds begin) {
    free_.assign(static_cast<std::size_t>(s_.ranks), begin);
    live_.assign(static_cast<std::size_t>(s_.ranks), 640LL << 20);
    done_.clear();
    std::vector<std::size_t> next(rows_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < rows_.size(); ++r) {
        while (next[r] < rows_[r].size() && try_job(step, static_cast<int>(r), rows_[r][next[r]])) {
          ++next[r];
          moved = true;
        }
      }
    }
    Nanoseconds end = *std::max_element(free_.begin(), free_.end());
    if (s_.tail) end = tail(step, end);
    std::stable_sort(record_.events.begin(), record_.events.end(), [](const RunEvent& a, const RunEvent& b) {
      return std::tie(a.step, a.rank, a.start) < std::tie(b.step, b.rank, b.start);
    });
    step_row(step, begin, end);
    return end;
  }

  // Agreement on overflow, then the optimizer.
  Nanoseconds tail(int step, Nanoseconds last) {
    EventLabel agree;
    agree.communication = true;
    agree.endpoint = EndpointKind::kAllReduce;
    agree.slot = SlotKind::kFoundInf;
    agree.bytes = 4;
    agree.name = "all-reduce.found_inf";
    for (int r = 0; r < s_.ranks; ++r) {
      event(step, r, label(agree), 2, -1, -1, free_[static_cast<std::size_t>(r)], last,
            last + s_.latency + 1000);
      event(step, r, kernel_label(KernelKind::kOptimizerStep, r), 0, -1, -1, last + s_.latency + 1000,
            last + s_.latency + 1000, last + s_.latency + 1000 + s_.forward);
    }
    return last + s_.latency + 1000 + s_.forward;
  }

  void step_row(int step, Nanoseconds begin, Nanoseconds end) {
    StepRow row;
    row.step = step;
    row.iteration = step + 1;
    row.begin = begin;
    row.end = end;
    row.loss = std::numeric_limits<double>::quiet_NaN();
    if (s_.losses) {
      const bool overflow = step == 1 || step == 9;
      scale_ = step == 0 ? 65536.0 : scale_;
      row.loss = 3.2 * std::exp(-0.09 * step) + 1.4 + 0.12 * (rng_.uniform(draws_++) - 0.5);
      row.grad_norm = 1.2 * std::exp(-0.03 * step) + 0.3 * rng_.uniform(draws_++);
      row.lr = 1e-3;
      row.skipped = overflow;
      row.scale = scale_;
      if (overflow) scale_ /= 2;
      if (step == 20) scale_ *= 2;
      row.scale_after = scale_;
      row.params_digest = 0x1234567890abcdefULL + static_cast<std::uint64_t>(step);
      row.optimizer_digest = 0xfedcba0987654321ULL + static_cast<std::uint64_t>(step);
    }
    record_.steps.push_back(row);
  }

  Shape s_;
  Rows rows_;
  CounterRng rng_;
  std::uint64_t draws_ = 0;
  double scale_ = 1.0;
  RunRecord record_;
  std::vector<Nanoseconds> free_;
  std::vector<Bytes> live_;
  std::map<std::tuple<bool, int, int>, Nanoseconds> done_;
};

inline RunRecord record_of(const Shape& shape) {
  const Rows rows = interleaved_rows(shape);
  return Scheduler(shape, shape.split ? split_rows(rows) : rows).run();
}

}  // namespace plumbline::sample
