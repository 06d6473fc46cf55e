#include "engine/program/trace.h"

#include <deque>
#include <map>

#include <fmt/format.h>

#include "engine/program/script.h"

namespace plumbline {
namespace {

class Tracer {
 public:
  Tracer(const Program& program, std::size_t thread, TraceStyle style)
      : program_(program), thread_(thread), style_(style), ranks_(program.grid.pp()) {}

  std::string run() {
    for (const Item item : program_.thread_items(thread_)) {
      if (!done_) next(item);
    }
    close_call();
    return std::move(out_);
  }

 private:
  static bool is_phase(const std::string& mark) { return mark[0] == '#' || mark == "FIN"; }

  // X: what follows is part of a combined step. The marks of loss and first microbatch are not recorded there.
  void begin_combined() {
    close_call();
    combined_ = true;
    joins_ = false;
  }

  void put(std::string text) {
    if (!out_.empty()) out_ += ';';
    out_ += text;
  }

  // A unit as the oracle writes it: F<microbatch>.<chunk>.
  std::string unit(char letter, int microbatch, int stage) const {
    return fmt::format("{}{}.{}", letter, microbatch, stage / ranks_);
  }

  void next(Item item) {
    switch (item_op(item)) {
      case ItemOp::kMark:
        if (item_microbatch(item) == kNoMicrobatch) {
          mark(program_.marks[item_ref(item)]);
        } else {
          close_call();
          put("D:" + unit('F', item_microbatch(item), program_.stages - 1));
        }
        return;
      case ItemOp::kOp:
        operation(item);
        return;
      case ItemOp::kLaunch:
        launch(item);
        return;
      case ItemOp::kWait:
        if (item_ref(item) != 0) wait(item_ref(item));
        return;
      case ItemOp::kFree:
        release(item);
        return;
      default:
        return;
    }
  }

  void mark(const std::string& name) {
    if (name == "X") return begin_combined();
    close_call();
    if (!is_phase(name)) {
      call_ = name;
      return;
    }
    if (style_ == TraceStyle::kCurrent) put(name);
    done_ = name == "FIN";
  }

  void close_call() {
    if (call_.empty()) return;
    put(grouped_ ? fmt::format("{}:[{}]", call_, operations_) : fmt::format("{}:{}", call_, operations_));
    call_.clear();
    operations_.clear();
    grouped_ = false;
  }

  // Buckets of a chunk follow each other.
  void collective(const SlotClass& slot) {
    if (slot.kind != SlotKind::kMainGrads && slot.kind != SlotKind::kParameters) return;
    close_call();
    std::string text =
        fmt::format("{}S{}", slot.kind == SlotKind::kMainGrads ? 'G' : 'P', slot.stage / ranks_);
    if (text != last_sync_) put(text);
    last_sync_ = std::move(text);
  }

  void operation(Item item) {
    const Endpoint& endpoint = program_.endpoints[item_ref(item)];
    const SlotClass& slot = program_.slots[endpoint.slot];
    if (!is_p2p(endpoint.kind)) return collective(slot);
    const bool forward = slot.kind == SlotKind::kActivation;
    const bool send = endpoint.kind == EndpointKind::kSend;
    const int microbatch = item_microbatch(item);
    std::string text;
    if (send) {
      // An activation is named by the stage that made it.
      text =
          forward ? "sn=" + unit('F', microbatch, slot.stage - 1) : "sp=" + unit('B', microbatch, slot.stage);
    } else {
      received_[{endpoint.slot, microbatch}] = receives_;
      text = fmt::format("{}={}", forward ? "rp" : "rn", receives_++);
    }
    const unsigned flags = item_flags(item);
    if ((flags & kHandle) != 0 && item_queue(item) != 0) {
      handles_[static_cast<unsigned>(item_queue(item))].push_back(text);
    }
    if (program_.families[endpoint.family].name == "world") text += "@W";
    grouped_ = grouped_ || (flags & (kMore | kHostWaits)) != 0;
    if (!operations_.empty()) operations_ += grouped_ ? "," : "|";
    operations_ += text;
  }

  // A wait for the oldest kept handle of a queue, written with its operation (queue 0 belongs to blocking calls).
  void wait(unsigned queue) {
    close_call();
    auto& handles = handles_[queue];
    if (handles.empty()) return;
    put("W:" + handles.front());
    handles.pop_front();
  }

  std::string consumed(const RowList& slots, int microbatch, SlotKind kind) const {
    for (const std::uint16_t slot : slots) {
      const auto found = received_.find({slot, microbatch});
      if (program_.slots[slot].kind == kind && found != received_.end())
        return fmt::format("<{}", found->second);
    }
    return {};
  }

  void launch(Item item) {
    const Kernel& kernel = program_.kernels[item_ref(item)];
    if (kernel.kind != KernelKind::kForward && kernel.kind != KernelKind::kBackward) return;
    if (!call_.empty()) combined_ = false;
    close_call();
    const bool forward = kernel.kind == KernelKind::kForward;
    const int microbatch = item_microbatch(item);
    std::string text = unit(forward ? 'F' : 'B', microbatch, kernel.stage);
    if (forward) {
      std::string source = consumed(kernel.reads, microbatch, SlotKind::kActivation);
      if (source.empty()) source = consumed(kernel.frees, microbatch, SlotKind::kActivation);
      text += source;
      if (!combined_ && kernel.stage == program_.stages - 1) text += '!';
      if (!combined_ && style_ == TraceStyle::kCurrent && microbatch == 0) text += '*';
    } else {
      text += consumed(kernel.frees, microbatch, SlotKind::kGradient);
    }
    if (combined_ && joins_) {
      out_ += '+' + text;
      combined_ = false;
      return;
    }
    put(combined_ ? 'X' + text : std::move(text));
    joins_ = combined_;
  }

  void release(Item item) {
    close_call();
    const SlotClass& slot = program_.slots[item_ref(item)];
    // What is released is an output: the activation that enters the next stage, or the last stage's loss.
    const int stage = slot.kind == SlotKind::kActivation ? slot.stage - 1 : slot.stage;
    put("D:" + unit('F', item_microbatch(item), stage));
  }

  const Program& program_;
  std::size_t thread_;
  TraceStyle style_;
  int ranks_;
  std::string out_;
  std::string call_;
  std::string last_sync_;
  std::string operations_;
  bool grouped_ = false;
  bool done_ = false;
  bool combined_ = false;  // the next pass belongs to a combined step
  bool joins_ = false;     // and is not the first of it
  int receives_ = 0;
  std::map<std::pair<std::uint16_t, int>, int> received_;
  std::map<unsigned, std::deque<std::string>> handles_;
};

}  // namespace

std::string megatron_trace(const Program& program, std::size_t thread, TraceStyle style) {
  return Tracer(program, thread, style).run();
}

}  // namespace plumbline
