// Megatron's words for the styles of the parameter scheduler, as its arguments and its checkpoints have them.
#pragma once

#include <string_view>

#include "engine/base/result.h"
#include "engine/config/run_config.h"

namespace plumbline {

std::string_view megatron_name(DecayStyle style);  // constant, linear, cosine, inverse-square-root, WSD
std::string_view megatron_name(WsdStyle style);    // linear, cosine, exponential, minus_sqrt
std::string_view megatron_name(WdStyle style);     // constant, linear, cosine

// Exactly these words; another one is an error (kState) that lists them.
Result<DecayStyle> decay_style_of_name(std::string_view name);
Result<WsdStyle> wsd_style_of_name(std::string_view name);
Result<WdStyle> wd_style_of_name(std::string_view name);

}  // namespace plumbline
