#include "engine/optim/state_pieces.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

constexpr const char* kFormat = "pieces";

tl::unexpected<Error> bad_piece(std::size_t index, const std::string& what) {
  return fail(ErrorCode::kState, fmt::format("parameter state, piece {}: {}", index, what));
}

Result<StatePiece> piece_of(const StateDict& saved, std::size_t index) {
  StatePiece piece;
  const Result<std::string> param = saved.text("param");
  if (!param) return bad_piece(index, param.error().message);
  piece.range.param = *param;
  const std::pair<const char*, std::int64_t*> integers[] = {{"numel", &piece.numel},
                                                            {"begin", &piece.range.begin},
                                                            {"end", &piece.range.end},
                                                            {"step", &piece.step}};
  for (const auto& [key, value] : integers) {
    const Result<std::int64_t> read = saved.integer(key);
    if (!read) return bad_piece(index, read.error().message);
    *value = *read;
  }
  if (piece.range.begin < 0 || piece.range.begin >= piece.range.end || piece.range.end > piece.numel ||
      piece.step < 0) {
    return bad_piece(index,
                     fmt::format("elements {} to {} of {} of {} at step {}; a piece is not empty and lies "
                                 "within its parameter",
                                 piece.range.begin, piece.range.end, piece.numel, *param, piece.step));
  }
  const Result<const StateDict*> tensors = saved.dict("tensors");
  if (!tensors) return bad_piece(index, tensors.error().message);
  for (const auto& [key, value] : **tensors) {
    const auto* tensor = value.get<at::Tensor>();
    if (tensor == nullptr || tensor->dim() != 1 || tensor->numel() != piece.range.end - piece.range.begin ||
        !at::isFloatingType(tensor->scalar_type())) {
      return bad_piece(index, fmt::format("{} of {} is {}; wanted {} numbers", key, *param, describe(value),
                                          piece.range.end - piece.range.begin));
    }
    piece.tensors.emplace_back(key, *tensor);
  }
  return piece;
}

const at::Tensor* find_tensor(const StatePiece& piece, const std::string& key) {
  const auto found = std::find_if(piece.tensors.begin(), piece.tensors.end(),
                                  [&](const auto& entry) { return entry.first == key; });
  return found == piece.tensors.end() ? nullptr : &found->second;
}

}  // namespace

Status verify_exact_cover(std::vector<FlatRange> ranges, const ParamSizes& sizes) {
  std::sort(ranges.begin(), ranges.end(), [](const FlatRange& a, const FlatRange& b) {
    return std::tie(a.param, a.begin, a.end) < std::tie(b.param, b.begin, b.end);
  });
  auto range = ranges.begin();
  for (const auto& [param, numel] : sizes) {
    if (range != ranges.end() && range->param < param) break;  // a parameter that is not wanted
    std::int64_t covered = 0;
    for (; range != ranges.end() && range->param == param; ++range) {
      const bool twice = range->begin < covered;
      if (twice || range->begin > covered || range->end > numel) {
        const std::int64_t element = range->end > numel ? numel : std::min(range->begin, covered);
        return fail(
            ErrorCode::kState,
            fmt::format("the state of {} ({} elements): element {} is {}; every element must be there "
                        "exactly once",
                        param, numel, element,
                        range->end > numel ? "beyond the end" : (twice ? "there twice" : "missing")));
      }
      covered = range->end;
    }
    if (covered < numel) {
      return fail(
          ErrorCode::kState,
          fmt::format("the state of {} ({} elements): element {} is missing; every element must be there "
                      "exactly once",
                      param, numel, covered));
    }
  }
  if (range != ranges.end()) {
    return fail(
        ErrorCode::kState,
        fmt::format("the state has a parameter {} that this rank's model does not have", range->param));
  }
  return {};
}

std::string piece_name(const Parameter& parameter) {
  return parameter.shared ? parameter.name + "@shared" : parameter.name;
}

StateDict to_state_dict(const std::vector<StatePiece>& pieces) {
  StateList list;
  for (const StatePiece& piece : pieces) {
    StateDict tensors;
    for (const auto& [key, tensor] : piece.tensors) tensors[key] = tensor;
    list.emplace_back(StateDict{{"param", piece.range.param},
                                {"numel", piece.numel},
                                {"begin", piece.range.begin},
                                {"end", piece.range.end},
                                {"step", piece.step},
                                {"tensors", std::move(tensors)}});
  }
  return {{"format", kFormat}, {"pieces", std::move(list)}};
}

