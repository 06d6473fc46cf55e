// Public reports about names, layouts and copies: C01, C02, C04, C06, C08, C10, C25, C26, C33, C19.
#include <set>

#include "tests/engine/checkpoint/family_c.h"

namespace plumbline::test {
namespace {

ShardedStateDict layers(const std::vector<int>& which) {
  ShardedStateDict state;
  for (const int layer : which)
    state.tensors.push_back(whole("layers." + std::to_string(layer), numbers({static_cast<float>(layer)})));
  return state;
}

// C01: 16 layers in two chunks a rank, and only the first chunk is saved.
TEST(FamilyC, PytorchTorchtitan474) {
  SimulatedDisk all, faulty;
  ASSERT_EQ(save(all, {layers({0, 1, 2, 3, 8, 9, 10, 11}), layers({4, 5, 6, 7, 12, 13, 14, 15})}), "");
  Ranks wanted{layers({0, 1, 2, 3, 8, 9, 10, 11}), layers({4, 5, 6, 7, 12, 13, 14, 15})};
  EXPECT_EQ(load(all, wanted), "");
  ASSERT_EQ(save(faulty, {layers({0, 1, 2, 3}), layers({4, 5, 6, 7})}), "");
  EXPECT_NE(
      load(faulty, wanted)
          .find("not in the checkpoint: layers.10, layers.11, layers.12, layers.13, layers.14, layers.15, "
                "layers.8, layers.9"),
      std::string::npos);
}

// C02: one key, two contents.
TEST(FamilyC, PytorchPytorch120356) {
  SimulatedDisk disk;
  const at::Tensor zero = numbers({0, 1}), one = numbers({2, 3});
  EXPECT_NE(save(disk, {{{whole("weight", zero)}, {}}, {{whole("weight", one)}, {}}})
                .find("'weight': element [0] is held twice, by rank 0"),
            std::string::npos);
  EXPECT_NE(save(disk, {{{whole("weight", zero)}, {}}, {{whole("weight", one, 1)}, {}}})
                .find("rank 0 and rank 1 hold different values"),
            std::string::npos);
  const Ranks right{{{shard("weight", zero, {4}, {0})}, {}}, {{shard("weight", one, {4}, {2})}, {}}};
  ASSERT_EQ(save(disk, right), "");
  Ranks back{{{shard("weight", at::zeros({2}), {4}, {0})}, {}},
             {{shard("weight", at::zeros({2}), {4}, {2})}, {}}};
  ASSERT_EQ(load(disk, back), "");
  EXPECT_EQ(list(back[1].tensors[0].data), (std::vector<float>{2, 3}));
}

// C04: stages that ask by local numbers.
TEST(FamilyC, NVIDIAMegatronLM7452) {
  SimulatedDisk disk;
  ASSERT_EQ(save(disk, {layers({0, 1, 2, 3})}), "");
  Ranks local{layers({0, 1}), layers({0, 1})};
  EXPECT_NE(load(disk, local).find("asked for by no one: layers.2, layers.3"), std::string::npos);
  Ranks global{layers({0, 1}), layers({2, 3})};
  ASSERT_EQ(load(disk, global), "");
  EXPECT_EQ(list(global[1].tensors[0].data), (std::vector<float>{2}));
  // The other way: two ranks write layers.0.
  EXPECT_NE(save(disk, {layers({0, 1}), layers({0, 1})}).find("'layers.0': element [0] is held twice"),
            std::string::npos);
}

// C06: an uneven last stage. Offsets are chunk-major, then by rank; the faulty formula makes rank 1 save rank
// 0's layers.
TEST(FamilyC, NVIDIAMegatronLM1584) {
  const auto rank_layers = [](int rank, bool faulty) {
    std::vector<int> out;
    for (int chunk = 0; chunk < 2; ++chunk) {
      int first = chunk * 10 + rank * 3;  // 3 a chunk on stages 0 to 2, 1 on stage 3
      if (faulty && rank >= 1) first = (rank - 1) * 3 + chunk * 10;
      for (int i = 0; i < (rank == 3 ? 1 : 3); ++i) out.push_back(first + i);
    }
    return out;
  };
  Ranks right, wrong;
  std::set<int> covered;
  for (int rank = 0; rank < 4; ++rank) {
    for (const int layer : rank_layers(rank, false)) covered.insert(layer);
    right.push_back(layers(rank_layers(rank, false)));
    wrong.push_back(layers(rank_layers(rank, true)));
  }
  EXPECT_EQ(covered.size(), 20u);
  EXPECT_EQ(*covered.rbegin(), 19);
  SimulatedDisk disk;
  EXPECT_EQ(save(disk, right), "");
  EXPECT_NE(save(disk, wrong).find("'layers.0': element [0] is held twice, by rank 0"), std::string::npos);
}

// C08: a model with fewer layers than the file.
TEST(FamilyC, NVIDIANeMoMegatronBridge4992) {
  SimulatedDisk disk;
  ASSERT_EQ(save(disk, {layers({0}), layers({1})}), "");
  Ranks one{layers({0})}, two{layers({0, 1})};
  EXPECT_NE(load(disk, one).find("asked for by no one: layers.1"), std::string::npos);
  LoadRules waived;
  waived.may_be_unused = {"layers.1"};
  EXPECT_EQ(load(disk, one, waived), "");
  EXPECT_EQ(load(disk, two), "");
}

// C10: a bucket of 60, 10, 10, 10, 10 elements in slices of 50 and of 25.
TEST(FamilyC, RadixarkMegatronLM66) {
  const std::vector<std::int64_t> sizes{60, 10, 10, 10, 10};
  const at::Tensor moment = at::arange(100, at::kFloat);
  const auto slices = [&](std::int64_t dp, bool filled) {
    Ranks ranks(static_cast<std::size_t>(dp));
    for (std::int64_t rank = 0; rank < dp; ++rank) {
      const std::int64_t begin = rank * 100 / dp, end = (rank + 1) * 100 / dp;
      std::int64_t start = 0;
      for (std::size_t p = 0; p < sizes.size(); start += sizes[p], ++p) {
        const std::int64_t from = std::max(begin, start), to = std::min(end, start + sizes[p]);
        if (from >= to) continue;
        const at::Tensor part = filled ? moment.narrow(0, from, to - from).clone() : at::zeros({to - from});
        ranks[static_cast<std::size_t>(rank)].tensors.push_back(
            range("exp_avg." + std::to_string(p), part, sizes[p], from - start));
      }
    }
    return ranks;
  };
  const auto touched = [](const Ranks& ranks) {
    std::vector<std::size_t> out;
    for (const ShardedStateDict& rank : ranks) out.push_back(rank.tensors.size());
    return out;
  };
  EXPECT_EQ(touched(slices(2, true)), (std::vector<std::size_t>{1, 5}));
  EXPECT_EQ(touched(slices(4, true)), (std::vector<std::size_t>{1, 1, 3, 3}));
  SimulatedDisk disk;
  ASSERT_EQ(save(disk, slices(2, true)), "");
  for (const std::int64_t dp : {2, 4}) {
    Ranks ranks = slices(dp, false);
    const Ranks wanted = slices(dp, true);
    ASSERT_EQ(load(disk, ranks), "");
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::size_t i = 0; i < ranks[rank].tensors.size(); ++i)
        EXPECT_EQ(list(ranks[rank].tensors[i].data), list(wanted[rank].tensors[i].data));
    }
  }
}

