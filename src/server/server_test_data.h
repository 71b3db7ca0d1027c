// SPDX-License-Identifier: Apache-2.0
// A running server over fake engines, on free loopback ports, for the tests of this folder.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder_test_data.h"
#include "server/backend/engine/fake_engine.h"
#include "server/protocol/http/client.h"
#include "server/protocol/http/load_generator.h"
#include "server/server.h"

namespace flywheel::server {

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    options_.model_repositories = {folder_.path()};
    options_.http_address = "127.0.0.1";
    options_.http_port = options_.grpc_port = options_.metrics_port = 0;
    options_.http_threads = 2;
    options_.cores = 2;
    options_.load_engine = engines::fake_loader(device_);
  }
  ~ServerTest() override {
    device_->open_gate();
    client_.reset();
    server_.reset();
    // An instance that hung ends a little after the server.
    EXPECT_TRUE(eventually([&] { return device_->live_contexts == 0; }));
  }
  void add_model(const std::string& name, const std::string& kind, const std::string& config = "") {
    folder_.write(name + "/1/model.engine", kind);
    if (!config.empty()) folder_.write(name + "/config.pbtxt", config);
  }
  Status start() {
    server_.reset();
    client_.reset();
    auto started = Server::start(options_);
    EXPECT_TRUE(started.is_ok()) << started.status().to_string();
    if (!started.is_ok()) return started.status();
    server_ = std::move(started).value();
    return server_->wait_until_loaded();
  }
  http::Client connect() {
    auto client = http::Client::connect("127.0.0.1", server_->http_port());
    EXPECT_TRUE(client.is_ok()) << client.status().to_string();
    return std::move(client).value();
  }
  http::ClientResponse request(std::string_view method, const std::string& target, std::string_view body = {},
                               const http::Fields& fields = {}) {
    if (!client_) client_ = std::make_unique<http::Client>(connect());
    auto answer = client_->request(method, target, body, fields);
    EXPECT_TRUE(answer.is_ok()) << answer.status().to_string();
    if (!answer.is_ok()) return {};
    if (answer->find("connection") == "close") client_.reset();
    return std::move(answer).value();
  }
  http::ClientResponse get(const std::string& target) { return request("GET", target); }
  http::ClientResponse post(const std::string& target, std::string_view body, const http::Fields& fields = {}) {
    return request("POST", target, body, fields);
  }
  http::ClientResponse infer(const std::string& model, std::string_view body, const http::Fields& fields = {}) {
    return post("/v2/models/" + model + "/infer", body, fields);
  }
  // The text of the error that the answer must be.
  std::string error(const http::ClientResponse& answer, int status) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_EQ(answer.find("content-type"), "application/json");
    EXPECT_TRUE(answer.body.starts_with("{\"error\":\"") && answer.body.ends_with("\"}")) << answer.body;
    return answer.body.size() > 12 ? answer.body.substr(10, answer.body.size() - 12) : "";
  }
  std::string metrics() {
    auto client = http::Client::connect("127.0.0.1", server_->metrics_port());
    EXPECT_TRUE(client.is_ok());
    auto answer = client->get("/metrics");
    EXPECT_TRUE(answer.is_ok());
    EXPECT_EQ(answer->status, 200);
    return answer->body;
  }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  template <class T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  // A binary request for "double" and the header field that it needs.
  static std::pair<std::string, http::Fields> binary_request(const std::vector<float>& values) {
    std::string json = R"({"inputs":[{"name":"x","shape":[)" + std::to_string(values.size() / 4) +
                       R"(,4],"datatype":"FP32","parameters":{"binary_data_size":)" +
                       std::to_string(values.size() * 4) + R"(}}],"parameters":{"binary_data_output":true}})";
    http::Fields fields = {{"Inference-Header-Content-Length", std::to_string(json.size())}};
    return {json + bytes_of(values), std::move(fields)};
  }

  TemporaryFolder folder_;
  std::shared_ptr<engines::FakeDevice> device_ = std::make_shared<engines::FakeDevice>();
  ServerOptions options_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<http::Client> client_;
};

}  // namespace flywheel::server