Result<std::vector<StatePiece>> pieces_of(const StateDict& state) {
  const Result<std::string> format = state.text("format");
  if (!format) return tl::unexpected(format.error());
  if (*format != kFormat) {
    return fail(ErrorCode::kState, fmt::format("parameter state of format \"{}\"; \"{}\" is read (Megatron's "
                                               "coalesced form with update_legacy_format)",
                                               *format, kFormat));
  }
  const Result<const StateList*> list = state.list("pieces");
  if (!list) return tl::unexpected(list.error());
  std::vector<StatePiece> pieces;
  for (std::size_t i = 0; i < (*list)->size(); ++i) {
    const auto* saved = (**list)[i].get<StateDict>();
    if (saved == nullptr) return bad_piece(i, "is " + describe((**list)[i]) + ", not a dict");
    Result<StatePiece> piece = piece_of(*saved, i);
    if (!piece) return tl::unexpected(piece.error());
    pieces.push_back(std::move(*piece));
  }
  return pieces;
}

Result<StateDict> merge_parameter_states(std::span<const StateDict> states) {
  std::vector<StatePiece> all;
  for (const StateDict& state : states) {
    Result<std::vector<StatePiece>> pieces = pieces_of(state);
    if (!pieces) return tl::unexpected(pieces.error());
    std::move(pieces->begin(), pieces->end(), std::back_inserter(all));
  }
  return to_state_dict(all);
}

Result<PieceIndex> PieceIndex::create(std::vector<StatePiece> pieces, const ParamSizes& wanted) {
  PieceIndex index;
  std::set<std::string> keys;
  for (const StatePiece& piece : pieces) {
    for (const auto& [key, tensor] : piece.tensors) keys.insert(key);
    const auto size = wanted.find(piece.range.param);
    if (size != wanted.end() && size->second != piece.numel) {
      return fail(ErrorCode::kState, fmt::format("the state of {} has {} elements, the parameter {}",
                                                 piece.range.param, piece.numel, size->second));
    }
  }
  index.keys_.assign(keys.begin(), keys.end());
  std::vector<FlatRange> all;
  for (const StatePiece& piece : pieces) all.push_back(piece.range);
  PL_TRY(verify_exact_cover(std::move(all), wanted));
  for (const std::string& key : index.keys_) {
    std::vector<FlatRange> having;
    for (const StatePiece& piece : pieces) {
      if (find_tensor(piece, key) != nullptr) having.push_back(piece.range);
    }
    if (const Status cover = verify_exact_cover(std::move(having), wanted); !cover) {
      return fail(cover.error().code, key + ": " + cover.error().message);
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const StatePiece& a, const StatePiece& b) { return a.range.begin < b.range.begin; });
  for (StatePiece& piece : pieces) index.by_param_[piece.range.param].push_back(std::move(piece));
  return index;
}

bool PieceIndex::has(const std::string& key) const {
  return std::binary_search(keys_.begin(), keys_.end(), key);
}

std::vector<std::string> PieceIndex::keys() const { return keys_; }

void PieceIndex::read(const std::string& param, const std::string& key, std::int64_t begin,
                      const at::Tensor& target) const {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = target.view({-1});
  const std::int64_t end = begin + flat.numel();
  const auto found = by_param_.find(param);
  if (flat.numel() == 0) return;
  PL_ASSERT(found != by_param_.end());
  std::int64_t copied = 0;
  for (const StatePiece& piece : found->second) {
    const std::int64_t from = std::max(begin, piece.range.begin), to = std::min(end, piece.range.end);
    if (from >= to) continue;
    flat.narrow(0, from - begin, to - from)
        .copy_(find_tensor(piece, key)->narrow(0, from - piece.range.begin, to - from));
    copied += to - from;
  }
  PL_ASSERT(copied == flat.numel());
}

Result<std::optional<std::int64_t>> PieceIndex::step(const std::string& param) const {
  const auto found = by_param_.find(param);
  if (found == by_param_.end()) return std::nullopt;
  const std::int64_t first = found->second.front().step;
  for (const StatePiece& piece : found->second) {
    if (piece.step == first) continue;
    return fail(ErrorCode::kState,
                fmt::format("the state of {} is of step {} at its begin and of step {} from "
                            "element {} on; pieces of one checkpoint have one step",
                            param, first, piece.step, piece.range.begin));
  }
  return first;
}

}  // namespace plumbline
