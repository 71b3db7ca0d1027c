// SPDX-License-Identifier: Apache-2.0
// When to send which requests to an instance. A policy is a pure function of its input: it keeps no state, reads no
// clock and takes no lock, so the scheduler and the simulator get the same decisions from it. policies/ holds them;
// make_policy lists them. To add one: a class in policies/ and a row of the list in batch_policy.cc; it has to pass the
// simulator's suite.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/request.h"
#include "server/schedule/statistics.h"

namespace flywheel::schedule {

class RequestQueue;

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// How long a batch takes, as measured when the engine was built. Empty when that is not known.
struct LatencyCurve {
  struct Point {
    int64_t batch_size = 0;
    int64_t p50_ns = 0;
    int64_t p99_ns = 0;
  };
  std::vector<Point> points;  // ascending by batch size
};

struct DeviceState {
  int instances = 1;
  int idle_instances = 1;
  bool draining = false;  // the model is being stopped: what waits must not wait for more
};

struct PolicyInput {
  int64_t now_ns = 0;
  const RequestQueue* queue = nullptr;
  const LatencyCurve* latency = nullptr;
  DeviceState device;
};

struct Decision {
  enum class Action : uint8_t {
    kWait,      // nothing to do until the queue or the device changes, or until wait_until_ns
    kDispatch,  // `requests`, in this order, are one batch for one idle instance
    kExpire,    // the time of `requests` ran out: answer them as such
    kCancel,    // `requests` were given up by their clients: answer them as such
    kDelay,     // the time of `requests` ran out: let the others of their level go first
  };
  Action action = Action::kWait;
  std::vector<InferRequest*> requests;
  int64_t wait_until_ns = kNever;
  DispatchReason reason = DispatchReason::kNoDelay;
};

class BatchPolicy {
 public:
  virtual ~BatchPolicy() = default;
  virtual std::string_view name() const = 0;
  // After carrying out anything but kWait, ask again.
  virtual Decision decide(const PolicyInput& input) const = 0;
};

struct PolicyOptions {
  // Nothing is sent until this many requests have been queued once: lets a test fill the queue first.
  uint64_t hold_until_queued = 0;
};

// The policy that the configuration asks for: by name in its parameter "batch_policy", else by its dynamic_batching.
Result<std::unique_ptr<BatchPolicy>> make_policy(const config::ModelConfig& config, const PolicyOptions& options = {});

// What every policy does first: requests whose client gave up, and requests whose time ran out, leave the queue. True
// if there are some, and then `decision` is to be returned; otherwise decision.wait_until_ns is when the next one's
// time ends.
bool decide_removals(const PolicyInput& input, Decision& decision);

}  // namespace flywheel::schedule
