// SPDX-License-Identifier: Apache-2.0
// Requests that a model's process makes of other models: made from its messages, handed to the server, their responses
// sent back. Owned by the watcher of the process; what is left when the process ends is cancelled. Threads: begin() and
// end() from the watcher's; responses come from any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "server/backend/backend.h"
#include "server/backend/python/channel.h"

namespace flywheel::python {

class ModelCalls : public std::enable_shared_from_this<ModelCalls> {
 public:
  ModelCalls(backend::ModelCaller caller, std::shared_ptr<Channel> channel)
      : caller_(std::move(caller)), channel_(std::move(channel)) {}

  void begin(const Incoming& message);
  // Nobody waits for the responses any more.
  void end();

 private:
  void respond(uint64_t id, const schedule::InferResponse& response);

  const backend::ModelCaller caller_;
  const std::shared_ptr<Channel> channel_;
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<schedule::InferRequest>> calls_;
};

}  // namespace flywheel::python
