// SPDX-License-Identifier: Apache-2.0
// Load on an HTTP server: a number of keep-alive connections, each with one request in flight, driven by one thread.
// The demo, the benchmarks and the tests use it against this server and its peers. Closed loop: a connection sends its
// next request when it has its answer, so latencies leave out the waiting that users of an overloaded server would do.
// Thread safety: run_load is called from one thread and calls back on it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "flywheel/status.h"

namespace flywheel::http {

// Counts durations in buckets about 1.6 % wide, from a nanosecond to minutes.
class LatencyHistogram {
 public:
  void add(int64_t ns);
  void merge(const LatencyHistogram& other);
  uint64_t count() const { return count_; }
  double mean_us() const { return count_ == 0 ? 0 : sum_ns_ / static_cast<double>(count_) / 1000; }
  // 0 < quantile <= 1.
  double quantile_us(double quantile) const;

 private:
  static constexpr int kStepBits = 6;
  std::array<uint64_t, size_t{64} << kStepBits> buckets_{};
  uint64_t count_ = 0;
  double sum_ns_ = 0;
};

struct LoadOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 8000;
  int connections = 1;
  // Ends at whichever comes first; 0: no limit of that kind.
  uint64_t requests = 0;
  double seconds = 0;
  // Makes request number `index` (see format_request); called just before it is sent.
  std::function<void(uint64_t index, std::string& request)> make_request;
  // Sees every answer. May be empty.
  std::function<void(uint64_t index, int status, std::string_view body)> on_response;
  bool reconnect = true;    // when the server closes a connection; else that connection's part of the load ends
  int timeout_ms = 30'000;  // without any answer
};

struct LoadReport {
  double seconds = 0;
  uint64_t sent = 0;
  std::map<int, uint64_t> by_status;
  uint64_t broken = 0;       // requests whose connection ended without an answer
  LatencyHistogram latency;  // of all answers
  uint64_t answered() const { return latency.count(); }
  double requests_per_s() const { return seconds > 0 ? static_cast<double>(answered()) / seconds : 0; }
};

// Fails when the server cannot be reached or falls silent; answers of any status are not failures.
Result<LoadReport> run_load(const LoadOptions& options);

}  // namespace flywheel::http
