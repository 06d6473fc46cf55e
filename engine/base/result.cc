#include "engine/base/result.h"

namespace plumbline {

std::string Where::text() const {
  std::string out = file;
  if (line > 0) {
    if (!out.empty()) out += ':';
    out += std::to_string(line);
    if (column > 0) out += ':' + std::to_string(column);
  }
  return out;
}

std::string Error::text() const {
  const std::string place = where.text();
  return place.empty() ? message : place + ": " + message;
}

}  // namespace plumbline
