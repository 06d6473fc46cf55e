// `plumbline checkpoint`: what is in a checkpoint, whether it is whole, how two differ, and from one form into another.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/engine/progress_bar.h"
#include "engine/checkpoint/any_checkpoint.h"
#include "engine/checkpoint/tensor_types.h"

namespace plumbline::cli {
namespace {

struct Options {
  std::string action;
  std::string path;
  std::string other;
  std::string to = "native";
  int ranks = 1;
  std::int64_t iteration = 0;
  bool drop_objects = false;
  int most = 20;
  double within = 0.0;
};

Result<std::unique_ptr<AnyCheckpoint>> open(const std::string& path) {
  return AnyCheckpoint::open(posix_files(), path);
}

int inspect(const Options& options) {
  const auto checkpoint = open(options.path);
  if (!checkpoint) return report(checkpoint.error());
  print_line((*checkpoint)->format());
  Table table{{"tensor", "dtype", "shape", "bytes"}, {}};
  std::uint64_t total = 0;
  for (const AnyCheckpoint::Tensor& tensor : (*checkpoint)->tensors()) {
    const Result<ElementType> type = element_type_of(tensor.type);
    const std::uint64_t bytes = type ? byte_count(*type, tensor.shape).value_or(0) : 0;
    total += bytes;
    table.rows.push_back({tensor.key, type ? std::string(element_name(*type)) : "?", shape_text(tensor.shape),
                          fmt::format("{}", bytes)});
  }
  print(layout(table, std::max(output_width(), 80)));
  print_line(fmt::format("{} tensors, {} bytes", table.rows.size(), total));
  const std::vector<std::string> objects = (*checkpoint)->objects();
  for (const std::string& key : objects) {
    const Result<StateValue> value = (*checkpoint)->object(key);
    if (!value) return report(value.error());
    print_line(fmt::format("object  {}: {}", key, describe(*value)));
  }
  return kExitHolds;
}

int verify(const Options& options) {
  const auto checkpoint = open(options.path);
  if (!checkpoint) return report(checkpoint.error());
  {
    ProgressBar bar;
    const Status whole =
        (*checkpoint)->verify([&](auto done, auto total, auto what) { bar.show(done, total, what); });
    if (!whole) return report(whole.error());
  }
  print_line(fmt::format("whole: {}", (*checkpoint)->format()));
  return kExitHolds;
}

int diff(const Options& options) {
  const auto left = open(options.path);
  if (!left) return report(left.error());
  const auto right = open(options.other);
  if (!right) return report(right.error());
  const auto found =
      difference(**left, **right, static_cast<std::size_t>(std::max(1, options.most)), options.within);
  if (!found) return report(found.error());
  for (const std::string& line : *found) print_line(line);
  if (found->empty()) {
    print_line(options.within > 0.0 ? fmt::format("equal; elements are at most {} apart", options.within)
                                    : std::string("equal, bit for bit"));
    return kExitHolds;
  }
  return kExitMismatch;
}

int change(const Options& options) {
  const std::pair<const char*, CheckpointFormat> kForms[] = {{"native", CheckpointFormat::kNative},
                                                             {"dcp", CheckpointFormat::kDcp},
                                                             {"huggingface", CheckpointFormat::kHuggingface},
                                                             {"torch", CheckpointFormat::kTorch}};
  ConvertOptions wanted{
      .ranks = options.ranks, .iteration = options.iteration, .drop_objects = options.drop_objects};
  for (const auto& [name, form] : kForms) {
    if (options.to == name) wanted.to = form;
  }
  const Result<PathKind> there = posix_files().kind(options.other);
  if (!there) return report(there.error());
  if (*there != PathKind::kAbsent && options.to != "native")
    return report(Error{
        ErrorCode::kUsage, fmt::format("'{}' is there already; nothing is overwritten", options.other), {}});
  const auto from = open(options.path);
  if (!from) return report(from.error());
  if (const Status whole = (*from)->verify({}); !whole) return report(whole.error());
  if (const Status done = convert(posix_files(), **from, options.other, wanted); !done)
    return report(done.error());
  print_line(fmt::format("written  {}", options.other));
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("action", options->action, "inspect, verify, diff, convert or reshard")
      ->required()
      ->check(CLI::IsMember({"inspect", "verify", "diff", "convert", "reshard"}));
  app.add_option("path", options->path, "a checkpoint: directory or file")->required();
  app.add_option("other", options->other, "diff: the second; convert, reshard: where to write");
  app.add_option("--to", options->to, "convert: native, dcp, huggingface or torch")
      ->check(CLI::IsMember({"native", "dcp", "huggingface", "torch"}));
  app.add_option("--ranks", options->ranks,
                 "convert, reshard: how many parts, cut along the first dimension");
  app.add_option("--iteration", options->iteration, "convert to native: the iteration it is called by");
  app.add_flag("--drop-objects", options->drop_objects,
               "convert to huggingface: leave out what is no tensor");
  app.add_option("--most", options->most, "diff: how many differences to list");
  app.add_option("--within", options->within,
                 "diff: elements of floating-point tensors may be so far apart; 0: bit for bit")
      ->check(CLI::NonNegativeNumber);
  return [=]() -> int {
    const bool two =
        options->action == "diff" || options->action == "convert" || options->action == "reshard";
    if (two == options->other.empty())
      return report(Error{ErrorCode::kUsage,
                          fmt::format("checkpoint {} takes {} paths", options->action, two ? "two" : "one"),
                          {}});
    if (options->action == "inspect") return inspect(*options);
    if (options->action == "verify") return verify(*options);
    if (options->action == "diff") return diff(*options);
    return change(*options);
  };
}

const RegisterCommand kCommand(
    {.name = "checkpoint",
     .summary = "inspect, verify, compare and convert checkpoints",
     .usage = "inspect|verify|diff|convert|reshard PATH [PATH] [flags]",
     .examples = {{"plumbline checkpoint verify ckpt", "the checkpoint that the tracker names"},
                  {"plumbline checkpoint diff a.pt ckpt/iter_0000100", "exit code 4 when they differ"},
                  {"plumbline checkpoint convert model_optim_rng.pt out --iteration 100",
                   "torch.save to plumbline's own"},
                  {"plumbline checkpoint reshard ckpt out --ranks 8 --iteration 100",
                   "as eight ranks would save it"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli
