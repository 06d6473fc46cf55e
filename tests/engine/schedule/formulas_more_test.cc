// The printed formulas of the schedules that Megatron does not have, by the evaluator (which
// evaluate_test.cc holds against recorded figures).
#include <gtest/gtest.h>

#include "engine/schedule/evaluate.h"
#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

struct Cost {
  Nanoseconds f, i, w;
  Nanoseconds b() const { return i + w; }
};
constexpr Cost kEven{1, 1, 1};
const std::vector<Cost> kCosts = {kEven,       {3, 4, 2}, {5, 2, 2}, {2, 5, 1},
                                  {10, 12, 8}, {4, 4, 3}, {7, 6, 3}, {5, 6, 5}};

Evaluation evaluation(const Schedule& schedule, const Cost& cost, Nanoseconds hop = 0) {
  StageCosts costs;
  costs.forward = {cost.f};
  costs.input_grad = {cost.i};
  costs.weight_grad = {cost.w};
  costs.hop = hop;
  return evaluate(schedule, costs).value();
}
Nanoseconds bubble(const Schedule& schedule, const Cost& cost) {
  const Evaluation got = evaluation(schedule, cost);
  return got.makespan - got.work;
}
Nanoseconds stage_bubble(const Schedule& schedule, const Cost& cost) {
  const Evaluation got = evaluation(schedule, cost);
  return got.stage_time - got.work;
}
std::vector<int> peaks(const Schedule& schedule) {
  return evaluation(schedule, kEven).peak_until_weight_grad;
}
std::vector<int> peaks_early(const Schedule& schedule) {
  return evaluation(schedule, kEven).peak_until_input_grad;
}

// A printed formula; a test that checks another one than is printed checks nothing.
void expect_printed(const char* name, const std::string& bubble, const std::string& memory) {
  EXPECT_EQ((*find_generator(name))->bubble, bubble) << name;
  EXPECT_EQ((*find_generator(name))->memory, memory) << name;
}

template <typename Visit>
void for_each_size(int chunks_max, Visit visit) {
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= chunks_max; ++v) {
      for (int m = 1; m <= 3 * p + 1; ++m) visit(p, v, m);
    }
  }
}

TEST(FormulasMore, EagerOneForwardOneBackward) {
  expect_printed("eager-1f1b", "makespan: (P-1)(F+B) without latency", "min(M, 2(P-r)-1) on rank r");
  for_each_size(1, [](int p, int, int m) {
    const Schedule schedule = test::generate("eager-1f1b", {p, 1, m}).value();
    for (const Cost& c : kCosts) EXPECT_EQ(bubble(schedule, c), (p - 1) * (c.f + c.b())) << p << " " << m;
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(peaks(schedule)[static_cast<std::size_t>(r)], std::min(m, 2 * (p - r) - 1));
    const Schedule plain = test::generate("1f1b", {p, 1, m}).value();
    for (const Cost& c : kCosts)
      EXPECT_LE(evaluation(schedule, c, 2).makespan, evaluation(plain, c, 2).makespan);
  });
  const Cost c{10, 12, 8};  // the published example
  EXPECT_EQ(evaluation(test::generate("eager-1f1b", {4, 1, 8}).value(), c, 2).makespan, 342);
  EXPECT_EQ(evaluation(test::generate("1f1b", {4, 1, 8}).value(), c, 2).makespan, 362);
}

TEST(FormulasMore, RoundsOfInterleaving) {
  expect_printed("torch-interleaved", "makespan: (P-1)(F+B) for M >= P, F and B of one chunk",
                 "min(M V, 2(P-r-1) + (V-1)G + 1) chunks on rank r, G = M / max(1, M div P)");
  expect_printed("kimi-k2", "makespan: (P-1)(F+B) where P divides M, F and B of one chunk",
                 "min(M V, 2(P-r-1) + (V-1)G + 2) chunks on rank r, G = M / max(1, M div P)");
  int checked = 0;
  for_each_size(4, [&](int p, int v, int m) {
    const int rounds = std::max(1, m / p);
    for (const char* name : {"torch-interleaved", "kimi-k2"}) {
      const Result<Schedule> schedule = test::generate(name, {p, v, m});
      ASSERT_EQ(schedule.has_value(), m % rounds == 0) << name << p << v << m;
      if (!schedule) continue;
      ++checked;
      const bool kimi = std::string(name) == "kimi-k2";
      if (kimi ? m % p == 0 : m >= p) {
        for (const Cost& c : kCosts) {
          EXPECT_EQ(bubble(*schedule, c), (p - 1) * (c.f + c.b()))
              << name << " " << p << " " << v << " " << m;
        }
      }
      for (int r = 0; r < p; ++r) {
        const int ahead = 2 * (p - r - 1) + (v - 1) * (m / rounds) + (kimi ? 2 : 1);
        EXPECT_EQ(peaks(*schedule)[static_cast<std::size_t>(r)], std::min(m * v, ahead))
            << name << p << v << m;
      }
    }
  });
  EXPECT_GT(checked, 300);
}

