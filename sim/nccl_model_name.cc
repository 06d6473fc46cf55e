// Names of models and back.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/config/names.h"
#include "sim/nccl_model.h"

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

std::string send_name(const NcclModel& model) {
  switch (model.send) {
    case SendCompletion::kRendezvous:
      return "rendezvous";
    case SendCompletion::kAlwaysEager:
      return "always_eager";
    case SendCompletion::kEager:
      break;
  }
  if (model.eager_links != EagerLinks::kSame) {
    std::string out = fmt::format("eager_{}", name(model.eager_links));
    return model.ranks_per_node > 0 ? out + fmt::format("_nodes_of_{}", model.ranks_per_node) : out;
  }
  std::string out = "eager_" + size_name(model.eager_bytes);
  return model.eager_messages > 0 ? out + fmt::format("_x{}", model.eager_messages) : out;
}

// Reads a name part by part. A part that is none, or comes twice, ends it.
class Parts {
 public:
  bool first(std::string_view part) {
    if (part == "rendezvous") return true;
    if (part == "always_eager") {
      model_.send = SendCompletion::kAlwaysEager;
      return true;
    }
    if (part.substr(0, 6) != "eager_") return false;
    model_.send = SendCompletion::kEager;
    const std::string_view rest = part.substr(6);
    const auto nodes = rest.find("_nodes_of_");
    if (const auto links = enum_from_name<EagerLinks>(rest.substr(0, nodes));
        links && *links != EagerLinks::kSame) {
      model_.eager_links = *links;
      return nodes == std::string_view::npos || number(rest.substr(nodes + 10), model_.ranks_per_node);
    }
    const auto count = rest.find("_x");
    const Result<Bytes> size = parse_bytes(rest.substr(0, count));
    if (!size) return false;
    model_.eager_bytes = *size;
    return count == std::string_view::npos || number(rest.substr(count + 2), model_.eager_messages);
  }

  bool other(std::string_view part) {
    const NcclModel before = model_;
    if (!read(part)) return false;
    return !(model_ == before);  // a part that changes nothing came before
  }

  const NcclModel& model() const { return model_; }

 private:
  static bool number(std::string_view text, int& out) {
    const auto value = parse_integer(text);
    if (!value || *value < 1 || *value > (1 << 20)) return false;
    out = static_cast<int>(*value);
    return true;
  }
  static bool starts(std::string_view part, std::string_view word, std::string_view& rest) {
    if (part.substr(0, word.size()) != word) return false;
    rest = part.substr(word.size());
    return true;
  }

  bool read(std::string_view part) {
    std::string_view rest;
    const GroupProgress& progress = model_.progress;
    if (part == "registered") return model_.registered = true;
    if (starts(part, "nodes_of_", rest))
      return model_.ranks_per_node == 0 && number(rest, model_.ranks_per_node);
    if (part == "strict" || part == "launch_order") {
      if (model_.cross != CrossComm::kFree) return false;
      model_.cross = part == "strict" ? CrossComm::kStrict : CrossComm::kLaunchOrder;
      return true;
    }
    if (part == "cold") return model_.connect = Connect::kCold, true;
    if (part == "cold_collectives") return model_.collectives_connect = true;
    if (part == "group_order_by_call") return model_.group_order_by_call = true;
    if (part == "launch_blocking") return model_.launch_blocking = true;
    if (part == "lazy_modules") return model_.lazy_modules = true;
    if (part == "emulate_mismatch") return model_.emulate_mismatch = true;
    if (part == "batched" || part == "batched_across") {
      if (progress.batch != 0) return false;
      model_.progress.batch = 8;
      model_.progress.batch_epochs = part == "batched";
      return true;
    }
    if (starts(part, "queues_", rest)) return model_.hw_queues == 0 && number(rest, model_.hw_queues);
    if (starts(part, "sms_", rest)) {
      const auto of = rest.find("_by_");
      if (of != std::string_view::npos && !number(rest.substr(of + 4), model_.channels)) return false;
      return model_.sms == 0 && number(rest.substr(0, of), model_.sms);
    }
    if (starts(part, "split_restart_", rest)) {
      if (progress.plan_items != 0) return false;
      model_.progress.plan_restart = true;
      return number(rest, model_.progress.plan_items);
    }
    if (starts(part, "split_", rest))
      return progress.plan_items == 0 && number(rest, model_.progress.plan_items);
    return false;
  }

  NcclModel model_;
};

}  // namespace

std::string NcclModel::name() const {
  std::string name = send_name(*this);
  const bool machine = send == SendCompletion::kEager && eager_links != EagerLinks::kSame;
  if (ranks_per_node > 0 && !machine) name += fmt::format("+nodes_of_{}", ranks_per_node);
  if (registered) name += "+registered";
  if (cross == CrossComm::kStrict) name += "+strict";
  if (cross == CrossComm::kLaunchOrder) name += "+launch_order";
  if (hw_queues > 0) name += fmt::format("+queues_{}", hw_queues);
  if (sms > 0)
    name += channels > 0 ? fmt::format("+sms_{}_by_{}", sms, channels) : fmt::format("+sms_{}", sms);
  if (connect == Connect::kCold) name += "+cold";
  if (collectives_connect) name += "+cold_collectives";
  if (group_order_by_call) name += "+group_order_by_call";
  if (progress.batch > 0) name += progress.batch_epochs ? "+batched" : "+batched_across";
  if (progress.plan_items > 0)
    name += fmt::format("+split_{}{}", progress.plan_restart ? "restart_" : "", progress.plan_items);
  if (launch_blocking) name += "+launch_blocking";
  if (lazy_modules) name += "+lazy_modules";
  if (emulate_mismatch) name += "+emulate_mismatch";
  return name;
}

Result<NcclModel> model_named(std::string_view name) {
  Parts parts;
  bool first = true;
  bool good = true;
  for (const std::string_view part : split(name, '+')) {
    good = good && (std::exchange(first, false) ? parts.first(part) : parts.other(part));
  }
  if (good) return parts.model();
  return fail(
      ErrorCode::kUsage,
      fmt::format(
          "'{}' is no mode; a mode is rendezvous, eager_SIZE (eager_2MiB, eager_2MiB_x8, eager_h100) or "
          "always_eager, then as wanted +nodes_of_N, +registered, +strict or +launch_order, +queues_N, "
          "+sms_N, "
          "+sms_N_by_N, +cold, +cold_collectives, +group_order_by_call, +batched or +batched_across, "
          "+split_N or +split_restart_N, +launch_blocking, +lazy_modules, +emulate_mismatch",
          name));
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

}  // namespace plumbline
