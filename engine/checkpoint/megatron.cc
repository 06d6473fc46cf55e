#include "engine/checkpoint/megatron.h"

#include <fmt/format.h>

#include "engine/checkpoint/torch_file.h"
#include "engine/storage/commit.h"
#include "engine/storage/read.h"

namespace plumbline {
namespace {

constexpr const char* kMain = "model_optim_rng.pt";
constexpr const char* kDistributed = "distrib_optim.pt";

// Why a rank's folder is not there, where its checkpoint is: Megatron's files fit the layout that saved them.
Error other_layout(FileLayer& files, const FoundCheckpoint& found, const std::string& folder) {
  std::string there;
  if (const Result<std::vector<std::string>> names = files.list(found.path); names) {
    for (const std::string& name : *names)
      if (name.rfind("mp_rank_", 0) == 0) there += (there.empty() ? "" : ", ") + name;
  }
  return {
      ErrorCode::kState,
      fmt::format("{}: has no {} but {}; Megatron's files load in the tensor and pipeline layout that saved "
                  "them - load them there and save plumbline's own format, which any layout loads",
                  found.path, folder, there.empty() ? "no mp_rank folder at all" : there),
      {}};
}

Status load_own(FileLayer& files, const FoundCheckpoint& found, const MegatronPlace& place,
                const StateDict& args, const MegatronLoadOptions& options, MegatronLoaded& loaded) {
  const std::string folder = join_path(found.path, megatron_folder(place));
  const std::string path = join_path(folder, kMain);
  const Result<PathKind> there = files.kind(folder);
  if (!there) return tl::unexpected(there.error());
  if (*there == PathKind::kAbsent) return tl::unexpected(other_layout(files, found, megatron_folder(place)));
  const Result<StateValue> value = read_torch_file(files, path);
  if (!value) return tl::unexpected(value.error());
  Result<MegatronLoaded> read = megatron_contents(*value, path, found.tracker.release, options);
  if (!read) return tl::unexpected(read.error());
  loaded = std::move(*read);
  if (!options.finetune) {
    if (const Status same = compare_megatron_args(loaded.contents.args, args, loaded.contents.version,
                                                  options.compare_vocabulary);
        !same)
      return fail(ErrorCode::kState, fmt::format("{}: {}", path, same.error().message));
  }
  if (loaded.contents.optimizer.none()) return {};
  const std::string distributed = join_path(folder, kDistributed);
  const Result<PathKind> kind = files.kind(distributed);
  if (!kind) return tl::unexpected(kind.error());
  if (*kind == PathKind::kAbsent) return {};
  Result<StateValue> state = read_torch_file(files, distributed);
  if (!state) return tl::unexpected(state.error());
  if (state->get<StateDict>() == nullptr)
    return fail(ErrorCode::kState, fmt::format("{}: holds {}", distributed, describe(*state)));
  loaded.distributed_optimizer = *state->get<StateDict>();
  return {};
}

}  // namespace

Result<std::string> save_megatron(FileLayer& files, ControlChannel& channel, const std::string& directory,
                                  const MegatronPlace& place, const MegatronContents& contents,
                                  const std::optional<StateDict>& distributed_optimizer,
                                  const MegatronSaveOptions& options) {
  const Tracker tracker{options.release, contents.iteration};
  return commit_directory(files, channel, directory, tracker, [&](const std::string& staging) -> Status {
    if (place.dp != 0) return {};
    const std::string folder = join_path(staging, megatron_folder(place));
    PL_TRY(files.make_directory(folder));  // two ranks of one name are an error, not a mixture
    PL_TRY(write_torch_file(files, join_path(folder, kMain), megatron_dict(contents, options)));
    if (distributed_optimizer && !options.no_save_optim)
      PL_TRY(write_torch_file(files, join_path(folder, kDistributed), *distributed_optimizer));
    return files.sync_directory(folder);
  });
}

Result<MegatronLoaded> load_megatron(FileLayer& files, ControlChannel& channel, const std::string& directory,
                                     const MegatronPlace& place, const StateDict& args,
                                     const MegatronLoadOptions& options) {
  const Result<std::optional<FoundCheckpoint>> found =
      find_checkpoint(files, channel, directory, options.iteration);
  if (!found) return tl::unexpected(found.error());
  MegatronLoaded loaded;
  if (!*found) {
    loaded.notices.push_back(
        fmt::format("{}: no {}, nothing is loaded and training starts at 0", directory, kTrackerName));
    return loaded;
  }
  Status own = load_own(files, **found, place, args, options, loaded);
  if (own && !options.finetune && !(*found)->tracker.release &&
      loaded.contents.iteration != (*found)->tracker.iteration)
    own = fail(ErrorCode::kState,
               fmt::format("{}: holds iteration {}", (*found)->path, loaded.contents.iteration));
  PL_TRY(agree(channel, own));
  // The version must be one for all, because it says how weights are ordered.
  const Result<std::vector<std::string>> versions =
      channel.exchange(fmt::format("{}", loaded.contents.version));
  if (!versions) return tl::unexpected(versions.error());
  for (std::size_t rank = 0; rank < versions->size(); ++rank) {
    if ((*versions)[rank] != versions->front())
      return fail(ErrorCode::kState, fmt::format("checkpoint_version is {} on rank 0 and {} on rank {}",
                                                 versions->front(), (*versions)[rank], rank));
  }
  return loaded;
}

}  // namespace plumbline