TEST(FormulasMore, TorchInterleavedZeroBubble) {
  expect_printed("torch-interleaved-zb", "makespan: (P-1)(F+I-W) for one chunk, W <= I, M >= 2P",
                 "min(M V, P + (V-1)G) chunks on every rank, G = M / max(1, M div P)");
  for_each_size(4, [](int p, int v, int m) {
    const Result<Schedule> schedule = test::generate("torch-interleaved-zb", {p, v, m});
    if (!schedule) return;
    for (const Cost& c : kCosts) {
      if (v == 1 && m >= 2 * p && c.w <= c.i)
        EXPECT_EQ(bubble(*schedule, c), (p - 1) * (c.f + c.i - c.w)) << p << m;
    }
    const int group = m / std::max(1, m / p);
    for (const int peak : peaks(*schedule))
      EXPECT_EQ(peak, std::min(m * v, p + (v - 1) * group)) << p << v << m;
  });
}

TEST(FormulasMore, BreadthFirst) {
  for (const char* name : {"breadth-first", "torch-looped-bfs"}) {
    expect_printed(name, "makespan: (P-1)(F+B) for M >= P, F and B of one chunk", "M V chunks on every rank");
    for_each_size(4, [&](int p, int v, int m) {
      const Schedule schedule = test::generate(name, {p, v, m}).value();
      for (const Cost& c : kCosts) {
        if (m >= p) EXPECT_EQ(bubble(schedule, c), (p - 1) * (c.f + c.b())) << name << p << v << m;
      }
      for (const int peak : peaks(schedule)) EXPECT_EQ(peak, m * v);
    });
  }
}

TEST(FormulasMore, GroupInterleaved) {
  expect_printed("group-interleaved",
                 "makespan: 2(P-1) + (P-G)(V-1) steps for F = I = W, G divides M, M >= 2G",
                 "G(V-1) + P chunks on rank 0");
  int checked = 0;
  for (int p = 1; p <= 8; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (int g = (p + 1) / 2; g <= p; ++g) {
        for (int m = 2 * g; m <= 4 * g; m += g) {
          GeneratorArgs args{p, v, m, g};
          const Schedule schedule = test::generate("group-interleaved", args).value();
          ++checked;
          EXPECT_EQ(bubble(schedule, kEven), 2 * (p - 1) + (p - g) * (v - 1))
              << p << " " << v << " " << m << " " << g;
          if (m * v >= g * (v - 1) + p) EXPECT_EQ(peaks(schedule)[0], g * (v - 1) + p) << p << v << m << g;
        }
      }
    }
  }
  EXPECT_GT(checked, 200);
}

TEST(FormulasMore, HandMadeZeroBubble) {
  expect_printed("zb-h1", "makespan: (P-1)(F+I-W) for W <= I, M >= 2P", "P on every rank, until W");
  expect_printed("zb-h2", "stage time: (P-1)(F+I-2W), at least 0, for M >= 2P",
                 "2P-1 on every rank, until W");
  for (int p = 1; p <= 8; ++p) {
    for (int m = 2 * p; m <= 4 * p; ++m) {
      const Schedule h1 = test::generate("zb-h1", {p, 1, m}).value();
      const Schedule h2 = test::generate("zb-h2", {p, 1, m}).value();
      for (const Cost& c : kCosts) {
        if (c.w > c.i) continue;
        EXPECT_EQ(bubble(h1, c), (p - 1) * (c.f + c.i - c.w)) << p << " " << m;
        EXPECT_EQ(stage_bubble(h2, c), std::max<Nanoseconds>(0, (p - 1) * (c.f + c.i - 2 * c.w)))
            << p << " " << m << " " << c.f;
      }
      for (int r = 0; r < p; ++r) {
        const std::size_t at = static_cast<std::size_t>(r);
        EXPECT_EQ(peaks(h1)[at], p);
        EXPECT_EQ(peaks(h2)[at], 2 * p - 1);
        EXPECT_EQ(peaks_early(h1)[at], p - r);
        EXPECT_EQ(peaks_early(h2)[at], 2 * (p - r) - 1);
      }
    }
  }
}

