#include "engine/train/step_report.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/model/precision.h"
#include "engine/train/digests.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;

Json bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const at::Tensor dense = tensor.detach().contiguous();
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(dense.nbytes()));
  if (!bytes.empty()) std::memcpy(bytes.data(), dense.data_ptr(), bytes.size());
  return Json::array({static_cast<int>(dense.scalar_type()), Json::binary(std::move(bytes))});
}

at::Tensor tensor_of(const Json& json) {
  if (json.is_null()) return {};
  const auto type = static_cast<at::ScalarType>(json.at(0).get<int>());
  const auto& bytes = json.at(1).get_binary();
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size() / at::elementSize(type))},
                                at::TensorOptions().dtype(type));
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

Json held_json(const std::vector<StepReport::Held>& held) {
  Json rows = Json::array();
  for (const StepReport::Held& h : held) rows.push_back({h.name, h.global, h.begin, h.digest});
  return rows;
}

std::vector<StepReport::Held> held_of(const Json& rows) {
  std::vector<StepReport::Held> out;
  for (const Json& row : rows) out.push_back({row.at(0), row.at(1), row.at(2), row.at(3)});
  return out;
}

Json toy_json(const std::vector<ToyFinding>& toy) {
  Json rows = Json::array();
  for (const ToyFinding& t : toy)
    rows.push_back({static_cast<int>(t.fault), t.rank, t.stage, t.replica, t.microbatch, t.other, t.text});
  return rows;
}

std::vector<ToyFinding> toy_of(const Json& rows) {
  std::vector<ToyFinding> out;
  for (const Json& row : rows)
    out.push_back({static_cast<ToyFault>(row.at(0).get<int>()), row.at(1), row.at(2), row.at(3), row.at(4),
                   row.at(5), row.at(6)});
  return out;
}

Json piece_json(const StepReport::Piece& piece) {
  const RankModel::OwnPart& part = piece.part;
  return {piece.slice.name,
          piece.slice.global,
          piece.slice.size,
          part.begin,
          bytes_of(part.value),
          bytes_of(part.main),
          bytes_of(part.state.exp_avg),
          bytes_of(part.state.exp_avg_sq),
          bytes_of(part.state.momentum_buffer),
          part.state.step};
}

StepReport::Piece piece_of(const Json& row) {
  StepReport::Piece piece;
  piece.slice.name = row.at(0);
  piece.slice.global = row.at(1);
  piece.slice.size = row.at(2);
  piece.part.begin = row.at(3);
  piece.part.value = tensor_of(row.at(4));
  piece.part.main = tensor_of(row.at(5));
  piece.part.state.exp_avg = tensor_of(row.at(6));
  piece.part.state.exp_avg_sq = tensor_of(row.at(7));
  piece.part.state.momentum_buffer = tensor_of(row.at(8));
  piece.part.state.step = row.at(9);
  return piece;
}

std::string scaler_words(const LossScaler* scaler) {
  if (scaler == nullptr) return "none";
  return fmt::format("kind {}, scale {}, growth tracker {}, hysteresis tracker {}",
                     static_cast<int>(scaler->kind()), scaler->scale(), scaler->growth_tracker(),
                     scaler->hysteresis_tracker());
}

}  // namespace

StepReport report_of(const StageWorker& worker, const RunConfig& config, const ReportWishes& wishes) {
  const RankModel& model = worker.model();
  StepReport report;
  report.rank = worker.rank();
  report.replica = config.grid.coordinate(worker.rank(), Axis::kDp);
  report.result = worker.result();
  report.scale_after = model.scale();
  report.scaler = scaler_words(model.scaler());
  if (wishes.values) {
    for (const ParameterSlice& slice : model.slices())
      report.values.push_back({slice.name, slice.global, 0, model.parameter_digest(slice)});
  }
  if (!wishes.states && !wishes.digests) return report;
  const bool answers = config.optimizer.distributed || config.grid.coordinate(worker.rank(), Axis::kDp) == 0;
  for (RankModel::OwnPart& part : model.own_parts()) {
    if (wishes.states)
      report.states.push_back({part.slice->name, part.slice->global, part.begin, state_digest(part)});
    if (!wishes.digests || !answers || !part.slice->counted) continue;
    if (part.begin == 0 && part.end() == part.slice->size) {
      const ParameterDigests digests = digest_of_parameter({&part, 1});
      report.whole.push_back({part.slice->global, digests.value, digests.state});
    } else {
      const ParameterSlice slice = *part.slice;
      part.slice = nullptr;
      report.pieces.push_back({slice, std::move(part)});
    }
  }
  return report;
}

std::vector<ToyFinding> toy_findings(const StageWorker& worker, const RunConfig& config, std::int64_t step) {
  ToyStep toy;
  toy.dtype = dtype_of(config.train.precision);
  toy.microbatches = config.passes();
  toy.replicas = config.parallel.dp;
  toy.step = step;
  toy.factor = static_cast<float>(static_cast<double>(worker.result().scale) / toy.entries());
  toy.inverse = worker.model().scaler() != nullptr ? worker.model().scaler()->inverse() : 1.0f;
  std::vector<ToyFinding> out;
  for (const RankModel::OwnPart& part : worker.model().own_parts()) {
    const at::Tensor dense = part.gradient.contiguous();
    const std::span<const float> values(dense.data_ptr<float>(), static_cast<std::size_t>(dense.numel()));
    auto found =
        check_toy_gradient(toy, worker.rank(), part.slice->stage, values, static_cast<int>(part.begin));
    std::move(found.begin(), found.end(), std::back_inserter(out));
  }
  return out;
}

