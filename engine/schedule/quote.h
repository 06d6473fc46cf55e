// Text from a file, made fit for a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace plumbline {

// 'text' in quotes: unprintable bytes as \xNN, cut after 40 characters.
std::string quote(std::string_view text);

}  // namespace plumbline
