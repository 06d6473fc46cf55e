#include "engine/storage/save_plan.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/base/json_writer.h"

namespace plumbline {
namespace {

constexpr JsonLimits kMessage{.bytes = std::size_t{1} << 30, .values = std::size_t{64} << 20, .depth = 66};

void write_shape(JsonWriter& json, const char* name, const Shape& shape) {
  json.key(name).begin_array();
  for (const std::int64_t size : shape) json.value(size);
  json.end_array();
}

template <typename T>
Status take(Result<T> result, T& into) {
  if (!result) return tl::unexpected(result.error());
  into = std::move(*result);
  return {};
}

struct Claim {  // one rank's part of a tensor
  int rank = 0;
  int replica = 0;
  Place place;
};

struct TensorClaims {
  ElementType type = ElementType::kF32;
  Shape shape;
  int first_rank = 0;
  std::vector<Claim> claims;
};

struct ObjectClaims {
  int owner = -1;
  JsonValue value;
  std::vector<std::pair<int, std::string>> digests;  // rank, digest
};

class Planner {
 public:
  Status add(int rank, const std::string& offer) {
    const std::string what = fmt::format("offer of rank {}", rank);
    const Result<JsonValue> root = parse_json(offer, what, kMessage);
    if (!root) return tl::unexpected(root.error());
    std::int64_t iteration = 0;
    PL_TRY(take(json_integer(*root, "iteration", what, INT64_MIN), iteration));
    if (rank == 0) iteration_ = iteration;
    if (iteration != iteration_)
      return fail(ErrorCode::kState, fmt::format("rank 0 saves iteration {}, rank {} iteration {}",
                                                 iteration_, rank, iteration));
    if (iteration < 0) return fail(ErrorCode::kState, fmt::format("iteration {} is negative", iteration));
    const JsonArray* array = nullptr;
    PL_TRY(take(json_array(*root, "pieces", what), array));
    for (const JsonValue& piece : *array) PL_TRY(add_piece(rank, piece, what));
    PL_TRY(take(json_array(*root, "objects", what), array));
    for (const JsonValue& object : *array) PL_TRY(add_object(rank, object, what));
    const JsonObject* aliases = nullptr;
    PL_TRY(take(json_object(*root, "aliases", what), aliases));
    for (const auto& [name, key] : *aliases) {
      const std::string* target = key.get<std::string>();
      if (target == nullptr) return fail(ErrorCode::kState, what + ": an alias is no text");
      const auto [at, fresh] = aliases_.emplace(name, *target);
      if (!fresh && at->second != *target)
        return fail(ErrorCode::kState, fmt::format("'{}' is another name of '{}', and of '{}' on rank {}",
                                                   name, at->second, *target, rank));
    }
    return {};
  }

  Result<Manifest> finish(int ranks) {
    Manifest plan;
    plan.iteration = iteration_;
    plan.ranks = ranks;
    for (int rank = 0; rank < ranks; ++rank) plan.files.push_back({shard_name(rank, ranks), 0, 0});
    for (auto& [key, tensor] : tensors_) PL_TRY(finish_tensor(key, tensor, plan));
    for (auto& [key, object] : objects_) PL_TRY(finish_object(key, object, plan));
    for (const auto& [name, key] : aliases_) {
      if (tensors_.count(key) == 0)
        return fail(ErrorCode::kState,
                    fmt::format("'{}' is another name of '{}', which no rank saves", name, key));
      if (tensors_.count(name) != 0)
        return fail(ErrorCode::kState,
                    fmt::format("'{}' is another name of '{}' and a tensor of its own", name, key));
      plan.aliases.emplace_back(name, key);
    }
    return plan;
  }

 private:
  Status add_piece(int rank, const JsonValue& value, const std::string& what) {
    std::string key, type;
    Shape shape;
    Claim claim;
    claim.rank = rank;
    std::int64_t replica = 0;
    PL_TRY(take(json_text(value, "key", what), key));
    PL_TRY(take(json_text(value, "dtype", what), type));
    PL_TRY(take(json_integers(value, "global", what, INT64_MIN), shape));
    PL_TRY(take(json_integers(value, "offset", what, INT64_MIN), claim.place.offset));
    PL_TRY(take(json_integers(value, "shape", what, INT64_MIN), claim.place.shape));
    PL_TRY(take(json_integer(value, "replica", what, INT64_MIN), replica));
    claim.replica = replica == 0 ? 0 : 1;
    if (value.find("begin") != nullptr) {
      claim.place.flattened = true;
      PL_TRY(take(json_integer(value, "begin", what, INT64_MIN), claim.place.begin));
      PL_TRY(take(json_integer(value, "count", what, INT64_MIN), claim.place.count));
    }
    const std::optional<ElementType> known = element_type_from_name(type);
    if (!known || !byte_count(*known, shape))
      return fail(ErrorCode::kState, fmt::format("tensor '{}' of rank {}: {} of {} has no size", key, rank,
                                                 shape_text(shape), type));
    const auto [at, fresh] = tensors_.try_emplace(key, TensorClaims{*known, shape, rank, {}});
    TensorClaims& tensor = at->second;
    if (!fresh && (tensor.type != *known || tensor.shape != shape))
      return fail(ErrorCode::kState, fmt::format("tensor '{}' is {} {} on rank {} and {} {} on rank {}", key,
                                                 element_name(tensor.type), shape_text(tensor.shape),
                                                 tensor.first_rank, type, shape_text(shape), rank));
    PL_TRY(check_place(claim.place, shape, fmt::format("tensor '{}' of rank {}", key, rank)));
    tensor.claims.push_back(std::move(claim));
    return {};
  }

