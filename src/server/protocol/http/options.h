// SPDX-License-Identifier: Apache-2.0
// How an HTTP listener behaves, and what it counts. The server fills HttpOptions from the command line; reactors and
// connections read them; prometheus prints the counters.
// Thread safety: options are immutable once given; counters are written by one thread and read by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "server/protocol/http/parser.h"
#include "server/protocol/net/tls.h"

namespace flywheel::http {

struct HttpOptions {
  std::string name = "HTTP service";  // in the log
  std::string address = "0.0.0.0";
  uint16_t port = 8000;     // 0: any free one
  bool reuse_port = false;  // other processes may listen on the same port
  int threads = 1;
  net::TlsOptions tls;
  int64_t busy_poll_us = 0;  // how long a busy thread asks for the next event before it sleeps
  ParserLimits parser;
  int64_t max_total_body_bytes = int64_t{4} << 30;    // of all requests in hand
  int64_t max_total_answer_bytes = int64_t{2} << 30;  // of all answers until they are sent
  uint64_t max_chunks = 1 << 16;                      // of a chunked body
  int max_connections = 16384;
  int max_pipelined = 32;  // requests of one connection in hand; then it is not read until answers are sent
  int64_t head_timeout_ms = 10'000;
  // Bodies and answers have to keep the lowest rate in each period of this length.
  int64_t body_timeout_ms = 20'000;
  int64_t write_timeout_ms = 30'000;
  int64_t min_bytes_per_s = 16 << 10;
  int64_t idle_timeout_ms = 600'000;    // between requests of a connection
  int64_t linger_timeout_ms = 2'000;    // reading what a client still sends after its last answer
  int64_t drain_idle_timeout_ms = 200;  // when stopping: how long idle connections may still bring a request
};

// One for each reactor, on its own cache line. Only the reactor adds.
struct alignas(64) HttpCounters {
  std::atomic<uint64_t> connections_accepted{0};
  std::atomic<uint64_t> connections_refused{0};  // beyond max_connections
  std::atomic<uint64_t> connections_open{0};
  std::atomic<uint64_t> requests{0};
  std::atomic<uint64_t> responses_2xx{0};
  std::atomic<uint64_t> responses_4xx{0};
  std::atomic<uint64_t> responses_5xx{0};
  std::atomic<uint64_t> parse_errors{0};
  std::atomic<uint64_t> timeouts{0};     // slow heads, bodies and readers
  std::atomic<uint64_t> disconnects{0};  // clients that left before their answer
  std::atomic<uint64_t> received_bytes{0};
  std::atomic<uint64_t> sent_bytes{0};
  std::atomic<uint64_t> in_flight{0};  // requests received and not yet answered

  // One writer: no locked instruction needed.
  static void add(std::atomic<uint64_t>& counter, uint64_t count = 1) {
    counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
  static void subtract(std::atomic<uint64_t>& counter, uint64_t count = 1) { add(counter, uint64_t{0} - count); }
};

struct HttpCounts {
  uint64_t connections_accepted = 0, connections_refused = 0, connections_open = 0, requests = 0, responses_2xx = 0,
           responses_4xx = 0, responses_5xx = 0, parse_errors = 0, timeouts = 0, disconnects = 0, received_bytes = 0,
           sent_bytes = 0, in_flight = 0, body_bytes = 0, answer_bytes = 0;
};

}  // namespace flywheel::http