std::string report_bytes(const StepReport& report) {
  const StepResult& result = report.result;
  Json json;
  json["rank"] = report.rank;
  json["replica"] = report.replica;
  json["losses"] = result.losses;
  json["flags"] = {result.updated, result.skipped, result.rolled_back};
  json["numbers"] = {result.norm, result.lr, static_cast<double>(result.scale),
                     static_cast<double>(report.scale_after)};
  json["zeros"] = result.zeros;
  json["scaler"] = report.scaler;
  json["time"] = {report.begin, report.end};
  if (!report.findings.empty()) {
    Verdict verdict;
    verdict.findings = report.findings;
    json["findings"] = verdict_json(verdict);
  }
  json["toy"] = toy_json(report.toy);
  json["values"] = held_json(report.values);
  json["states"] = held_json(report.states);
  json["whole"] = Json::array();
  for (const StepReport::Whole& whole : report.whole)
    json["whole"].push_back({whole.global, whole.value, whole.state});
  json["pieces"] = Json::array();
  for (const StepReport::Piece& piece : report.pieces) json["pieces"].push_back(piece_json(piece));
  const std::vector<std::uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

Result<StepReport> parse_report(std::string_view bytes) {
  try {
    const Json json = Json::from_cbor(bytes.begin(), bytes.end());
    StepReport report;
    report.rank = json.at("rank");
    report.replica = json.at("replica");
    report.result.losses = json.at("losses").get<std::vector<double>>();
    report.result.updated = json.at("flags").at(0);
    report.result.skipped = json.at("flags").at(1);
    report.result.rolled_back = json.at("flags").at(2);
    report.result.norm = json.at("numbers").at(0);
    report.result.lr = json.at("numbers").at(1);
    report.result.scale = json.at("numbers").at(2);
    report.scale_after = json.at("numbers").at(3);
    report.result.zeros = json.at("zeros");
    report.scaler = json.at("scaler");
    report.begin = json.at("time").at(0);
    report.end = json.at("time").at(1);
    if (json.contains("findings")) {
      Result<Verdict> verdict = parse_verdict_json(json.at("findings").get<std::string>(), "a rank's report");
      if (!verdict) return tl::unexpected(verdict.error());
      report.findings = std::move(verdict->findings);
    }
    report.toy = toy_of(json.at("toy"));
    report.values = held_of(json.at("values"));
    report.states = held_of(json.at("states"));
    for (const Json& row : json.at("whole")) report.whole.push_back({row.at(0), row.at(1), row.at(2)});
    for (const Json& row : json.at("pieces")) report.pieces.push_back(piece_of(row));
    return report;
  } catch (const std::exception& error) {
    return fail(ErrorCode::kState,
                fmt::format("a rank's report of its step cannot be read: {}", error.what()));
  }
}

double loss_of(const std::vector<StepReport>& reports) {
  std::map<int, std::vector<double>> by_replica;
  for (const StepReport& report : reports) {
    const std::vector<double>& losses = report.result.losses;
    if (losses.empty()) continue;
    std::vector<double>& all = by_replica[report.replica];
    all.resize(losses.size(), std::numeric_limits<double>::quiet_NaN());
    for (std::size_t m = 0; m < losses.size(); ++m) {
      if (std::isnan(all[m])) all[m] = losses[m];
    }
  }
  double total = 0.0;
  for (const auto& [replica, losses] : by_replica) {
    double sum = 0.0;
    for (const double loss : losses) sum += loss;
    total += sum / static_cast<double>(losses.size());
  }
  return by_replica.empty() ? std::numeric_limits<double>::quiet_NaN()
                            : total / static_cast<double>(by_replica.size());
}

Status compare_replicas(const std::vector<StepReport>& reports, int iteration) {
  std::map<std::pair<int, std::int64_t>, std::pair<Rank, std::uint64_t>> values, states;
  for (const StepReport& report : reports) {
    if (report.scaler != reports.front().scaler) {
      return fail(
          ErrorCode::kState,
          fmt::format("the loss scalers of ranks {} and {} differ after iteration {}: {}; {}",
                      reports.front().rank, report.rank, iteration, reports.front().scaler, report.scaler));
    }
    for (const auto& [what, held, seen] : {std::tuple("the optimizer state", &report.states, &states),
                                           std::tuple("the value", &report.values, &values)}) {
      for (const StepReport::Held& h : *held) {
        const auto [first, fresh] = seen->try_emplace({h.global, h.begin}, std::pair{report.rank, h.digest});
        if (fresh || first->second.second == h.digest) continue;
        return fail(ErrorCode::kState,
                    fmt::format("{} of {} differs between ranks {} and {} after iteration {}", what, h.name,
                                first->second.first, report.rank, iteration));
      }
    }
  }
  return {};
}

ModelDigests digests_of(const std::vector<StepReport>& reports, int parameters) {
  ModelDigest values(parameters), states(parameters);
  std::map<std::pair<int, std::int64_t>, RankModel::OwnPart> pieces;  // by parameter and begin
  for (const StepReport& report : reports) {
    for (const StepReport::Whole& whole : report.whole) {
      values.set(whole.global, whole.value);
      states.set(whole.global, whole.state);
    }
    for (const StepReport::Piece& piece : report.pieces) {
      RankModel::OwnPart part = piece.part;
      part.slice = &piece.slice;
      pieces.emplace(std::pair(piece.slice.global, part.begin), std::move(part));
    }
  }
  for (auto first = pieces.begin(); first != pieces.end();) {
    const int global = first->first.first;
    std::vector<RankModel::OwnPart> parts;
    for (; first != pieces.end() && first->first.first == global; ++first) parts.push_back(first->second);
    const ParameterDigests digests = digest_of_parameter(parts);
    values.set(global, digests.value);
    states.set(global, digests.state);
  }
  return {values.value(), states.value()};
}

}  // namespace plumbline
