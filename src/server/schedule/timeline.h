// SPDX-License-Identifier: Apache-2.0
// One record of a request's life on the monotonic clock. Whoever performs a step stamps it; statistics, metrics, traces
// and response parameters are all read from it, once, at completion. Nothing else keeps times. Thread safety: a value;
// owned by whoever owns the request at that step.
#pragma once

#include <chrono>
#include <cstdint>

namespace flywheel::schedule {

// Monotonic nanoseconds; 0 in a Timeline means that the step never happened.
inline int64_t monotonic_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Timeline {
  int64_t received_ns = 0;      // the protocol had the whole request
  int64_t queued_ns = 0;        // the scheduler accepted it
  int64_t batch_formed_ns = 0;  // it left the queue in a batch
  int64_t input_done_ns = 0;    // its inputs are where the engine reads them
  int64_t compute_done_ns = 0;
  int64_t output_done_ns = 0;  // its outputs are where the response reads them
  int64_t sent_ns = 0;         // the protocol handed the last byte to the system

  int64_t queue_ns() const { return span(queued_ns, batch_formed_ns); }
  int64_t compute_input_ns() const { return span(batch_formed_ns, input_done_ns); }
  int64_t compute_infer_ns() const { return span(input_done_ns, compute_done_ns); }
  int64_t compute_output_ns() const { return span(compute_done_ns, output_done_ns); }

 private:
  static int64_t span(int64_t from, int64_t to) { return from != 0 && to > from ? to - from : 0; }
};

}  // namespace flywheel::schedule
