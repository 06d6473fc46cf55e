// ControlChannel: how the ranks that save or load together exchange small messages. One object is one rank's
// membership; calls come in the same order on all ranks.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Everyone's message, by rank; the same on all ranks. A rank that does not come is an error, of the same
  // text on all others.
  virtual Result<std::vector<std::string>> exchange(const std::string& message) = 0;
};

// A group of one.
ControlChannel& lone_channel();

// Before something that all do together: no error when all say so, else the same on every rank - who failed and why,
// "rank 1: ...; rank 3: ...", or once what all say alike - with the code of the first of them.
Status agree(ControlChannel& channel, const Status& own);

}  // namespace plumbline
