#include "reports/html/page_data.h"

#include <algorithm>
#include <map>

#include "engine/base/hash.h"
#include "engine/base/json_writer.h"
#include "reports/html/columns.h"

namespace plumbline {
namespace {

int lane_class(WorkKind kind) {
  if (!is_communication(kind)) return 0;
  return kind == WorkKind::kSend ? 1 : kind == WorkKind::kRecv ? 2 : 3;
}

// Event columns in lane order; times relative to the end of the event before, links relative to the event
// itself.
class EventColumns {
 public:
  void fill(const RunRecord& record, const Analysis& analysis, const std::vector<Lane>& lanes) {
    place_.assign(record.events.size(), kNoEvent);
    std::int32_t next = 0;
    for (const Lane& lane : lanes) {
      for (const std::uint32_t i : lane.events) place_[i] = next++;
    }
    std::int64_t step = 0, label = 0, microbatch = 0;
    for (const Lane& lane : lanes) {
      Nanoseconds end = 0;
      for (const std::uint32_t i : lane.events) {
        const RunEvent& e = record.events[i];
        step_.add(e.step - step);
        label_.add(e.label - label);
        microbatch_.add(e.microbatch - microbatch);
        gap_.add(e.start - end);
        wait_.add(e.ready - e.start);
        work_.add(e.end - e.ready);
        peer_.add(e.peer < 0 ? 0 : e.peer - e.rank + (e.peer >= e.rank ? 1 : 0));
        match_.add(relative(i, analysis.links.match[i]));
        cause_.add(relative(i, analysis.links.cause[i]));
        cause_kind_.add(static_cast<std::int64_t>(analysis.links.cause_kind[i]));
        slack_.add(analysis.slack[i]);
        step = e.step;
        label = e.label;
        microbatch = e.microbatch;
        end = e.end;
      }
    }
    std::int64_t before = 0;
    for (const StepAnalysis& s : analysis.steps) {
      for (const std::uint32_t i : s.path.events) {
        if (place_[i] == kNoEvent) continue;
        path_.add(place_[i] - before);
        before = place_[i];
      }
    }
  }

  std::vector<const Column*> all() const {
    return {&step_, &label_, &microbatch_, &gap_,        &wait_,  &work_,
            &peer_, &match_, &cause_,      &cause_kind_, &slack_, &path_};
  }

 private:
  // 0 means none: nothing is linked to itself.
  std::int64_t relative(std::uint32_t from, std::int32_t to) const {
    if (to == kNoEvent || place_[static_cast<std::size_t>(to)] == kNoEvent) return 0;
    return place_[static_cast<std::size_t>(to)] - place_[from];
  }

  std::vector<std::int32_t> place_;
  Column step_{"step"}, label_{"label"}, microbatch_{"microbatch"}, gap_{"gap"}, wait_{"wait"}, work_{"work"},
      peer_{"peer"}, match_{"match"}, cause_{"cause"}, cause_kind_{"causeKind"}, slack_{"slack"},
      path_{"path"};
};

class MemoryColumns {
 public:
  explicit MemoryColumns(const RunRecord& record) {
    std::vector<const MemoryPoint*> points;
    for (const MemoryPoint& point : record.memory) {
      if (point.rank >= 0 && point.rank < record.ranks) points.push_back(&point);
    }
    std::stable_sort(points.begin(), points.end(), [](const MemoryPoint* a, const MemoryPoint* b) {
      return a->rank != b->rank ? a->rank < b->rank : a->time < b->time;
    });
    MemoryPoint before;
    for (const MemoryPoint* point : points) {
      rank_.add(point->rank - before.rank);
      step_.add(point->step - before.step);
      time_.add(point->time - before.time);
      live_.add(point->live - before.live);
      before = *point;
    }
  }
  std::vector<const Column*> all() const { return {&rank_, &step_, &time_, &live_}; }