  Status add_object(int rank, const JsonValue& value, const std::string& what) {
    std::string key, digest;
    PL_TRY(take(json_text(value, "key", what), key));
    PL_TRY(take(json_text(value, "digest", what), digest));
    ObjectClaims& object = objects_[key];
    object.digests.emplace_back(rank, digest);
    const JsonValue* content = value.find("value");
    if (content == nullptr) return {};
    if (object.owner >= 0)
      return fail(ErrorCode::kState,
                  fmt::format("object '{}' is saved by rank {} and by rank {}; all but one must "
                              "say that they hold a copy",
                              key, object.owner, rank));
    object.owner = rank;
    object.value = *content;
    return {};
  }

  static Status finish_tensor(const std::string& key, const TensorClaims& tensor, Manifest& plan) {
    ManifestTensor out{key, tensor.type, tensor.shape, {}};
    std::vector<Place> places;
    std::vector<int> ranks;
    for (const Claim& claim : tensor.claims) {
      if (claim.replica != 0 || claim.place.elements() == 0) continue;
      places.push_back(claim.place);
      ranks.push_back(claim.rank);
      out.pieces.push_back({claim.rank, key + place_suffix(claim.place, tensor.shape), claim.place, 0});
    }
    const auto name = [&](std::size_t i) {
      return fmt::format("rank {} ({})", ranks[i], place_text(places[i]));
    };
    PL_TRY(check_cover(tensor.shape, places, name, fmt::format("tensor '{}'", key)));
    std::stable_sort(
        out.pieces.begin(), out.pieces.end(), [](const ManifestPiece& a, const ManifestPiece& b) {
          return std::tie(a.place.offset, a.place.begin) < std::tie(b.place.offset, b.place.begin);
        });
    plan.tensors.push_back(std::move(out));
    return {};
  }

  static Status finish_object(const std::string& key, ObjectClaims& object, Manifest& plan) {
    if (object.owner < 0)
      return fail(ErrorCode::kState,
                  fmt::format("object '{}' is held as a copy by rank {} and saved by no one", key,
                              object.digests.front().first));
    const std::string own = hex64(hash64(print_json(object.value)));
    for (const auto& [rank, digest] : object.digests) {
      if (digest != own)
        return fail(ErrorCode::kState,
                    fmt::format("object '{}' differs between rank {} and rank {}: one key, two "
                                "contents",
                                key, object.owner, rank));
    }
    plan.objects.push_back({key, std::move(object.value)});
    return {};
  }

