// The steps by which repeated building blocks become a V order. Each leaves passes of one kind in their
// order and never lets a later step see a pass before what it needs; steps that cannot be done return
// false.
#pragma once

#include "engine/schedule/v_slots.h"

namespace plumbline {

// Moves every pass to the first slot that its row's order and its leg's way allow. `microbatches` of each
// pass at most.
bool squeeze(SlotRows& rows, int microbatches);

// Before a rank's first leg-3 pass: as many forwards as the peak allows, in the order that fills the V
// soonest.
bool reorder_warmup(SlotRows& rows, int microbatches);

// Behind a rank's last leg-1 pass: backwards as tight as they can be, weight gradients behind them.
bool reorder_cooldown(SlotRows& rows, int microbatches);

// Leaves only the first `microbatches` of each pass.
void drop_surplus(SlotRows& rows, int microbatches);

// Moves weight gradients of the warm-up to the end, as many as fit under `peak`: for few microbatches.
void delay_first_weight_grads(SlotRows& rows, int peak);

}  // namespace plumbline
