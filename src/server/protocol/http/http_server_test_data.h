// SPDX-License-Identifier: Apache-2.0
// What the HTTP layer's tests share: a handler that echoes, and a server with it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/protocol/http/client.h"
#include "server/protocol/http/http_server.h"

namespace flywheel::http {

using std::chrono::milliseconds;

// /echo answers with the body; /later waits for release(); /big answers with 8 MB; /close asks to close.
class EchoHandler : public Handler {
 public:
  struct LaterJob : Job {
    LaterJob(EchoHandler& handler, std::string body) : handler(handler), body(std::move(body)) {}
    Response render() override { return json_response(body); }
    void abandon() override {
      std::lock_guard lock(handler.mutex);
      ++handler.abandoned;
      handler.changed.notify_all();
    }
    EchoHandler& handler;
    std::string body;
  };

  BodyPlan plan_body(const RequestHead&) override { return {1 << 20, 0}; }
  Response body_too_large(const RequestHead&, uint64_t bytes) override {
    return error_response(400, "too large: " + std::to_string(bytes));
  }
  bool is_slow(const Exchange& exchange) override { return exchange.head().path == "/slow"; }
  void handle(const ExchangePtr& exchange) override {
    ++handled;
    const std::string_view path = exchange->head().path;
    if (path == "/later") {
      exchange->set_job(std::make_unique<LaterJob>(*this, std::string(exchange->body().text())));
      std::lock_guard lock(mutex);
      waiting.push_back(exchange);
      changed.notify_all();
      return;
    }
    Response response = json_response(std::string(exchange->body().text()));
    if (path == "/close") response.close = true;
    if (path == "/big") response.blobs.push_back({std::span<const std::byte>(*big), big});
    exchange->respond(std::move(response));
  }
  void release() {
    std::lock_guard lock(mutex);
    for (const ExchangePtr& exchange : waiting) exchange->complete();
    waiting.clear();
  }
  bool wait_until(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), condition);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ExchangePtr> waiting;
  int abandoned = 0;
  std::atomic<int> handled{0};
  std::shared_ptr<std::vector<std::byte>> big = std::make_shared<std::vector<std::byte>>(8 << 20, std::byte{'b'});
};

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.address = "127.0.0.1";
    options.port = 0;
    if (options.threads == 1) options.threads = 2;
    auto started = HttpServer::start(options, handler_);
    ASSERT_TRUE(started.is_ok()) << started.status().to_string();
    server_ = std::move(started).value();
  }
  Client connect(int timeout_ms = 10'000) {
    auto client = Client::connect("127.0.0.1", server_->port(), timeout_ms);
    EXPECT_TRUE(client.is_ok()) << client.status().to_string();
    return std::move(client).value();
  }
  // Polls: the counters of a connection's end are written after the client sees it.
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  std::shared_ptr<EchoHandler> handler_ = std::make_shared<EchoHandler>();
  std::unique_ptr<HttpServer> server_;
};

inline int64_t status_value(const char* key) {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if (word == key) file >> value;
  }
  return value;
}

}  // namespace flywheel::http
