// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace flywheel::grpc {

std::string frame_message(std::string_view message, bool compressed) {
  std::string text(1, compressed ? '\1' : '\0');
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(message.size() >> shift & 0xFF);
  return text += message;
}

std::vector<std::string> TestClient::Call::messages() const {
  std::vector<std::string> found;
  for (size_t at = 0; at + 5 <= data.size();) {
    size_t size = 0;
    for (size_t i = 1; i < 5; ++i) size = size << 8 | static_cast<unsigned char>(data[at + i]);
    if (size > data.size() - at - 5) break;
    found.push_back(data.substr(at + 5, size));
    at += 5 + size;
  }
  return found;
}

int TestClient::Call::status() const {
  const auto found = fields.find("grpc-status");
  return found == fields.end() ? -1 : std::stoi(found->second);
}

struct TestCallbacks {
  static TestClient& self(void* user_data) { return *static_cast<TestClient*>(user_data); }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                       const uint8_t* value, size_t value_size, uint8_t, void* user_data) {
    self(user_data).calls_[frame->hd.stream_id].fields[std::string(reinterpret_cast<const char*>(name), name_size)] =
        std::string(reinterpret_cast<const char*>(value), value_size);
    return 0;
  }
  static int on_data(nghttp2_session*, uint8_t, int32_t stream, const uint8_t* data, size_t size, void* user_data) {
    self(user_data).calls_[stream].data.append(reinterpret_cast<const char*>(data), size);
    return 0;
  }
  static int on_close(nghttp2_session*, int32_t stream, uint32_t error, void* user_data) {
    self(user_data).calls_[stream].closed = true;
    self(user_data).calls_[stream].error = error;
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
    if (frame->hd.type == NGHTTP2_GOAWAY) {
      self(user_data).goaway_ = true;
      self(user_data).goaway_error_ = frame->goaway.error_code;
    }
    return 0;
  }
  static ssize_t read(nghttp2_session*, int32_t stream, uint8_t* buffer, size_t length, uint32_t* flags,
                      nghttp2_data_source*, void* user_data) {
    TestClient::Source& source = self(user_data).sources_[stream];
    const size_t size = std::min(length, source.data.size() - source.offset);
    if (size == 0 && !source.end) {
      source.deferred = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    std::memcpy(buffer, source.data.data() + source.offset, size);
    source.offset += size;
    if (source.end && source.offset == source.data.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(size);
  }
};

TestClient::TestClient(uint16_t port, uint32_t window_bytes) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ended_ = true;
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, TestCallbacks::on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, TestCallbacks::on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, TestCallbacks::on_close);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, TestCallbacks::on_frame);
  nghttp2_option* option = nullptr;
  nghttp2_option_new(&option);
  // Small windows are meant to stay as they are until open_window().
  if (window_bytes < 65536) nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_session_client_new2(&session_, callbacks, this, option);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window_bytes}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, 1);
  if (window_bytes >= 65536) {
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, static_cast<int32_t>(window_bytes) * 16);
  }
}

TestClient::~TestClient() {
  nghttp2_session_del(session_);
  if (socket_ >= 0) ::close(socket_);
}

int32_t TestClient::begin(const std::string& path, std::string data, bool end, Fields extra, Fields instead_of_usual) {
  Fields fields = std::move(instead_of_usual);
  if (fields.empty()) {
    fields = {{":method", "POST"}, {":scheme", "http"}, {":path", path},
              {":authority", "x"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
  }
  fields.insert(fields.end(), extra.begin(), extra.end());
  std::vector<nghttp2_nv> values;
  for (auto& [name, value] : fields) {
    values.push_back({reinterpret_cast<uint8_t*>(name.data()), reinterpret_cast<uint8_t*>(value.data()), name.size(),
                      value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  nghttp2_data_provider provider{};
  provider.read_callback = TestCallbacks::read;
  const int32_t stream = nghttp2_submit_request(session_, nullptr, values.data(), values.size(),
                                                data.empty() && end ? nullptr : &provider, nullptr);
  sources_[stream] = {std::move(data), 0, end, false};
  calls_[stream];
  return stream;
}

void TestClient::send(int32_t stream, std::string data, bool end) {
  Source& source = sources_[stream];
  source.data.erase(0, source.offset);
  source.offset = 0;
  source.data += data;
  source.end = end;
  if (source.deferred) nghttp2_session_resume_data(session_, stream);
  source.deferred = false;
}

void TestClient::reset(int32_t stream) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
}

void TestClient::open_window(int32_t stream, int32_t bytes) {
  nghttp2_submit_window_update(session_, NGHTTP2_FLAG_NONE, stream, bytes);
}

bool TestClient::flush() {
  while (true) {
    if (unsent_.empty()) {
      const uint8_t* data = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &data);
      if (size <= 0) return size == 0;
      unsent_.assign(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
    }
    const ssize_t sent = ::send(socket_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN;
    unsent_.erase(0, static_cast<size_t>(sent));
    if (!unsent_.empty()) return true;
  }
}

bool TestClient::step(int timeout_ms) {
  if (ended_ || !flush()) return !(ended_ = true);
  pollfd waiting{socket_, static_cast<short>(POLLIN | (unsent_.empty() ? 0 : POLLOUT)), 0};
  if (::poll(&waiting, 1, timeout_ms) <= 0) return true;
  if ((waiting.revents & (POLLIN | POLLHUP | POLLERR)) == 0) return true;
  uint8_t buffer[64 << 10];
  const ssize_t got = ::recv(socket_, buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return true;
  if (got <= 0) return !(ended_ = true);
  if (nghttp2_session_mem_recv(session_, buffer, static_cast<size_t>(got)) < 0) return !(ended_ = true);
  return true;
}

bool TestClient::run_until(const std::function<bool()>& condition, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline || !step(20)) return condition();
  }
  (void)flush();
  return true;
}

TestClient::Call& TestClient::wait(int32_t stream) {
  Call& target = calls_[stream];
  run_until([&] { return target.closed; });
  return target;
}

TestClient::Call& TestClient::call(const std::string& path, std::string_view message, Fields extra) {
  return wait(begin(path, frame_message(message), true, std::move(extra)));
}

bool TestClient::wait_for_end() {
  run_until([&] { return ended_; });
  return ended_;
}

}  // namespace flywheel::grpc
