#include "engine/storage/save.h"

#include <algorithm>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/storage/layout.h"
#include "engine/storage/safetensors.h"
#include "engine/storage/save_plan.h"

namespace plumbline {
namespace {

class Saver {
 public:
  Saver(FileLayer& files, ControlChannel& channel, const std::string& directory,
        const CheckpointToSave& request, const SaveOptions& options)
      : files_(files),
        channel_(channel),
        directory_(directory),
        request_(request),
        options_(options),
        tracker_{request.release, request.iteration},
        name_(tracker_folder(tracker_)),
        staging_(staging_path(directory, name_)) {}

  Result<Saved> run() {
    PL_TRY(offer());
    PL_TRY(share(lead([this] { return stage(); })));
    const Status written = write_and_report();
    if (!written) {
      // Everyone has stopped writing: all reports are in.
      (void)lead([this] { return remove_tree(files_, staging_); });
      return tl::unexpected(written.error());
    }
    PL_TRY(share(lead([this] { return commit(); })));
    saved_.path = join_path(directory_, name_);
    return std::move(saved_);
  }

 private:
  template <typename Work>
  Status lead(const Work& work) {
    return channel_.rank() == 0 ? work() : Status{};
  }

  // Everyone's status, so that all return the same error.
  Status share(const Status& own) {
    Result<std::vector<std::string>> all = channel_.exchange(own ? "" : own.error().message);
    if (!all) return tl::unexpected(all.error());
    std::string text;
    for (std::size_t rank = 0; rank < all->size(); ++rank) {
      if (!(*all)[rank].empty())
        text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, (*all)[rank]);
    }
    if (text.empty()) return {};
    return fail(own ? ErrorCode::kIo : own.error().code, "nothing was saved: " + text);
  }

  Status offer() {
    const Result<std::vector<std::string>> offers = channel_.exchange(print_offer(request_));
    if (!offers) return tl::unexpected(offers.error());
    Result<Manifest> plan = plan_save(*offers);
    if (!plan) return tl::unexpected(plan.error());
    plan_ = std::move(*plan);
    return {};
  }

  Status stage() {
    PL_TRY(make_directories(files_, directory_));
    Result<std::unique_ptr<FileLock>> lock = files_.lock(lock_path(directory_));
    if (!lock) return tl::unexpected(lock.error());
    lock_ = std::move(*lock);
    PL_TRY(clean_up(files_, directory_));
    return files_.make_directory(staging_);
  }

  // The pieces of this rank that are saved, once each: a rank may hold two copies of one piece.
  std::vector<SafetensorsTensor> own_tensors(ShardReport& report) const {
    std::vector<SafetensorsTensor> tensors;
    for (const PieceToSave& piece : request_.pieces) {
      if (piece.place.elements() == 0) continue;
      const std::string name = piece.key + place_suffix(piece.place, piece.global);
      const Shape shape = piece.place.flattened ? Shape{piece.place.count} : piece.place.shape;
      if (piece.replica == 0) {
        tensors.push_back({name, piece.type, shape, piece.data});
      } else if (options_.compare_copies) {
        report.rows.push_back({piece.key, name,
                               hash64(piece.data, static_cast<std::size_t>(*byte_count(piece.type, shape))),
                               false});
      }
    }
    return tensors;
  }

  Status write_shard(ShardReport& report) {
    std::vector<SafetensorsTensor> tensors = own_tensors(report);
    if (tensors.empty()) return {};
    const std::string path = join_path(staging_, shard_name(channel_.rank(), channel_.size()));
    const Result<WrittenFile> written =
        write_safetensors(files_, path, std::move(tensors), {}, options_.progress);
    if (!written) return tl::unexpected(written.error());
    PL_TRY(files_.sync_directory(staging_));
    report.bytes = written->bytes;
    report.digest = written->header_digest;
    saved_.bytes = written->bytes;
    for (const WrittenTensor& tensor : written->tensors)
      report.rows.push_back({tensor.name, tensor.name, tensor.digest, true});
    return {};
  }

  Status write_and_report() {
    ShardReport report;
    if (const Status done = write_shard(report); !done) {
      report = {};
      report.error = done.error().message;
    }
    const Result<std::vector<std::string>> reports = channel_.exchange(print_report(report));
    if (!reports) return tl::unexpected(reports.error());
    return apply_reports(*reports, plan_);
  }

  Status commit() {
    PL_TRY(write_new_file(files_, join_path(staging_, kManifestName), print_manifest(plan_)));
    PL_TRY(files_.sync_directory(staging_));
    const std::string final_path = join_path(directory_, name_);
    const Result<PathKind> there = files_.kind(final_path);
    if (!there) return tl::unexpected(there.error());
    const bool replaces = *there != PathKind::kAbsent;
    if (replaces) {
      PL_TRY(files_.rename(final_path, aside_path(directory_, name_)));
      PL_TRY(files_.sync_directory(directory_));
    }
    PL_TRY(files_.rename(staging_, final_path));
    PL_TRY(files_.sync_directory(directory_));
    PL_TRY(write_tracker(files_, directory_, tracker_));
    // Committed: from here on nothing is a failure of this save.
    const auto notice = [this](const Status& status) {
      if (!status) saved_.notices.push_back("old checkpoint not removed: " + status.error().message);
    };
    if (replaces) notice(retire(files_, directory_, file_name(aside_path(directory_, name_))));
    notice(drop_old());
    lock_.reset();
    return {};
  }

  Status drop_old() {
    if (options_.keep_last <= 0) return {};
    Result<std::vector<std::int64_t>> iterations = list_iterations(files_, directory_);
    if (!iterations) return tl::unexpected(iterations.error());
    // Counted are checkpoints up to the new one: a run that was set back leaves later ones to its user.
    std::erase_if(*iterations, [&](std::int64_t i) { return tracker_.release || i > request_.iteration; });
    const std::size_t keep = static_cast<std::size_t>(options_.keep_last);
    for (std::size_t i = 0; i + keep < iterations->size(); ++i) {
      const std::string name = iteration_name((*iterations)[i]);
      const Result<PathKind> manifest = files_.kind(join_path(join_path(directory_, name), kManifestName));
      if (!manifest) return tl::unexpected(manifest.error());
      if (*manifest == PathKind::kFile)
        PL_TRY(retire(files_, directory_, name));  // others' are not ours to remove
    }
    return {};
  }

  FileLayer& files_;
  ControlChannel& channel_;
  const std::string& directory_;
  const CheckpointToSave& request_;
  const SaveOptions& options_;
  Tracker tracker_;
  std::string name_;
  std::string staging_;
  Manifest plan_;
  std::unique_ptr<FileLock> lock_;
  Saved saved_;
};

}  // namespace

Result<Saved> save_checkpoint(FileLayer& files, ControlChannel& channel, const std::string& directory,
                              const CheckpointToSave& request, const SaveOptions& options) {
  return Saver(files, channel, directory, request, options).run();
}

}  // namespace plumbline
