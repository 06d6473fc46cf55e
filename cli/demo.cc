// `demo`: the tool's story in one run - a real hang found, the repair certified, a training run, its report.
// Every step is a command that a person can repeat; the demo prints it and runs it as it stands.
#include <chrono>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/exec_engine.h"
#include "cli/spawn.h"
#include "engine/base/shell_line.h"
#include "engine/base/text.h"

namespace plumbline::cli {
namespace {

// The actions of the two ranks as the reporter of pytorch/pytorch#172668 wrote them down: both send first.
constexpr std::string_view kHang = "0SEND_F1,2RECV_F0\n1SEND_F0,1RECV_F1\n";
// The repair that upstream chose: by rank parity one side receives first.
constexpr std::string_view kRepaired = "0SEND_F1,2RECV_F0\n1RECV_F1,1SEND_F0\n";

// A byte-level GPT over eight stages that passes the bigram model in about 150 steps; the loss scale grows at
// step 80, and at step 120 one rank is given a gradient that is not finite. The head depth is a multiple of
// 16, which attention likes.
const std::vector<std::string> kTraining{"--schedule",
                                         "interleaved",
                                         "--pp",
                                         "4",
                                         "--vp",
                                         "2",
                                         "--microbatches",
                                         "8",
                                         "--micro-batch-size",
                                         "2",
                                         "--num-layers",
                                         "8",
                                         "--hidden-size",
                                         "64",
                                         "--num-attention-heads",
                                         "4",
                                         "--seq-length",
                                         "64",
                                         "--init-method-std",
                                         "0.08",
                                         "--fp16",
                                         "--initial-loss-scale",
                                         "65536",
                                         "--loss-scale-window",
                                         "80",
                                         "--hysteresis",
                                         "1",
                                         "--lr",
                                         "6e-3",
                                         "--min-lr",
                                         "4e-4",
                                         "--lr-decay-style",
                                         "cosine",
                                         "--lr-warmup-iters",
                                         "10",
                                         "--adam-beta2",
                                         "0.95",
                                         "--train-iters",
                                         "240",
                                         "--eval-iters",
                                         "16",
                                         "--inject-overflow",
                                         "rank=2:step=120"};

class Demo {
 public:
  Demo(std::string folder, std::vector<std::string> extra)
      : folder_(std::move(folder)), extra_(std::move(extra)) {}

  int run() {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error)
      return report(
          Error{ErrorCode::kIo, fmt::format("cannot create '{}': {}", folder_, error.message()), {}});
    self_ = std::filesystem::read_symlink("/proc/self/exe", error).string();
    for (const auto step : {&Demo::hang, &Demo::repair, &Demo::training, &Demo::closing}) {
      if (const int code = (this->*step)(); code != kExitHolds) return code;
    }
    return kExitHolds;
  }

 private:
  std::string path(const char* name) const { return (std::filesystem::path(folder_) / name).string(); }

  static void say(const std::string& text) { print_line(text); }
  static void heading(const std::string& text) {
    print_line("\n" + paint(text, Paint::kBold, color_on_stdout()) + "\n");
  }

  // Prints and runs `plumbline WORDS...`; anything but `expected` ends the demo.
  int command(std::vector<std::string> words, int expected) {
    words.insert(words.begin(), "plumbline");
    say(paint("$ " + shell_line(words), Paint::kDim, color_on_stdout()));
    finish_output();
    words[0] = self_;
    const Result<int> code = spawn(words);
    if (!code) return report(code.error());
    if (*code == expected) return kExitHolds;
    hint(fmt::format("demo: this command should have ended with exit code {} but ended with {}", expected,
                     *code));
    return *code == kExitHolds ? kExitFailed : *code;
  }

  int file(const char* name, std::string_view content) {
    const Status written = write_file(path(name), content);
    return written ? kExitHolds : report(written.error());
  }

  int hang() {
    heading("1. A hang that cost people days: pytorch/pytorch#172668");
    say("Two ranks of a looped pipeline, as the report lists their actions: each sends before it receives.");
    if (const int code = file("hang.csv", kHang); code != kExitHolds) return code;
    if (const int code =
            command({"check", path("hang.csv"), "--fragment", "--comm-map", "pair"}, kExitDeadlock);
        code != kExitHolds)
      return code;
    if (const int code =
            command({"sim", path("hang.csv"), "--fragment", "--comm-map", "pair", "-o", path("hang.plmb")},
                    kExitDeadlock);
        code != kExitHolds)
      return code;
    return command({"report", path("hang.plmb"), "-o", path("hang.html"), "--dot", path("hang.dot")},
                   kExitHolds);
  }

  int repair() {
    heading("2. The repair, certified");
    say("One side receives first. Certified means: whatever NCCL buffers, in whatever order kernels of one "
        "device run, and with");
    say("connections that are still to be made, it cannot hang.");
    if (const int code = file("repaired.csv", kRepaired); code != kExitHolds) return code;
    return command({"check", path("repaired.csv"), "--fragment", "--comm-map", "pair"}, kExitHolds);
  }

  int training() {
    heading("3. A training run on the same machinery");
    say("Four ranks, two chunks each, interleaved 1F1B, fp16 with a dynamic loss scale; at one step one rank "
        "is given a gradient");
    say("that is not finite, and every rank must skip that step.");
    const Result<std::string> engine = find_engine();
    if (!engine) return report(engine.error());
    std::vector<std::string> words{"run"};
    words.insert(words.end(), kTraining.begin(), kTraining.end());
    words.insert(words.end(), extra_.begin(), extra_.end());
    words.insert(words.end(), {"-o", path("train.plmb")});
    const auto begin = std::chrono::steady_clock::now();
    const int code = command(words, kExitHolds);
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (code == kExitHolds) say(fmt::format("The training took {:.0f} s.", seconds));
    return code;
  }

  int closing() {
    heading("4. The reports");
    if (const int code =
            command({"report", path("train.plmb"), "-o", path("report.html"), "--svg", path("timeline.svg")},
                    kExitHolds);
        code != kExitHolds)
      return code;
    const auto absolute = [&](const char* name) {
      return std::filesystem::absolute(path(name)).lexically_normal().string();
    };
    say(fmt::format("\nOpen {}\n     {}", absolute("report.html"), absolute("hang.html")));
    return kExitHolds;
  }

  std::string folder_;
  std::vector<std::string> extra_;
  std::string self_;
};

Run build(CLI::App& app) {
  auto folder = std::make_shared<std::string>("plumbline-demo");
  app.add_option("-o,--out", *folder, "folder for what the demo makes (plumbline-demo)");
  app.allow_extras();
  return [&app, folder]() -> int { return Demo(*folder, app.remaining()).run(); };
}

const RegisterCommand kCommand(
    {.name = "demo",
     .summary = "find a real hang, certify its repair, train, and draw the reports",
     .usage = "[-o DIR] [flags for the training run]",
     .examples = {{"plumbline demo", "about half a minute"},
                  {"plumbline demo --train-iters 50", "a shorter training run"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
