// SPDX-License-Identifier: Apache-2.0
// Work that was finished elsewhere and comes back to the thread of the reactor whose connection waits for it. Posted to
// an Inbox; shared by whoever still has a part in it.
#pragma once

#include <memory>

namespace flywheel::net {

class Completion {
 public:
  virtual ~Completion() = default;
  virtual void on_reactor() = 0;  // the reactor's thread
};
using CompletionPtr = std::shared_ptr<Completion>;

}  // namespace flywheel::net