// C19: after a load, each rank has its own parameter and nobody gathers.
TEST(FamilyC, NVIDIAMegatronLM6920) {
  SimulatedDisk disk, again;
  ASSERT_EQ(save(disk, {{{whole("p0", numbers({1}))}, {}}, {{whole("p1", numbers({2}))}, {}}}), "");
  Ranks both{{{whole("p0", numbers({0})), whole("p1", numbers({0}), 1)}, {}},
             {{whole("p0", numbers({0}), 1), whole("p1", numbers({0}))}, {}}};
  ASSERT_EQ(load(disk, both), "");
  for (const ShardedStateDict& rank : both) {
    EXPECT_EQ(list(rank.tensors[0].data), (std::vector<float>{1}));
    EXPECT_EQ(list(rank.tensors[1].data), (std::vector<float>{2}));
  }
  EXPECT_EQ(save(again, both), "");
  // Without the gather the ranks hold (1, 0) and (0, 2): found when they are saved as copies of each other.
  const Ranks fault{{{whole("p0", numbers({1})), whole("p1", numbers({0}), 1)}, {}},
                    {{whole("p0", numbers({0}), 1), whole("p1", numbers({2}))}, {}}};
  EXPECT_NE(save(again, fault).find("hold different values of 'p"), std::string::npos);
}

