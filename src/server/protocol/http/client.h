// SPDX-License-Identifier: Apache-2.0
// A minimal HTTP/1.1 client over one blocking connection, for tests, the demo and the command line: keep-alive,
// pipelining (send several, receive in order), interim answers skipped. Not for untrusted servers: it takes any size.
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "flywheel/status.h"

namespace flywheel::http {

using Fields = std::vector<std::pair<std::string, std::string>>;

struct ClientResponse {
  int status = 0;
  Fields fields;
  std::string body;
  int interim_answers = 0;  // 1xx before it

  std::optional<std::string_view> find(std::string_view name) const;
};

// The whole request as text. A body, or POST, gets a Content-Length.
std::string format_request(std::string_view method, std::string_view target, const Fields& fields,
                           std::string_view body);

// Takes an answer apart as its bytes arrive; shared with the load generator.
class ResponseReader {
 public:
  // Consumes what belongs to the answer and returns how much that was.
  Result<size_t> feed(std::string_view bytes);
  // The server closed the connection: the end of an answer without length, or an error.
  Status finish();
  bool done() const { return done_; }
  ClientResponse take();  // and be ready for the next

 private:
  Status parse_head(std::string_view head);
  ClientResponse response_;
  std::string head_;
  bool in_body_ = false, done_ = false, chunked_ = false, until_close_ = false;
  uint64_t remaining_ = 0;
  std::string chunk_line_;
  int chunk_state_ = 0;
};

class Client {
 public:
  static Result<Client> connect(const std::string& address, uint16_t port, int timeout_ms = 30'000);
  Client(Client&& other) noexcept;
  Client& operator=(Client&& other) noexcept;
  ~Client();

  Result<ClientResponse> request(std::string_view method, std::string_view target, std::string_view body = {},
                                 const Fields& fields = {});
  Result<ClientResponse> get(std::string_view target) { return request("GET", target); }
  Result<ClientResponse> post(std::string_view target, std::string_view body, const Fields& fields = {}) {
    return request("POST", target, body, fields);
  }

  Status send(std::string_view bytes);
  Result<ClientResponse> receive();
  // True when the server has closed the connection and nothing unread is left; waits up to the time-out.
  bool wait_for_close();
  void end_sending();  // half-closes
  void close();
  void reset();  // closes so that the server sees an error, not an end
  int socket() const { return socket_; }

 private:
  explicit Client(int socket) : socket_(socket) {}
  int socket_ = -1;
  std::string unread_;
};

}  // namespace flywheel::http
