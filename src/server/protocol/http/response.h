// SPDX-License-Identifier: Apache-2.0
// An answer to an HTTP request, as handlers build it: a text part, and binary parts that are sent from where they lie.
// Also the form of all errors: {"error": "<text>"}, with Triton's status for each code.
// Thread safety: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"

namespace flywheel::http {

struct Response {
  struct Blob {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;  // keeps `bytes` alive until they are sent
  };

  int status = 200;
  std::string_view content_type;  // of static storage; empty: none
  std::string fields;             // further header fields, each "Name: value\r\n"
  std::string body;
  std::vector<Blob> blobs;  // sent after `body`
  bool close = false;       // close the connection after this answer
  std::shared_ptr<const void> held_until_sent;

  size_t content_bytes() const;
  void add_field(std::string_view name, std::string_view value);
};

inline constexpr std::string_view kJson = "application/json";
inline constexpr std::string_view kBinary = "application/octet-stream";
inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";
inline constexpr std::string_view kPrometheusText = "text/plain; charset=utf-8";

Response json_response(std::string body);
Response error_response(int status, std::string_view message);
Response error_response(const Status& status);

// What Triton answers for the code: 400 for all faults of the caller's, cancellation included; 503 for try again.
int http_status(Code code);
std::string_view reason_phrase(int status);

// How a client knows where the body ends.
enum class Framing : uint8_t { kLength, kChunked, kUntilClose };
// The status line and the header fields, up to and including the empty line.
void append_head(std::string& out, const Response& response, bool close, int request_minor_version,
                 Framing framing = Framing::kLength);
// One piece of a chunked body; an empty one ends it.
void append_chunk(std::string& out, std::string_view piece);

}  // namespace flywheel::http