  std::int64_t iteration_ = 0;
  std::map<std::string, TensorClaims> tensors_;
  std::map<std::string, ObjectClaims> objects_;
  std::map<std::string, std::string> aliases_;
};

}  // namespace

std::string shard_name(int rank, int ranks) {
  return fmt::format("shard_{:05}_of_{:05}.safetensors", rank, ranks);
}

std::string print_offer(const CheckpointToSave& request) {
  JsonWriter json;
  json.begin_object().field("iteration", request.iteration).key("pieces").begin_array();
  for (const PieceToSave& piece : request.pieces) {
    json.begin_object().field("key", piece.key).field("dtype", element_name(piece.type));
    write_shape(json, "global", piece.global);
    write_shape(json, "offset", piece.place.offset);
    write_shape(json, "shape", piece.place.shape);
    if (piece.place.flattened) json.field("begin", piece.place.begin).field("count", piece.place.count);
    json.field("replica", piece.replica).end_object();
  }
  json.end_array().key("objects").begin_array();
  for (const ObjectToSave& object : request.objects) {
    const std::string digest = hex64(hash64(print_json(object.value)));
    json.begin_object().field("key", object.key).field("digest", digest);
    if (object.replica == 0) {
      json.key("value");
      write_json(object.value, json);
    }
    json.end_object();
  }
  json.end_array().key("aliases").begin_object();
  for (const auto& [name, key] : request.aliases) json.field(name, key);
  json.end_object().end_object();
  return json.text();
}

Result<Manifest> plan_save(const std::vector<std::string>& offers) {
  Planner planner;
  for (std::size_t rank = 0; rank < offers.size(); ++rank)
    PL_TRY(planner.add(static_cast<int>(rank), offers[rank]));
  return planner.finish(static_cast<int>(offers.size()));
}

std::string print_report(const ShardReport& report) {
  JsonWriter json;
  json.begin_object().field("error", report.error).field("bytes", report.bytes);
  json.field("digest", hex64(report.digest)).key("rows").begin_array();
  for (const ShardReport::Row& row : report.rows) {
    json.begin_object().field("key", row.key).field("tensor", row.tensor).field("digest", hex64(row.digest));
    json.field("written", row.written).end_object();
  }
  json.end_array().end_object();
  return json.text();
}

Result<ShardReport> parse_report(const std::string& text) {
  const std::string what = "report of a rank";
  const Result<JsonValue> root = parse_json(text, what, kMessage);
  if (!root) return tl::unexpected(root.error());
  ShardReport report;
  std::string digest;
  std::int64_t bytes = 0;
  PL_TRY(take(json_text(*root, "error", what), report.error));
  PL_TRY(take(json_integer(*root, "bytes", what), bytes));
  PL_TRY(take(json_text(*root, "digest", what), digest));
  report.bytes = static_cast<std::uint64_t>(bytes);
  report.digest = std::strtoull(digest.c_str(), nullptr, 16);
  const Result<const JsonArray*> rows = json_array(*root, "rows", what);
  if (!rows) return tl::unexpected(rows.error());
  for (const JsonValue& value : **rows) {
    ShardReport::Row row;
    PL_TRY(take(json_text(value, "key", what), row.key));
    PL_TRY(take(json_text(value, "tensor", what), row.tensor));
    PL_TRY(take(json_text(value, "digest", what), digest));
    row.digest = std::strtoull(digest.c_str(), nullptr, 16);
    const JsonValue* written = value.find("written");
    row.written = written != nullptr && written->get<bool>() != nullptr && *written->get<bool>();
    report.rows.push_back(std::move(row));
  }
  return report;
}

Status apply_reports(const std::vector<std::string>& texts, Manifest& plan) {
  std::vector<ShardReport> reports;
  std::string failures;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    Result<ShardReport> report = parse_report(texts[rank]);
    if (!report) return tl::unexpected(report.error());
    if (!report->error.empty())
      failures += fmt::format("{}rank {}: {}", failures.empty() ? "" : "; ", rank, report->error);
    reports.push_back(std::move(*report));
  }
  if (!failures.empty()) return fail(ErrorCode::kIo, "nothing was saved: " + failures);
  std::map<std::pair<int, std::string>, std::uint64_t> written;  // by rank and name in the file
  std::map<std::string, std::pair<int, std::uint64_t>> saved;    // by name: who saved it, and what
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    for (const ShardReport::Row& row : reports[rank].rows) {
      if (!row.written) continue;
      written[{static_cast<int>(rank), row.tensor}] = row.digest;
      saved[row.tensor] = {static_cast<int>(rank), row.digest};
    }
  }
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    for (const ShardReport::Row& row : reports[rank].rows) {
      const auto main = saved.find(row.tensor);
      if (row.written || main == saved.end() || main->second.second == row.digest) continue;
      return fail(
          ErrorCode::kState,
          fmt::format("tensor '{}': rank {} and rank {} hold different values of '{}'; they are declared "
                      "copies of each other",
                      row.key, main->second.first, rank, row.tensor));
    }
  }
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    plan.files[rank].bytes = reports[rank].bytes;
    plan.files[rank].digest = reports[rank].digest;
  }
  for (ManifestTensor& tensor : plan.tensors) {
    for (ManifestPiece& piece : tensor.pieces) {
      const auto digest = written.find({piece.file, piece.tensor});
      if (digest == written.end())
        return fail(ErrorCode::kState, fmt::format("rank {} did not write '{}'", piece.file, piece.tensor));
      piece.digest = digest->second;
    }
  }
  // Ranks that wrote no file.
  std::vector<int> index(plan.files.size(), -1);
  std::vector<ManifestFile> kept;
  for (std::size_t i = 0; i < plan.files.size(); ++i) {
    if (plan.files[i].bytes == 0) continue;
    index[i] = static_cast<int>(kept.size());
    kept.push_back(plan.files[i]);
  }
  plan.files = std::move(kept);
  for (ManifestTensor& tensor : plan.tensors) {
    for (ManifestPiece& piece : tensor.pieces) piece.file = index[static_cast<std::size_t>(piece.file)];
  }
  return {};
}

}  // namespace plumbline
