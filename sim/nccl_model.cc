#include "sim/nccl_model.h"

#include <array>
#include <utility>

#include <fmt/format.h>

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
