// SPDX-License-Identifier: Apache-2.0
// A gRPC client for tests, with what real clients do not let one do: frames at will, windows that stay shut, calls that
// are reset. One thread; every wait has an end. Linked into tests alone.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flywheel::grpc {

// gRPC's prefix and the message.
std::string frame_message(std::string_view message, bool compressed = false);

class TestClient {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;
  struct Call {
    std::map<std::string, std::string> fields;  // of head and trailers
    std::string data;                           // frames and all
    std::vector<std::string> messages() const;  // cut out of `data`
    bool closed = false;
    uint32_t error = 0;  // HTTP/2's, when closed
    int status() const;  // grpc-status; -1: none
    std::string message() const { return fields.contains("grpc-message") ? fields.at("grpc-message") : ""; }
  };

  explicit TestClient(uint16_t port, uint32_t window_bytes = 1 << 20);
  ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  // Begins a call. `data` is sent as it is; see frame_message().
  int32_t begin(const std::string& path, std::string data = {}, bool end = true, Fields extra = {},
                Fields instead_of_usual = {});
  void send(int32_t stream, std::string data, bool end);
  void reset(int32_t stream);
  void open_window(int32_t stream, int32_t bytes);
  // Sends and receives until the condition holds; false after `timeout_ms` or when the connection has ended.
  bool run_until(const std::function<bool()>& condition, int timeout_ms = 10'000);
  Call& wait(int32_t stream);  // until it is closed
  Call& call(const std::string& path, std::string_view message, Fields extra = {});
  Call& get(int32_t stream) { return calls_[stream]; }
  bool wait_for_end();  // of the connection
  bool ended() const { return ended_; }
  bool told_to_go() const { return goaway_; }
  uint32_t goaway_error() const { return goaway_error_; }
  nghttp2_session* session() { return session_; }
  int socket() const { return socket_; }

 private:
  friend struct TestCallbacks;
  struct Source {
    std::string data;
    size_t offset = 0;
    bool end = false;
    bool deferred = false;
  };
  bool step(int timeout_ms);
  bool flush();

  int socket_ = -1;
  nghttp2_session* session_ = nullptr;
  bool ended_ = false;
  bool goaway_ = false;
  uint32_t goaway_error_ = 0;
  std::map<int32_t, Call> calls_;
  std::map<int32_t, Source> sources_;
  std::string unsent_;
};

}  // namespace flywheel::grpc
