// The example of docs/bring-your-own-stage.md: built as it stands, trained, and the same text as on the page.
#include "docs/examples/residual_mlp.cc"  // NOLINT: the file under test is the example itself
#include "engine/base/text.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

TEST(Example, TheDocumentShowsTheFile) {
  const Result<std::string> page =
      read_file(fmt::format("{}/../docs/bring-your-own-stage.md", PLUMBLINE_TEST_DATA));
  const Result<std::string> code =
      read_file(fmt::format("{}/../docs/examples/residual_mlp.cc", PLUMBLINE_TEST_DATA));
  ASSERT_TRUE(page && code);
  EXPECT_NE(page->find("```cpp\n" + *code + "```\n"), std::string::npos)
      << "docs/bring-your-own-stage.md must show docs/examples/residual_mlp.cc as it is";
}

TEST(Example, TrainsInEveryPrecision) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
    RunConfig config = test::small_config({ScheduleKind::kInterleaved, 2, 2, 4, 2}, precision);
    config.schedule.p2p = P2pStyle::kSeparate;
    config.model.name = "residual-mlp";
    config.train.iterations = 60;
    config.optimizer.lr = 1e-2;
    const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
    ASSERT_NE(trainer, nullptr);
    const Result<TrainOutcome> outcome = trainer->run();
    ASSERT_TRUE(outcome) << outcome.error().text();
    EXPECT_EQ(outcome->exit_code, 0);
    const Baselines base = text_baselines(trainer->text()->training_part(), trainer->text()->held_out());
    EXPECT_LT(outcome->validation_loss, base.unigram);
  }
}

}  // namespace
}  // namespace plumbline
