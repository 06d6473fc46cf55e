// Names of the enumerations, used by the text form, messages and records alike.
#include "engine/program/names.h"

#include "engine/program/program.h"

namespace plumbline {

std::string_view slot_kind_name(SlotKind kind) { return kSlotKindNames[static_cast<std::size_t>(kind)]; }
std::string_view kernel_kind_name(KernelKind kind) {
  return kKernelKindNames[static_cast<std::size_t>(kind)];
}
std::string_view endpoint_kind_name(EndpointKind kind) {
  return kEndpointKindNames[static_cast<std::size_t>(kind)];
}

std::string_view reduce_op_name(ReduceOp op) { return kReduceOpNames[static_cast<std::size_t>(op)]; }
std::string_view comm_call_kind_name(CommCallKind kind) {
  return kCommCallKindNames[static_cast<std::size_t>(kind)];
}

}  // namespace plumbline
