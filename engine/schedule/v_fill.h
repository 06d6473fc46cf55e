// The last steps to a V order: what is idle is filled, weight gradients get their names, and the whole is
// looked over.
#pragma once

#include "engine/schedule/v_slots.h"

namespace plumbline {

// Fills idle slots, left to right, with the next pass of the same rank that may run there without raising the
// peak.
void fill_idle_slots(SlotRows& rows, int microbatches);

// Weight gradients in the order of their backwards. False if some pass does not stand `microbatches` times.
bool relabel_weight_grads(SlotRows& rows, int microbatches);

// Every pass `microbatches` times and behind what it needs.
bool is_complete(const SlotRows& rows, int microbatches);

}  // namespace plumbline