// C25: a tied embedding of 4 rows, saved on two tensor-parallel ranks, loaded on one under both of its names.
TEST(FamilyC, HuggingfaceNanotron68) {
  SimulatedDisk disk;
  const AliasTable tied{{"lm_head", "embedding"}, {"exp_avg.lm_head", "exp_avg.embedding"}};
  const auto rank = [](float first) {
    return ShardedStateDict{
        {shard("embedding", numbers({first, first + 1}), {4}, {static_cast<std::int64_t>(first)}),
         shard("exp_avg.embedding", numbers({first, first + 1}), {4}, {static_cast<std::int64_t>(first)})},
        {}};
  };
  ASSERT_EQ(save(disk, {rank(0), rank(2)}, 1, tied), "");
  Ranks one{{{whole("embedding", at::zeros({4})), whole("lm_head", at::zeros({4})),
              whole("exp_avg.embedding", at::zeros({4}))},
             {}}};
  ASSERT_EQ(load(disk, one), "");
  for (const ShardedTensor& tensor : one[0].tensors)
    EXPECT_EQ(list(tensor.data), (std::vector<float>{0, 1, 2, 3})) << tensor.key;
  SimulatedFiles files(disk);
  const auto reader = CheckpointReader::open(files, "/c/iter_0000001");
  EXPECT_EQ(reader->manifest().tensors.size(), 2u);  // 4 rows and a moment, once each
}

// C26: copies of an embedding on stages 0 and 1 after one SGD step; the wrong group leaves 0.9 and 0.8.
TEST(FamilyC, NVIDIANeMoMegatronBridge5380) {
  const auto step = [](float gradient) { return numbers({1.0f - 0.1f * gradient}); };
  SimulatedDisk disk;
  const Ranks right{{{whole("embedding", step(3))}, {}}, {{whole("embedding", step(3), 1)}, {}}, {}};
  ASSERT_EQ(save(disk, right), "");
  Ranks back{{{whole("embedding", at::zeros({1}))}, {}}, {{whole("embedding", at::zeros({1}))}, {}}, {}};
  ASSERT_EQ(load(disk, back), "");
  EXPECT_FLOAT_EQ(list(back[0].tensors[0].data)[0], 0.7f);
  EXPECT_FLOAT_EQ(list(back[1].tensors[0].data)[0], 0.7f);
  const Ranks wrong{{{whole("embedding", step(1))}, {}}, {{whole("embedding", step(2), 1)}, {}}, {}};
  EXPECT_NE(save(disk, wrong, 2).find("tensor 'embedding': rank 0 and rank 1 hold different values"),
            std::string::npos);
}

// C33: a linear weight split by rows, a norm weight on every rank.
TEST(FamilyC, DeepspeedaiDeepSpeed6503) {
  const at::Tensor linear = at::arange(16, at::kFloat).reshape({4, 4}), norm = numbers({1, 2, 3, 4});
  const auto ranks = [&](std::int64_t tp, bool filled) {
    Ranks out;
    for (std::int64_t rank = 0; rank < tp; ++rank) {
      const at::Tensor rows = linear.narrow(0, rank * 4 / tp, 4 / tp);
      out.push_back({{shard("linear", filled ? rows : at::zeros_like(rows), {4, 4}, {rank * 4 / tp, 0}),
                      whole("norm", filled ? norm : at::zeros({4}), rank == 0 ? 0 : 1)},
                     {}});
    }
    return out;
  };
  SimulatedDisk disk;
  ASSERT_EQ(save(disk, ranks(2, true)), "");
  for (const std::int64_t tp : {1, 4}) {
    Ranks back = ranks(tp, false);
    ASSERT_EQ(load(disk, back), "");
    for (std::int64_t rank = 0; rank < tp; ++rank) {
      const ShardedStateDict& state = back[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(at::equal(state.tensors[0].data, linear.narrow(0, rank * 4 / tp, 4 / tp)));
      EXPECT_TRUE(at::equal(state.tensors[1].data, norm));
    }
  }
  Ranks differ = ranks(2, true);
  differ[1].tensors[1].data = numbers({1, 2, 3, 5});
  EXPECT_NE(save(disk, differ).find("tensor 'norm': rank 0 and rank 1 hold different values"),
            std::string::npos);
}

}  // namespace
}  // namespace plumbline::test