TEST(FormulasMore, HandMadeV) {
  expect_printed("zb-v", "stage time: 0 for F = I = W, M >= 2P-1",
                 "2P chunks on every rank, until W, for M >= 2P-1");
  for (int p = 1; p <= 8; ++p) {
    for (int m = std::max(1, 2 * p - 1); m <= 4 * p; ++m) {
      const Schedule schedule = test::generate("zb-v", {p, 2, m}).value();
      EXPECT_EQ(stage_bubble(schedule, kEven), 0) << p << " " << m;
      EXPECT_EQ(bubble(schedule, kEven), p - 1);
      if (m >= 2 * p) EXPECT_EQ(peaks(schedule), std::vector<int>(static_cast<std::size_t>(p), 2 * p)) << m;
    }
  }
}

TEST(FormulasMore, BlocksOnAV) {
  expect_printed("v-min", "about 2/3 of 1F1B's for F = I = W, P >= 8; O(M) more where they differ",
                 "2 floor((P+4)/3) chunks on the fullest rank, until W, for M >= P");
  expect_printed("v-half", "0.4 to 0.5 of 1F1B's for F = I = W, P >= 8",
                 "2 floor((P+2)/2) chunks on the fullest rank, until W, for M >= P");
  for (int p = 2; p <= 12; ++p) {
    for (int m = p; m <= 4 * p; m += 3) {
      const Schedule least = test::generate("v-min", {p, 2, m}).value();
      const Schedule half = test::generate("v-half", {p, 2, m}).value();
      const std::vector<int> held = peaks(least);
      EXPECT_EQ(*std::max_element(held.begin(), held.end()), 2 * ((p + 4) / 3)) << p << " " << m;
      const std::vector<int> held_half = peaks(half);
      EXPECT_EQ(*std::max_element(held_half.begin(), held_half.end()), 2 * ((p + 2) / 2)) << p << " " << m;
      if (m < 2 * p || p < 8) continue;
      const double of_1f1b = 6.0 * (p - 1);  // (P-1)(F+B) of ranks whose two chunks cost 2 each
      const double share = static_cast<double>(stage_bubble(least, kEven)) / of_1f1b;
      const double share_half = static_cast<double>(stage_bubble(half, kEven)) / of_1f1b;
      EXPECT_NEAR(share, 2.0 / 3, 0.12) << p << " " << m;
      EXPECT_NEAR(share_half, 0.45, 0.1) << p << " " << m;
    }
  }
}

TEST(FormulasMore, VWithoutBubble) {
  expect_printed("v-zb", "stage time: 2(P-1)(max(F,I)-W) for W <= F, W <= I, |F-I| <= W/2 and M >= 3P",
                 "2P chunks on every rank, until W, for M >= 2P");
  for (int p = 1; p <= 10; ++p) {
    for (int m = 2 * p; m <= 5 * p; m += 2) {
      const Schedule schedule = test::generate("v-zb", {p, 2, m}).value();
      EXPECT_EQ(peaks(schedule), std::vector<int>(static_cast<std::size_t>(p), 2 * p)) << m;
      for (const Cost& c : kCosts) {
        const bool alike = 2 * std::abs(c.f - c.i) <= c.w;
        if (c.w > c.f || c.w > c.i || !alike || m < 3 * p) continue;
        EXPECT_EQ(stage_bubble(schedule, c), 2 * (p - 1) * (std::max(c.f, c.i) - c.w))
            << p << " " << m << " " << c.f << c.i;
      }
    }
  }
}

