// The models that come with plumbline, named here because a linker drops self-registering objects out of
// archives. A model of one's own uses RegisterModel in a file that is linked straight into the executable.
#pragma once

#include "engine/model/stage.h"

namespace plumbline::detail {

ModelFamily gpt_family();  // gpt.cc
ModelFamily toy_family();  // toy.cc

}  // namespace plumbline::detail
