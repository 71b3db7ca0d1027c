// SPDX-License-Identifier: Apache-2.0
// How the gRPC listener behaves, and what it counts. The server fills GrpcOptions from the command line; connections
// read them; prometheus prints the counts.
// Thread safety: options are immutable once given; counters are written by one thread and read by any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "server/protocol/grpc/grpc_status.h"
#include "server/protocol/net/tls.h"

namespace flywheel::grpc {

enum class CompressionLevel : uint8_t { kNone, kLow, kMedium, kHigh };

struct GrpcOptions {
  std::string name = "GRPCInferenceService";  // in the log
  std::string address = "0.0.0.0";
  uint16_t port = 8001;     // 0: any free one
  bool reuse_port = false;  // other processes may listen on the same port
  int threads = 1;
  net::TlsOptions tls;
  int64_t busy_poll_us = 0;  // how long a busy thread asks for the next event before it sleeps
  uint64_t max_message_bytes = std::numeric_limits<int32_t>::max();
  int64_t max_total_message_bytes = int64_t{4} << 30;  // of all requests in hand, and of all answers not yet taken
  int max_connections = 16384;
  uint32_t max_calls = 1024;           // of one connection at a time
  size_t max_header_bytes = 16 << 10;  // of one call, as HTTP/2 counts them
  int max_stream_requests = 256;       // of one streaming call in hand; then it is not read until answers are ready
  // What a client may send of one call, and of all calls of its connection, before it is read.
  int32_t call_window_bytes = 1 << 20;
  int32_t connection_window_bytes = 16 << 20;
  // Responses to inference are compressed where the client takes it; not the best place to spend a server's time.
  CompressionLevel response_compression = CompressionLevel::kNone;
  bool keep_fields = false;  // handlers want to see the client's metadata
  int64_t handshake_timeout_ms = 10'000;
  // A message that has begun, and what is sent, have to keep the lowest rate in each period of this length.
  int64_t message_timeout_ms = 20'000;
  int64_t write_timeout_ms = 30'000;
  int64_t min_bytes_per_s = 16 << 10;
  int64_t stalled_call_timeout_ms = 300'000;  // a client that opens no window for an answer that is ready
  int64_t linger_timeout_ms = 2'000;          // waiting for the client's end after the last answer
  int64_t drain_notice_ms = 200;  // when stopping: how long clients that have been told so may still begin calls
  // Pings to clients that say nothing; a client that does not answer is gone.
  int64_t keepalive_time_ms = 7'200'000;
  int64_t keepalive_timeout_ms = 20'000;
  bool keepalive_without_calls = false;
  int64_t max_connection_age_ms = 0;        // 0: none. Then the client is told to connect anew
  int64_t max_connection_age_grace_ms = 0;  // 0: calls may take as long as they do
  // Calls that a client resets before their answer, and frames that ask for work without a call: a burst, then a rate.
  uint64_t reset_burst = 1000, resets_per_s = 100;
  uint64_t control_burst = 10'000, controls_per_s = 1000;
};

// One for each reactor, on its own cache line. Only the reactor adds.
struct alignas(64) GrpcCounters {
  std::atomic<uint64_t> connections_accepted{0};
  std::atomic<uint64_t> connections_refused{0};  // beyond max_connections
  std::atomic<uint64_t> connections_open{0};
  std::atomic<uint64_t> calls{0};
  std::array<std::atomic<uint64_t>, kStatusCodes> calls_by_status{};
  std::atomic<uint64_t> calls_abandoned{0};  // by clients that reset them or left
  std::atomic<uint64_t> messages_received{0};
  std::atomic<uint64_t> messages_sent{0};
  std::atomic<uint64_t> protocol_errors{0};  // connections that do not speak HTTP/2, or flood
  std::atomic<uint64_t> timeouts{0};         // slow clients
  std::atomic<uint64_t> received_bytes{0};
  std::atomic<uint64_t> sent_bytes{0};
  std::atomic<uint64_t> in_flight{0};  // calls begun and not yet answered

  // One writer: no locked instruction needed.
  static void add(std::atomic<uint64_t>& counter, uint64_t count = 1) {
    counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
  static void subtract(std::atomic<uint64_t>& counter, uint64_t count = 1) { add(counter, uint64_t{0} - count); }
};

struct GrpcCounts {
  uint64_t connections_accepted = 0, connections_refused = 0, connections_open = 0, calls = 0, calls_abandoned = 0,
           messages_received = 0, messages_sent = 0, protocol_errors = 0, timeouts = 0, received_bytes = 0,
           sent_bytes = 0, in_flight = 0, message_bytes = 0;
  std::array<uint64_t, kStatusCodes> calls_by_status{};
};

}  // namespace flywheel::grpc