TEST(FormulasMore, DualPipeV) {
  expect_printed("dualpipe-v", "makespan, idlest rank: (P-1)(FB+B-3W) for F = I = W, FB one overlapped pair",
                 "2P+1 chunks on every rank, until W");
  for (int p = 1; p <= 8; ++p) {
    for (int m = 2 * p; m <= 4 * p; ++m) {
      for (const char* name : {"dualpipe-v", "dualpipe-v-jaxpp"}) {
        const Schedule schedule = test::generate(name, {p, 2, m}).value();
        EXPECT_EQ(peaks(schedule), std::vector<int>(static_cast<std::size_t>(p), 2 * p + 1))
            << name << p << m;
        if (std::string(name) != "dualpipe-v") continue;
        for (const Nanoseconds pair : {4, 5, 6}) {  // F = I = W = 2
          StageCosts costs{{2}, {2}, {2}, {}, {pair}, 0};
          const Evaluation got = evaluate(schedule, costs).value();
          const Nanoseconds least_busy = *std::min_element(got.busy.begin(), got.busy.end());
          EXPECT_EQ(got.makespan - least_busy, (p - 1) * (pair + 4 - 6)) << p << " " << m << " " << pair;
        }
      }
    }
  }
}

TEST(FormulasMore, DualPipe) {
  expect_printed("dualpipe", "makespan, idlest rank: (P/2-1)(FB+B-3W) for F = I = W, FB one overlapped pair",
                 "P+1 on every rank, until W; twice the weights");
  for (int p = 2; p <= 12; p += 2) {
    for (int m = 2 * p; m <= 4 * p; m += 2) {
      const Schedule schedule = test::generate("dualpipe", {p, 1, m}).value();
      EXPECT_EQ(schedule.pipelines(), 2);
      EXPECT_EQ(peaks(schedule), std::vector<int>(static_cast<std::size_t>(p), p + 1)) << p << " " << m;
      for (const Nanoseconds pair : {4, 5, 6}) {  // F = I = W = 2
        const Evaluation got = evaluate(schedule, StageCosts{{2}, {2}, {2}, {}, {pair}, 0}).value();
        const Nanoseconds least_busy = *std::min_element(got.busy.begin(), got.busy.end());
        EXPECT_EQ(got.makespan - least_busy, (p / 2 - 1) * (pair + 4 - 6)) << p << " " << m << " " << pair;
      }
    }
  }
}

// The README's formula away from F = I = W: too small where I < F, too large where I > F.
TEST(FormulasMore, DualPipeFormulaOfTheReadme) {
  const auto idlest = [](const Schedule& schedule, const StageCosts& costs) {
    const Evaluation got = evaluate(schedule, costs).value();
    return got.makespan - *std::min_element(got.busy.begin(), got.busy.end());
  };
  const auto readme = [](int p, const Cost& c, Nanoseconds pair) {
    return (p / 2 - 1) * (pair + c.b() - 3 * c.w);
  };
  const Schedule schedule = test::generate("dualpipe", {8, 1, 24}).value();
  EXPECT_EQ(idlest(schedule, StageCosts{{12}, {10}, {8}, {}, {30}, 0}), 78);
  EXPECT_EQ(readme(8, {12, 10, 8}, 30), 72);
  EXPECT_EQ(idlest(schedule, StageCosts{{10}, {12}, {8}, {}, {30}, 0}), 72);
  EXPECT_EQ(readme(8, {10, 12, 8}, 30), 78);
}

TEST(FormulasMore, Chimera) {
  expect_printed("chimera", "share of makespan: (P-2)/(2M+P-2) for F = B", "P/2+1 to P; twice the weights");
  expect_printed("chimera-2-pairs", "share of makespan: (P/2-2)/(2M+P/2-2) for F = B, M a multiple of P",
                 "at most P; four times the weights");
  const Cost equal{2, 1, 1};
  for (int p = 2; p <= 16; p += 2) {
    for (int m = p; m <= 4 * p; m += p) {
      const Schedule schedule = test::generate("chimera", {p, 1, m}).value();
      const Evaluation got = evaluation(schedule, equal);
      EXPECT_EQ(got.makespan, 2 * (2 * m + p - 2)) << p << " " << m;  // work is 4 M
      const std::vector<int> held = peaks(schedule);
      EXPECT_EQ(*std::min_element(held.begin(), held.end()), p / 2 + 1) << p;
      EXPECT_EQ(*std::max_element(held.begin(), held.end()), p);
      if (p % 4 != 0) continue;
      const Schedule pairs = test::generate("chimera-2-pairs", {p, 1, m}).value();
      EXPECT_EQ(pairs.pipelines(), 4);
      EXPECT_EQ(evaluation(pairs, equal).makespan, 2 * (2 * m + p / 2 - 2)) << p << " " << m;
      const std::vector<int> all = peaks(pairs);
      EXPECT_EQ(*std::max_element(all.begin(), all.end()), p);
    }
  }
}

