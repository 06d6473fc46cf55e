#include "engine/train/local_checkpoint.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "engine/base/text.h"

namespace plumbline {
namespace {

// What decides which parts a rank holds.
std::string parts_text(const RunConfig& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  return fmt::format("pp {}, {} chunks a rank, dp {}, {}, {}", config.parallel.pp, config.schedule.chunks,
                     config.parallel.dp, config.parallel.order,
                     optimizer.distributed ? "distributed optimizer" : "replicated optimizer");
}

// Empty, or why the rank cannot go on from it.
std::string misfit(const CheckpointReader& reader, const std::string& parts) {
  const Result<StateValue> value = read_object(reader, kLocalPart);
  const auto* own = value ? value->get<StateDict>() : nullptr;
  const Result<std::string> saved = own == nullptr ? Result<std::string>("unknown") : own->text("parts");
  if (saved && *saved == parts) return {};
  return fmt::format("{}: was saved with {}, this run has {}", reader.path(), saved ? *saved : "unknown",
                     parts);
}

// Of this process, as it is told to all: iterations that its ranks have whole, and a line for each that is not.
std::string print_whole(const std::vector<std::int64_t>& iterations, const std::string& told) {
  return fmt::format("{}\n{}", fmt::join(iterations, " "), told);
}

std::vector<std::int64_t> parse_whole(const std::string& message, std::vector<std::string>& notices) {
  const std::vector<std::string_view> lines = split(message, '\n');
  std::vector<std::int64_t> iterations;
  for (const std::string_view word : split(lines.front(), ' ')) {
    if (const Result<std::int64_t> number = parse_integer(word)) iterations.push_back(*number);
  }
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (!lines[i].empty()) notices.emplace_back(lines[i]);
  }
  return iterations;
}

// Ascending lists.
std::vector<std::int64_t> common(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  std::vector<std::int64_t> out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

}  // namespace

LocalCheckpoints::LocalCheckpoints(FileLayer& files, const RunConfig& config)
    : files_(files), config_(config) {}

std::string LocalCheckpoints::directory_of(Rank rank) const {
  return join_path(config_.checkpoint.non_persistent_local, fmt::format("rank_{:05}", rank));
}

// Ascending.
Status LocalCheckpoints::open_whole(Rank rank, const StorageProgress& progress,
                                    std::vector<CheckpointReader>& whole, std::string& told) const {
  const std::string directory = directory_of(rank);
  const auto tell = [&](const std::string& why) { told += fmt::format("rank {}: {}\n", rank, why); };
  const Result<PathKind> kind = files_.kind(directory);
  if (!kind) return tl::unexpected(kind.error());
  if (*kind == PathKind::kAbsent) {
    tell(directory + ": no such directory, so nothing local");
    return {};
  }
  const Result<std::vector<std::int64_t>> iterations = list_iterations(files_, directory);
  if (!iterations) return tl::unexpected(iterations.error());
  for (const std::int64_t iteration : *iterations) {
    const Result<std::string> path = resolve_folder(files_, directory, iteration_name(iteration));
    if (!path) return tl::unexpected(path.error());
    Result<CheckpointReader> reader = CheckpointReader::open(files_, *path);
    const Status verified = reader ? reader->verify(progress) : tl::unexpected(reader.error());
    if (!verified) {
      tell(verified.error().message);
    } else if (reader->manifest().iteration != iteration) {
      tell(fmt::format("{}: is of iteration {}", *path, reader->manifest().iteration));
    } else {
      whole.push_back(std::move(*reader));
    }
  }
  if (whole.empty()) return {};
  const std::string why = misfit(whole.back(), parts_text(config_));
  if (why.empty()) return {};
  return fail(
      ErrorCode::kState,
      why +
          "; local checkpoints fit the layout that saved them alone: go on with that one, or from the "
          "persistent checkpoint without --non-persistent-ckpt-type");
}

Result<LocalCheckpoints::Found> LocalCheckpoints::find(ControlChannel& processes,
                                                       const std::vector<Rank>& ranks,
                                                       const StorageProgress& progress) const {
  std::vector<std::vector<CheckpointReader>> whole(ranks.size());
  std::string told;
  Status own;
  std::vector<std::int64_t> all_here;
  for (std::size_t i = 0; i < ranks.size() && own; ++i) {
    own = open_whole(ranks[i], progress, whole[i], told);
    std::vector<std::int64_t> iterations;
    for (const CheckpointReader& reader : whole[i]) iterations.push_back(reader.manifest().iteration);
    all_here = i == 0 ? std::move(iterations) : common(all_here, iterations);
  }
  PL_TRY(agree(processes, own));
  const Result<std::vector<std::string>> everyone = processes.exchange(print_whole(all_here, told));
  if (!everyone) return tl::unexpected(everyone.error());
  Found found;
  std::vector<std::int64_t> of_all = all_here;
  for (const std::string& message : *everyone) of_all = common(of_all, parse_whole(message, found.notices));
  if (of_all.empty()) return found;
  found.iteration = of_all.back();
  for (std::vector<CheckpointReader>& of_rank : whole) {
    const auto reader = std::find_if(of_rank.begin(), of_rank.end(), [&](const CheckpointReader& one) {
      return one.manifest().iteration == found.iteration;
    });
    found.readers.push_back(std::move(*reader));
  }
  return found;
}

Result<Saved> LocalCheckpoints::save(ControlChannel& ranks, std::int64_t iteration,
                                     const ShardedStateDict& state, const StorageProgress& progress) const {
  ShardedStateDict own = localized(state, false);
  own.objects.push_back(
      {kLocalPart, StateDict{{"rank", std::int64_t{ranks.rank()}}, {"parts", parts_text(config_)}}, 0});
  SaveOptions options;
  options.progress = progress;
  Result<Saved> saved =
      save_sharded(files_, lone_channel(), directory_of(ranks.rank()), iteration, own, {}, options);
  PL_TRY(agree(ranks, saved ? Status{} : tl::unexpected(saved.error())));
  // Everyone has it: what is older may go.
  if (const Status dropped = drop_others(ranks.rank(), iteration); !dropped)
    saved->notices.push_back("old checkpoint not removed: " + dropped.error().message);
  return saved;
}

Status LocalCheckpoints::drop_others(Rank rank, std::int64_t iteration) const {
  const std::string directory = directory_of(rank);
  const Result<std::unique_ptr<FileLock>> held = files_.lock(lock_path(directory));
  if (!held) return tl::unexpected(held.error());
  Result<std::vector<std::int64_t>> others = list_iterations(files_, directory);
  if (!others) return tl::unexpected(others.error());
  std::erase(*others, iteration);
  return retire_iterations(files_, directory, *others);
}

Status LocalCheckpoints::forget_later(Rank rank, std::int64_t iteration) const {
  return plumbline::forget_later(files_, directory_of(rank), iteration);
}

}  // namespace plumbline
