#include "backends/processes/agree.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plumbline::processes {
namespace {

using Json = nlohmann::json;

std::string key(Rank rank) { return fmt::format("card/{}", rank); }

std::string text_of(const RankCard& card) {
  return Json{{"world", card.world}, {"program", card.program}, {"config", card.config}, {"data", card.data}}
      .dump();
}

Result<RankCard> card_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kState, "a rank's card in the store is not readable");
  return RankCard{json.value("world", 0), json.value("program", ""), json.value("config", ""),
                  json.value("data", "")};
}

std::string list(const std::vector<Rank>& ranks) { return fmt::format("{}", fmt::join(ranks, ", ")); }

// What most ranks say; of equally many, what the lowest of them says.
template <typename Value>
Status compare(const std::vector<RankCard>& cards, const char* what, Value value) {
  std::map<decltype(value(cards[0])), std::vector<Rank>> by_value;
  for (Rank r = 0; r < static_cast<Rank>(cards.size()); ++r)
    by_value[value(cards[static_cast<std::size_t>(r)])].push_back(r);
  if (by_value.size() == 1) return {};
  const auto most = std::max_element(by_value.begin(), by_value.end(), [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() < b.second.size()
                                              : a.second.front() > b.second.front();
  });
  std::string others;
  for (const auto& [said, ranks] : by_value) {
    if (said == most->first) continue;
    others += fmt::format("{}rank{} {} ha{} {}", others.empty() ? "" : "; ", ranks.size() == 1 ? "" : "s",
                          list(ranks), ranks.size() == 1 ? "s" : "ve", said);
  }
  return fail(
      ErrorCode::kState,
      fmt::format("the ranks do not run the same {}: {}, rank{} {} {} - start all of them with the same "
                  "arguments",
                  what, others, most->second.size() == 1 ? "" : "s", list(most->second), most->first));
}

}  // namespace

Status agree(Store& store, Rank rank, const RankCard& own, double seconds) {
  PL_TRY(store.set(key(rank), text_of(own)));
  const auto limit = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000.0));
  std::vector<RankCard> cards;
  std::vector<Rank> missing;
  for (Rank other = 0; other < own.world; ++other) {
    const double left = std::chrono::duration<double>(limit - std::chrono::steady_clock::now()).count();
    const Result<std::string> text = store.wait_for(key(other), std::max(left, 0.05));
    if (!text) {
      missing.push_back(other);
      continue;
    }
    const Result<RankCard> card = card_of(*text);
    if (!card) return tl::unexpected(card.error());
    cards.push_back(*card);
  }
  if (!missing.empty()) {
    return fail(
        ErrorCode::kTimeout,
        fmt::format("rank {} of {} waited {:g} s, and rank{} {} did not come - start all ranks, or give the "
                    "true world size",
                    rank, own.world, seconds, missing.size() == 1 ? "" : "s", list(missing)));
  }
  PL_TRY(compare(cards, "world size", [](const RankCard& card) { return std::to_string(card.world); }));
  PL_TRY(compare(cards, "Program", [](const RankCard& card) { return card.program; }));
  PL_TRY(compare(cards, "text", [](const RankCard& card) { return card.data; }));
  return compare(cards, "configuration", [](const RankCard& card) { return card.config; });
}

}  // namespace plumbline::processes
