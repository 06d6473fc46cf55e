#include "sim/nccl_model.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "engine/base/text.h"

namespace plumbline {
namespace {

// The largest unit that divides evenly, without a blank: "2MiB", "1000B".
std::string size_name(Bytes bytes) {
  constexpr std::array<std::pair<Bytes, const char*>, 3> kUnits{
      {{Bytes{1} << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}}};
  for (const auto& [size, unit] : kUnits) {
    if (bytes >= size && bytes % size == 0) return fmt::format("{}{}", bytes / size, unit);
  }
  return fmt::format("{}B", bytes);
}

}  // namespace

std::string NcclModel::name() const {
  std::string name;
  switch (send) {
    case SendCompletion::kRendezvous:
      name = "rendezvous";
      break;
    case SendCompletion::kEager:
      name = "eager_" + size_name(eager_bytes);
      break;
    case SendCompletion::kAlwaysEager:
      name = "always_eager";
      break;
  }
  if (cross == CrossComm::kStrict) name += "+strict";
  if (connect == Connect::kCold) name += "+cold";
  if (launch_blocking) name += "+launch_blocking";
  return name;
}

Result<NcclModel> model_named(std::string_view name) {
  const auto bad = [&] {
    return fail(ErrorCode::kUsage,
                fmt::format("'{}' is no mode; a mode is rendezvous, eager_SIZE (eager_2MiB) or always_eager, "
                            "then +strict, +cold, +launch_blocking as wanted",
                            name));
  };
  NcclModel model;
  bool first = true;
  for (const std::string_view part : split(name, '+')) {
    if (first && part.substr(0, 6) == "eager_") {
      const Result<Bytes> size = parse_bytes(part.substr(6));
      if (!size) return bad();
      model.send = SendCompletion::kEager;
      model.eager_bytes = *size;
    } else if (first && part == "always_eager") {
      model.send = SendCompletion::kAlwaysEager;
    } else if (first ? part != "rendezvous" : false) {
      return bad();
    } else if (!first && part == "strict" && model.cross == CrossComm::kFree) {
      model.cross = CrossComm::kStrict;
    } else if (!first && part == "cold" && model.connect == Connect::kWarm) {
      model.connect = Connect::kCold;
    } else if (!first && part == "launch_blocking" && !model.launch_blocking) {
      model.launch_blocking = true;
    } else if (!first) {
      return bad();
    }
    first = false;
  }
  return model;
}

const std::vector<NcclModel>& reference_models() {
  static const std::vector<NcclModel> kModels = [] {
    std::vector<NcclModel> models;
    for (const char* name :
         {"rendezvous", "eager_2MiB", "eager_64MiB", "rendezvous+strict", "eager_64MiB+strict",
          "rendezvous+cold", "eager_64MiB+cold", "rendezvous+launch_blocking"}) {
      models.push_back(model_named(name).value());
    }
    return models;
  }();
  return kModels;
}

NcclModel model_of(const SimConfig& config) {
  NcclModel model;
  model.send = config.send;
  model.eager_bytes = config.send == SendCompletion::kEager ? config.eager_bytes : 0;
  model.cross = config.cross;
  model.connect = config.connect;
  model.launch_blocking = config.launch_blocking;
  return model;
}

NcclModel certification_model() {
  NcclModel model;
  model.cross = CrossComm::kStrict;
  model.connect = Connect::kCold;
  return model;
}

NcclModel default_model() { return NcclModel{}; }

}  // namespace plumbline
