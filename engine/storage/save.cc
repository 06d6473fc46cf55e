#include "engine/storage/save.h"

#include <algorithm>

#include "engine/base/hash.h"
#include "engine/storage/commit.h"
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
        commit_(files, channel, directory, Tracker{request.release, request.iteration}) {}

  Result<Saved> run() {
    PL_TRY(offer());
    PL_TRY(commit_.begin());
    const Status written = write_and_report();
    if (!written) {
      // Everyone has stopped writing: all reports are in.
      commit_.abandon();
      return tl::unexpected(written.error());
    }
    const auto manifest = [this] {
      return write_new_file(files_, join_path(commit_.staging(), kManifestName), print_manifest(plan_));
    };
    PL_TRY(commit_.commit(
        manifest, [this] { return drop_old(); }, saved_.notices));
    saved_.path = commit_.path();
    return std::move(saved_);
  }

 private:
  Status offer() {
    const Result<std::vector<std::string>> offers = channel_.exchange(print_offer(request_));
    if (!offers) return tl::unexpected(offers.error());
    Result<Manifest> plan = plan_save(*offers);
    if (!plan) return tl::unexpected(plan.error());
    plan_ = std::move(*plan);
    return {};
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
    const std::string path = join_path(commit_.staging(), shard_name(channel_.rank(), channel_.size()));
    const Result<WrittenFile> written =
        write_safetensors(files_, path, std::move(tensors), {}, options_.progress);
    if (!written) return tl::unexpected(written.error());
    PL_TRY(files_.sync_directory(commit_.staging()));
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

  Status drop_old() {
    if (options_.keep_last <= 0) return {};
    Result<std::vector<std::int64_t>> iterations = list_iterations(files_, directory_);
    if (!iterations) return tl::unexpected(iterations.error());
    // Counted are checkpoints up to the new one: a run that was set back leaves later ones to its user.
    std::erase_if(*iterations, [&](std::int64_t i) { return request_.release || i > request_.iteration; });
    const std::size_t keep = static_cast<std::size_t>(options_.keep_last);
    iterations->resize(iterations->size() - std::min(keep, iterations->size()));
    return retire_iterations(files_, directory_, *iterations);
  }

  FileLayer& files_;
  ControlChannel& channel_;
  const std::string& directory_;
  const CheckpointToSave& request_;
  const SaveOptions& options_;
  DirectoryCommit commit_;
  Manifest plan_;
  Saved saved_;
};

}  // namespace

Result<Saved> save_checkpoint(FileLayer& files, ControlChannel& channel, const std::string& directory,
                              const CheckpointToSave& request, const SaveOptions& options) {
  return Saver(files, channel, directory, request, options).run();
}

}  // namespace plumbline
