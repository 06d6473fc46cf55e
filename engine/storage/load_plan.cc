#include "engine/storage/load_plan.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/storage/strict_json.h"

namespace plumbline {
namespace {

constexpr JsonLimits kMessage{.bytes = std::size_t{1} << 30, .values = std::size_t{64} << 20, .depth = 66};

template <typename T>
Status take(Result<T> result, T& into) {
  if (!result) return tl::unexpected(result.error());
  into = std::move(*result);
  return {};
}

struct Request {
  std::string type;
  Shape shape;
  std::vector<Place> places;
  int rank = 0;
};

bool waived(const std::string& key, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    if (name.ends_with('*')) return key.starts_with(std::string_view(name).substr(0, name.size() - 1));
    return name == key;
  });
}

Status read_requests(const std::vector<std::string>& texts, std::map<std::string, Request>& tensors,
                     std::set<std::string>& objects) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string what = fmt::format("request of rank {}", rank);
    const Result<JsonValue> root = parse_json(texts[rank], what, kMessage);
    if (!root) return tl::unexpected(root.error());
    const JsonArray* array = nullptr;
    PL_TRY(take(json_array(*root, "pieces", what), array));
    for (const JsonValue& value : *array) {
      std::string key, type;
      Shape shape;
      Place place;
      PL_TRY(take(json_text(value, "key", what), key));
      PL_TRY(take(json_text(value, "dtype", what), type));
      PL_TRY(take(json_integers(value, "global", what), shape));
      PL_TRY(take(json_integers(value, "offset", what), place.offset));
      PL_TRY(take(json_integers(value, "shape", what), place.shape));
      if (value.find("begin") != nullptr) {
        place.flattened = true;
        PL_TRY(take(json_integer(value, "begin", what), place.begin));
        PL_TRY(take(json_integer(value, "count", what), place.count));
      }
      Request& request =
          tensors.try_emplace(key, Request{type, shape, {}, static_cast<int>(rank)}).first->second;
      if (request.type != type || request.shape != shape)
        return fail(
            ErrorCode::kState,
            fmt::format("'{}' is wanted as {} {} by rank {} and as {} {} by rank {}", key, request.type,
                        shape_text(request.shape), request.rank, type, shape_text(shape), rank));
      PL_TRY(check_place(place, shape, fmt::format("'{}' of rank {}", key, rank)));
      request.places.push_back(std::move(place));
    }
    PL_TRY(take(json_array(*root, "objects", what), array));
    for (const JsonValue& value : *array) {
      std::string key;
      PL_TRY(take(json_text(value, "key", what), key));
      objects.insert(key);
    }
  }
  return {};
}

// Empty, or why the file's tensor cannot be read into the request.
std::string mismatch(const std::string& key, const Request& request, const ManifestTensor& tensor,
                     const LoadRules& rules) {
  if (request.type != element_name(tensor.type))
    return fmt::format("'{}' is {} in the file and {} here", key, element_name(tensor.type), request.type);
  const auto padded = rules.padded_rows.find(key);
  if (request.shape != tensor.shape) {
    const bool rows_only =
        padded != rules.padded_rows.end() && !request.shape.empty() &&
        request.shape.size() == tensor.shape.size() &&
        std::equal(request.shape.begin() + 1, request.shape.end(), tensor.shape.begin() + 1) &&
        std::min(request.shape[0], tensor.shape[0]) >= padded->second;
    if (!rows_only)
      return fmt::format("'{}' is {} in the file and {} here", key, shape_text(tensor.shape),
                         shape_text(request.shape));
  }
  // Every element is wanted by someone.
  std::vector<Run> runs;
  for (const Place& place : request.places) {
    const std::vector<Run> more = runs_of(place, request.shape);
    runs.insert(runs.end(), more.begin(), more.end());
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.global < b.global; });
  std::int64_t at = 0;
  for (const Run& run : runs) {
    if (run.global > at) break;
    at = std::max(at, run.global + run.length);
  }
  if (at < *element_count(request.shape))
    return fmt::format("element {} of '{}' {} is asked for by no rank", at, key, shape_text(request.shape));
  return {};
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  const std::vector<std::string> some(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, names.size())));
  return fmt::format("{}{}", fmt::join(some, ", "),
                     names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "");
}

}  // namespace

Result<LoadPlan> plan_load(const std::vector<std::string>& requests, const Manifest& manifest,
                           const LoadRules& rules) {
  std::map<std::string, Request> tensors;
  std::set<std::string> objects;
  PL_TRY(read_requests(requests, tensors, objects));
  LoadPlan plan;
  std::vector<std::string> missing, unused, wrong;
  std::set<std::string> used;
  const auto absent = [&](const std::string& key) {
    (waived(key, rules.may_be_missing) ? plan.missing : missing).push_back(key);
  };
  for (const auto& [key, request] : tensors) {
    const ManifestTensor* tensor = manifest.find(key);
    if (tensor == nullptr) {
      absent(key);
      continue;
    }
    used.insert(tensor->key);
    if (std::string why = mismatch(key, request, *tensor, rules); !why.empty())
      wrong.push_back(std::move(why));
  }
  for (const std::string& key : objects) {
    if (manifest.find_object(key) == nullptr) absent(key);
  }
  const auto left = [&](const std::string& key) {
    (waived(key, rules.may_be_unused) ? plan.unused : unused).push_back(key);
  };
  for (const ManifestTensor& tensor : manifest.tensors) {
    // Tensors inside objects are asked for with them.
    const std::size_t hash = tensor.key.rfind('#');
    const bool inside = tensor.key.starts_with(kObjectTensor) && hash != std::string::npos;
    if (!inside && used.count(tensor.key) == 0) left(tensor.key);
  }
  for (const ManifestObject& object : manifest.objects) {
    if (objects.count(object.key) == 0) left(object.key);
  }
  std::string text;
  const auto say = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", what, listed(names));
  };
  say("not in the checkpoint", missing);
  say("in the checkpoint and asked for by no one", unused);
  say("does not fit", wrong);
  if (!text.empty()) return fail(ErrorCode::kState, text);
  return plan;
}

}  // namespace plumbline