 private:
  Column rank_{"memRank"}, step_{"memStep"}, time_{"memTime"}, live_{"memLive"};
};

// One row for each step and rank.
class RankColumns {
 public:
  explicit RankColumns(const Analysis& analysis) {
    for (const StepAnalysis& step : analysis.steps) {
      for (std::size_t r = 0; r < step.time.ranks.size(); ++r) {
        const RankTime& t = step.time.ranks[r];
        std::int64_t row[] = {t.pipeline, t.other, t.first - step.time.begin, t.last - step.time.begin};
        for (const std::int64_t value : row) rank_time_.add(value);
        for (const Nanoseconds value : t.place) rank_time_.add(value);
        for (const Nanoseconds value : t.cause) rank_time_.add(value);
        const MemoryPeak& peak = step.peaks[r];
        peak_.add(peak.bytes);
        peak_.add(peak.time);
        const auto [at, fresh] = names_.insert({peak.at, static_cast<std::int64_t>(texts.size())});
        if (fresh) texts.push_back(peak.at);
        peak_.add(at->second);
      }
    }
  }
  std::vector<const Column*> all() const { return {&rank_time_, &peak_}; }
  std::vector<std::string> texts;

 private:
  std::map<std::string, std::int64_t> names_;
  Column rank_time_{"rankTime"}, peak_{"peak"};
};

void write_labels(const RunRecord& record, JsonWriter& json) {
  json.key("labels").begin_array();
  for (const EventLabel& label : record.labels) {
    RunEvent event;
    event.label = static_cast<std::uint16_t>(&label - record.labels.data());
    json.begin_object();
    json.field("kind", static_cast<int>(work_kind(label)));
    json.field("name", short_name(record, event));  // without a microbatch: "F", "SEND_F", "all-reduce.grads"
    json.field("spoken", spoken_name(record, event));
    json.field("stage", label.stage);
    json.field("bytes", label.bytes);
    json.end_object();
  }
  json.end_array();
}

void write_lanes(const std::vector<Lane>& lanes, JsonWriter& json) {
  json.key("lanes").begin_array();
  for (const Lane& lane : lanes) {
    json.begin_object();
    json.field("rank", lane.rank).field("stream", lane.stream).field("kind", lane.kind);
    json.field("count", static_cast<std::int64_t>(lane.events.size()));
    json.end_object();
  }
  json.end_array();
}

void write_step(const StepAnalysis& step, const StepRow* row, std::int64_t path_count, JsonWriter& json) {
  json.begin_object();
  json.field("step", step.events.step).field("begin", step.events.begin).field("end", step.events.end);
  json.field("evaluation", step.events.evaluation)
      .field("window", step.time.window)
      .field("longest", step.time.longest);
  json.field("microbatches", step.microbatches).field("path", path_count);
  json.key("pathTime").begin_array();
  for (const Nanoseconds time : step.path.by_kind) json.value(time);
  json.value(step.path.unexplained).end_array();
  if (step.formula) json.field("formula", step.formula->value).field("formulaText", step.formula->text);
  if (row != nullptr) {
    json.field("iteration", row->iteration).field("skipped", row->skipped).field("loss", row->loss);
    json.field("scale", row->scale).field("scaleAfter", row->scale_after).field("gradNorm", row->grad_norm);
    json.field("lr", row->lr).field("samples", row->consumed_samples);
    json.field("params", row->params_digest == 0 ? std::string() : hex64(row->params_digest));
    json.field("optimizer", row->optimizer_digest == 0 ? std::string() : hex64(row->optimizer_digest));
  }
  json.end_object();
}

void write_header(const RunRecord& record, JsonWriter& json) {
  json.field("producer", record.producer).field("backend", record.backend).field("schedule", record.schedule);
  json.field("command", record.command)
      .field("config", record.config)
      .field("dataDigest", record.data_digest);
  json.field("seed", std::to_string(record.seed)).field("programDigest", hex64(record.program_digest));
  json.field("recordDigest", hex64(record.digest()));
  json.field("ranks", record.ranks).field("stages", record.stages).field("microbatches", record.microbatches);
  for (const auto& [name, table] :
       {std::pair{"pipeline", &record.pipeline_coordinate}, {"replica", &record.replica}}) {
    json.key(name).begin_array();
    for (const std::int32_t value : *table) json.value(value);
    json.end_array();
  }
  json.key("streams").begin_array();
  for (const std::string& name : record.streams) json.value(name);
  json.end_array();
}

}  // namespace

std::vector<Lane> page_lanes(const RunRecord& record, const std::vector<std::uint32_t>& events) {
  // (rank, stream, class, overflow) -> lane; events arrive in any order and are sorted by start first.
  std::vector<std::uint32_t> sorted = events;
  std::sort(sorted.begin(), sorted.end(), [&](std::uint32_t a, std::uint32_t b) {
    const RunEvent& x = record.events[a];
    const RunEvent& y = record.events[b];
    if (x.start != y.start) return x.start < y.start;
    if (x.end != y.end) return x.end < y.end;
    return a < b;
  });
  constexpr const char* kClasses[] = {"compute", "send", "recv", "collective"};
  constexpr int kMostOverlaps = 16;
  std::map<std::tuple<Rank, int, int, int>, Lane> lanes;
  for (const std::uint32_t i : sorted) {
    const RunEvent& e = record.events[i];
    const int type = lane_class(work_kind(record.labels[e.label]));
    for (int overflow = 0; overflow <= kMostOverlaps; ++overflow) {
      Lane& lane = lanes[{e.rank, e.stream, type, overflow}];
      // The last lane takes what is left, overlapping or not.
      if (!lane.events.empty() && record.events[lane.events.back()].end > e.start && overflow < kMostOverlaps)
        continue;
      lane.rank = e.rank;
      lane.stream = e.stream;
      lane.kind = kClasses[type];
      lane.events.push_back(i);
      break;
    }
  }
  std::vector<Lane> result;
  for (auto& [key, lane] : lanes) result.push_back(std::move(lane));
  return result;
}

std::vector<std::uint32_t> page_events(const Analysis& analysis, const RunRecord& record, std::int64_t most,
                                       std::int64_t* left_out) {
  std::vector<std::uint32_t> chosen;
  std::int64_t all = 0;
  bool full = false;
  for (const StepAnalysis& step : analysis.steps) {
    const auto& index = step.events.index;
    all += static_cast<std::int64_t>(index.size());
    const bool fits = static_cast<std::int64_t>(chosen.size() + index.size()) <= most;
    if (!full && (fits || chosen.empty())) {
      const std::int64_t room = most - static_cast<std::int64_t>(chosen.size());
      std::int64_t take = static_cast<std::int64_t>(index.size());
      // Whole ranks only: the cut goes back to the first event of a rank.
      if (take > room) {
        take = std::max<std::int64_t>(room, 0);
        while (take > 0 && record.events[index[static_cast<std::size_t>(take)]].rank ==
                               record.events[index[static_cast<std::size_t>(take - 1)]].rank) {
          --take;
        }
      }
      chosen.insert(chosen.end(), index.begin(), index.begin() + take);
    }
    full = full || !fits;
  }
  if (left_out != nullptr) *left_out = all - static_cast<std::int64_t>(chosen.size());
  return chosen;
}

std::string page_block(const RunRecord& record, const Analysis& analysis, std::int64_t most_events,
                       const std::string& title) {
  std::int64_t left_out = 0;
  const std::vector<std::uint32_t> events = page_events(analysis, record, most_events, &left_out);
  const std::vector<Lane> lanes = page_lanes(record, events);
  std::vector<std::uint8_t> present(record.events.size(), 0);
  for (const std::uint32_t i : events) present[i] = 1;

  EventColumns event_columns;
  event_columns.fill(record, analysis, lanes);
  const MemoryColumns memory(record);
  const RankColumns ranks(analysis);
  std::vector<const Column*> columns = event_columns.all();
  for (const auto& more : {memory.all(), ranks.all()})
    columns.insert(columns.end(), more.begin(), more.end());

  JsonWriter json;
  json.begin_object().field("version", 1).field("title", title);
  write_header(record, json);
  write_labels(record, json);
  write_lanes(lanes, json);
  std::map<std::int32_t, const StepRow*> rows;
  for (const StepRow& row : record.steps) rows[row.step] = &row;
  json.key("steps").begin_array();
  for (const StepAnalysis& step : analysis.steps) {
    const std::int64_t path = std::count_if(step.path.events.begin(), step.path.events.end(),
                                            [&](std::uint32_t i) { return present[i] != 0; });
    const auto row = rows.find(step.events.step);
    write_step(step, row == rows.end() ? nullptr : row->second, path, json);
  }
  json.end_array();
  json.field("typical", analysis.typical).field("leftOut", left_out);
  json.field("matched", analysis.links.matched).field("unmatched", analysis.links.unmatched);
  json.key("peakTexts").begin_array();
  for (const std::string& text : ranks.texts) json.value(text);
  json.end_array();
  json.key("columns").begin_array();
  for (const Column* column : columns) {
    json.begin_object().field("name", column->name()).field("count", column->count());
    json.field("bytes", static_cast<std::int64_t>(column->bytes().size())).end_object();
  }
  json.end_array().end_object();
  return gzip(pack_block(json.text(), columns));
}

}  // namespace plumbline