TEST(FormulasMore, SlicedSequences) {
  expect_printed("seq-1f1b", "makespan: (P-1)(F+B), F and B of one slice",
                 "min(M S, P-r-1+S) slices on rank r");
  for (int p = 1; p <= 6; ++p) {
    for (int slices = 1; slices <= 4; ++slices) {
      for (int m = 1; m <= 2 * p + 1; ++m) {
        GeneratorArgs args{p, 1, m};
        args.slices = slices;
        const Schedule schedule = test::generate("seq-1f1b", args).value();
        EXPECT_EQ(schedule.microbatches, m * slices);
        for (const Cost& c : kCosts) {
          if (m * slices >= p + slices - 1)
            EXPECT_EQ(bubble(schedule, c), (p - 1) * (c.f + c.b())) << p << slices << m;
        }
        for (int r = 0; r < p; ++r) {
          EXPECT_EQ(peaks(schedule)[static_cast<std::size_t>(r)], std::min(m * slices, p - r - 1 + slices));
        }
      }
    }
  }
}

// The share says how long the step is: work / (1 - share).
TEST(FormulasMore, Waves) {
  expect_printed(
      "hanayo",
      "share of makespan: (2P-2)/(3PW+P-1) for M = P, B = 2F, W = V/2, within 2 percent of the time",
      "2PW chunks for M = P; about 2PW + P for more");
  for (int p = 2; p <= 8; ++p) {
    for (int waves = 1; waves <= 4; ++waves) {
      const Schedule schedule = test::generate("hanayo", {p, 2 * waves, p}).value();
      const Evaluation got = evaluation(schedule, kEven);
      const double share = (2.0 * p - 2) / (3.0 * p * waves + p - 1);
      const double time = static_cast<double>(got.work) / (1 - share);
      EXPECT_LE(static_cast<double>(got.makespan), 1.02 * time) << p << " " << waves;
      const std::vector<int> held = peaks(schedule);
      EXPECT_LE(*std::max_element(held.begin(), held.end()), 2 * p * waves) << p << " " << waves;
      const std::vector<int> longer = peaks(test::generate("hanayo", {p, 2 * waves, 4 * p}).value());
      EXPECT_LE(*std::max_element(longer.begin(), longer.end()), 2 * p * waves + 2 * p) << p << " " << waves;
    }
  }
}

// Acceptance numbers at unit costs: makespans, chunk units for two chunks a rank.
TEST(FormulasMore, KnownMakespans) {
  const auto makespan = [](const char* name, int p, int v, int m) {
    return evaluation(test::generate(name, {p, v, m}).value(), kEven).makespan;
  };
  EXPECT_EQ(makespan("1f1b", 4, 1, 8), 33);
  EXPECT_EQ(makespan("zb-h1", 4, 1, 8), 27);
  EXPECT_EQ(makespan("zb-auto", 4, 1, 8), 27);
  EXPECT_EQ(makespan("interleaved", 4, 2, 8), 57);
  EXPECT_EQ(makespan("1f1b-v", 4, 2, 8), 63);
  EXPECT_EQ(makespan("1f1b-v", 4, 2, 4), 39);
  EXPECT_EQ(makespan("1f1b-v", 4, 2, 16), 111);
  EXPECT_EQ(makespan("1f1b-v", 8, 2, 8), 81);
  EXPECT_EQ(makespan("v-min", 4, 2, 8), 59);
  EXPECT_EQ(makespan("v-half", 4, 2, 8), 53);
  EXPECT_EQ(makespan("zb-v", 4, 2, 8), 51);
  EXPECT_EQ(makespan("v-zb", 4, 2, 8), 51);
}

}  // namespace
}  // namespace plumbline
