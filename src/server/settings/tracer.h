// SPDX-License-Identifier: Apache-2.0
// Traces of requests: which are traced, and where their records go. The server owns the tracer; a protocol asks it for
// a Trace when a request arrives, and stamps that as it goes. Records are the JSON that Triton's trace tools read, and
// a file is a whole JSON document whenever somebody looks at it.
//
//   if (TracePtr trace = tracer.sample(model.name())) { trace->stamp("HTTP_RECV_START", ns); ... }
//
// Ownership: a Trace is its request's, and is recorded when it is destroyed; it outlives the tracer unharmed.
// Threads: Tracer any; a Trace one at a time. Files are written by a thread that the first trace starts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"
#include "server/config/data_type.h"
#include "server/schedule/timeline.h"
#include "server/settings/trace_setting.h"

namespace flywheel::settings {

class TraceSink;
struct ActiveTraceSetting;

class Trace {
 public:
  Trace(uint64_t id, uint8_t level, std::shared_ptr<ActiveTraceSetting> setting);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool wants_tensors() const { return (level_ & kTraceTensors) != 0; }
  void set_request(std::string_view model_name, int64_t model_version, std::string_view request_id);
  // A moment on the monotonic clock; 0: it never came, and is left out.
  void stamp(std::string_view name, int64_t ns);
  // From REQUEST_START, when the protocol had the request, to REQUEST_END.
  void stamp(const schedule::Timeline& timeline);
  // "TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT". Not more than 1 MiB of each.
  void add_tensor(std::string_view activity, std::string_view name, config::DataType type,
                  std::span<const int64_t> shape, std::span<const std::byte> bytes);

 private:
  std::string& next_record();
  const uint64_t id_;
  const uint8_t level_;
  const std::shared_ptr<ActiveTraceSetting> setting_;
  std::string records_;
};
using TracePtr = std::unique_ptr<Trace>;

class Tracer {
 public:
  explicit Tracer(TraceSetting at_start = {});
  ~Tracer();  // writes what was recorded
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Refuses an initial setting that cannot work.
  static Status check(const TraceSetting& setting);

  // An empty model name: the global setting.
  TraceSetting get(std::string_view model_name) const;
  Status update(std::string_view model_name, const TraceChanges& changes);

  // Null: this request is not traced.
  TracePtr sample(std::string_view model_name) {
    if (!any_on_.load(std::memory_order_relaxed)) return nullptr;
    return sample_traced(model_name);
  }
  // Until what was recorded so far is in its file.
  void flush();

 private:
  struct Specified {
    std::optional<uint8_t> level;
    std::optional<uint32_t> rate;
    std::optional<int32_t> count;
    std::optional<uint32_t> log_frequency;
    void apply(const TraceChanges& changes);
    TraceSetting over(TraceSetting fallback) const;
    bool none() const { return !level && !rate && !count && !log_frequency; }
  };
  TracePtr sample_traced(std::string_view model_name);
  void activate_locked();

  const TraceSetting at_start_;
  const std::shared_ptr<TraceSink> sink_;
  std::atomic<bool> any_on_{false};
  std::atomic<uint64_t> next_id_{1};
  mutable std::mutex mutex_;
  Specified global_;
  std::map<std::string, Specified, std::less<>> models_;
  std::shared_ptr<ActiveTraceSetting> active_global_;
  std::map<std::string, std::shared_ptr<ActiveTraceSetting>, std::less<>> active_models_;
};

}  // namespace flywheel::settings
