// SPDX-License-Identifier: Apache-2.0
// The server when it is not treated well: overload, clients that vanish, stopping and swapping under load. What is
// counted is lost answers: none, and threads and memory: no growth.
#include <atomic>
#include <fstream>
#include <future>

#include "server/server_test_data.h"

namespace flywheel::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kRequest = R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]})";

class LoadTest : public ServerTest {
 protected:
  // Values that differ from request to request, so that an answer that belongs to another request is noticed.
  http::LoadOptions load(int connections) {
    http::LoadOptions options;
    options.port = server_->http_port();
    options.connections = connections;
    options.reconnect = false;
    options.make_request = [](uint64_t i, std::string& request) {
      const float v = static_cast<float>(i);
      auto [body, fields] = binary_request({v, v + 1, v + 2, v + 3});
      request = http::format_request("POST", "/v2/models/m/infer", fields, body);
    };
    options.on_response = [this](uint64_t i, int status, std::string_view body) {
      if (status != 200) return;
      const float v = 2 * static_cast<float>(i);
      wrong_ += !body.ends_with(bytes_of<float>({v, v + 2, v + 4, v + 6}));
    };
    return options;
  }
  std::atomic<int> wrong_{0};
};

int64_t status_value(const char* key) {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if (word == key) file >> value;
  }
  return value;
}

TEST_F(LoadTest, BatchesConcurrentRequestsAndMixesNoAnswers) {
  device_->delay_us = 200;
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  auto options = load(32);
  options.requests = 3000;
  const auto report = http::run_load(options);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->by_status, (std::map<int, uint64_t>{{200, 3000}}));
  EXPECT_EQ(report->broken, 0u);
  EXPECT_EQ(wrong_, 0);
  const auto snapshot = (*server_->models().find("m"))->statistics().snapshot();
  EXPECT_EQ(snapshot.inference_count, 3000u);
  EXPECT_LT(snapshot.execution_count, 2000u) << "nothing was batched";
}

TEST_F(LoadTest, OverloadIsRefusedAndNothingIsLost) {
  device_->delay_us = 1000;
  add_model("m", "double", "max_batch_size: 2 dynamic_batching { default_queue_policy { max_queue_size: 4 } }");
  ASSERT_TRUE(start().is_ok());
  auto options = load(64);
  options.requests = 5000;
  const auto report = http::run_load(options);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->broken, 0u);
  EXPECT_EQ(wrong_, 0);
  auto by_status = report->by_status;
  EXPECT_GT(by_status[200], 0u);
  EXPECT_GT(by_status[503], 0u);
  EXPECT_EQ(by_status[200] + by_status[503], 5000u);
  const auto snapshot = (*server_->models().find("m"))->statistics().snapshot();
  EXPECT_EQ(snapshot.success.count, by_status[200]);
  EXPECT_EQ(snapshot.failures[static_cast<size_t>(schedule::FailureReason::kRejected)], by_status[503]);
  EXPECT_EQ(snapshot.pending_requests, 0);
}

TEST_F(LoadTest, StopUnderLoadAnswersEveryRequestOnce) {
  device_->delay_us = 300;
  add_model("m", "double", "dynamic_batching { max_queue_delay_microseconds: 2000 }");
  ASSERT_TRUE(start().is_ok());
  auto options = load(48);
  options.seconds = 10;
  auto running = std::async(std::launch::async, [&] { return http::run_load(options); });
  ASSERT_TRUE(device_->wait_for_runs(50));
  const Status stopped = server_->stop(10'000);
  EXPECT_TRUE(stopped.is_ok()) << stopped.to_string();
  auto report = running.get();
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->broken, 0u);
  EXPECT_EQ(report->answered(), report->sent);
  EXPECT_EQ(report->by_status[200] + report->by_status[503], report->sent);
  EXPECT_EQ(wrong_, 0);
}

TEST_F(LoadTest, StopExecutesAtOnceWhatWaitsForABatchToFill) {
  add_model("m", "double", "dynamic_batching { max_queue_delay_microseconds: 60000000 preferred_batch_size: 8 }");
  ASSERT_TRUE(start().is_ok());
  std::vector<http::Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(connect());
    ASSERT_TRUE(clients.back().send(http::format_request("POST", "/v2/models/m/infer", {}, kRequest)).is_ok());
  }
  const repository::ServedModelPtr model = *server_->models().find("m");
  ASSERT_TRUE(eventually([&] { return model->queued_requests() == 3; }));
  auto stopping = std::async(std::launch::async, [&] { return server_->stop(10'000); });
  for (http::Client& client : clients) {
    auto answer = client.receive();
    ASSERT_TRUE(answer.is_ok()) << answer.status().to_string();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->find("connection"), "close");
  }
  EXPECT_TRUE(stopping.get().is_ok());
  EXPECT_THAT(device_->batches(), ElementsAre(3));
}

TEST_F(LoadTest, StopSaysExitingAndIsNotReady) {
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  device_->close_gate();
  http::Client working = connect(), health = connect(), late = connect();
  ASSERT_TRUE(working.send(http::format_request("POST", "/v2/models/m/infer", {}, kRequest)).is_ok());
  ASSERT_TRUE(device_->wait_for_runs(1));
  auto stopping = std::async(std::launch::async, [&] { return server_->stop(10'000); });
  ASSERT_TRUE(eventually([&] { return !server_->is_ready(); }));
  for (http::Client* client : {&health, &late}) {
    auto answer = client == &health ? client->get("/v2/health/ready") : client->post("/v2/models/m/infer", kRequest);
    ASSERT_TRUE(answer.is_ok()) << answer.status().to_string();
    EXPECT_EQ(answer->status, 503);
    EXPECT_EQ(answer->body, R"({"error":"Server exiting"})");
  }
  device_->open_gate();
  EXPECT_EQ(working.receive()->status, 200);
  EXPECT_TRUE(stopping.get().is_ok());
}

TEST_F(LoadTest, StopGivesUpOnAModelThatHangs) {
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  device_->close_gate();
  http::Client stuck = connect();
  ASSERT_TRUE(stuck.send(http::format_request("POST", "/v2/models/m/infer", {}, kRequest)).is_ok());
  ASSERT_TRUE(device_->wait_for_runs(1));
  (void)server_->stop(1200);
  auto answer = stuck.receive();
  ASSERT_TRUE(answer.is_ok()) << answer.status().to_string();
  EXPECT_EQ(answer->status, 503);
  EXPECT_THAT(answer->body, HasSubstr("was stopped before it could answer"));
}

TEST_F(LoadTest, ClientsThatVanishCancelWhatWaits) {
  add_model("m", "double", "max_batch_size: 1");
  ASSERT_TRUE(start().is_ok());
  device_->close_gate();
  http::Client first = connect();
  ASSERT_TRUE(first.send(http::format_request("POST", "/v2/models/m/infer", {}, kRequest)).is_ok());
  ASSERT_TRUE(device_->wait_for_runs(1));
  const repository::ServedModelPtr model = *server_->models().find("m");
  std::vector<http::Client> vanishing;
  for (int i = 0; i < 10; ++i) {
    vanishing.push_back(connect());
    ASSERT_TRUE(vanishing.back().send(http::format_request("POST", "/v2/models/m/infer", {}, kRequest)).is_ok());
  }
  ASSERT_TRUE(eventually([&] { return model->queued_requests() == 10; }));
  for (int i = 0; i < 10; ++i)
    i % 2 == 0 ? vanishing[static_cast<size_t>(i)].reset() : vanishing[static_cast<size_t>(i)].close();
  EXPECT_TRUE(eventually([&] { return model->queued_requests() == 0; }));
  device_->open_gate();
  EXPECT_EQ(first.receive()->status, 200);
  EXPECT_EQ(device_->batches().size(), 1u) << "what nobody waits for is not executed";
  EXPECT_EQ(model->statistics().snapshot().failures[static_cast<size_t>(schedule::FailureReason::kCanceled)], 10u);
}

TEST_F(LoadTest, SwappingUnderLoadFailsNoRequest) {
  device_->delay_us = 100;
  options_.control_mode = repository::ControlMode::kExplicit;
  options_.load_models = {"m"};
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  auto options = load(16);
  std::atomic<bool> done{false};
  options.seconds = 30;
  options.requests = 4000;
  auto running = std::async(std::launch::async, [&] {
    auto report = http::run_load(options);
    done = true;
    return report;
  });
  int swaps = 0;
  while (!done) {
    EXPECT_EQ(post("/v2/repository/models/m/load", "").status, 200);
    ++swaps;
  }
  auto report = running.get();
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->by_status, (std::map<int, uint64_t>{{200, 4000}}));
  EXPECT_EQ(wrong_, 0);
  EXPECT_GT(swaps, 2);
}

TEST_F(LoadTest, SlowReadersOfLargeAnswersDoNotHoldUpOthers) {
  add_model("big", "big");
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  std::vector<http::Client> slow;
  const std::string big =
      http::format_request("POST", "/v2/models/big/infer", {},
                           R"({"inputs":[{"name":"x","shape":[8,4],"datatype":"FP32","data":[1,0,0,0,1,0,0,0,1,0,0,0,)"
                           R"(1,0,0,0,1,0,0,0,1,0,0,0,1,0,0,0,1,0,0,0]}],"parameters":{"binary_data_output":true}})");
  for (int i = 0; i < 8; ++i) {
    slow.push_back(connect());
    ASSERT_TRUE(slow.back().send(big).is_ok());
  }
  auto options = load(8);
  options.requests = 1000;
  const auto report = http::run_load(options);
  ASSERT_TRUE(report.is_ok());
  EXPECT_EQ(report->by_status, (std::map<int, uint64_t>{{200, 1000}}));
  for (int i = 0; i < 4; ++i) EXPECT_GT(slow[static_cast<size_t>(i)].receive()->body.size(), 8u << 20);
}

TEST_F(LoadTest, GrowsNeitherInThreadsNorInMemory) {
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  auto round = [&] {
    auto options = load(16);
    options.requests = 4000;
    ASSERT_TRUE(http::run_load(options).is_ok());
    for (int i = 0; i < 200; ++i) {
      http::Client client = connect();
      ASSERT_TRUE(client.post("/v2/models/m/infer", i % 3 == 0 ? std::string_view("{broken") : kRequest).is_ok());
      if (i % 4 == 0) client.reset();
    }
    (void)metrics();
  };
  round();
  const int64_t threads = status_value("Threads:");
  const int64_t memory_kb = status_value("VmRSS:");
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(status_value("Threads:"), threads);
  EXPECT_LT(status_value("VmRSS:"), memory_kb + 8 * 1024);
  EXPECT_TRUE(eventually([&] { return server_->http_counts().connections_open <= 1; }));
  EXPECT_EQ(server_->http_counts().body_bytes, 0u);
  EXPECT_EQ(server_->http_counts().in_flight, 0u);
}

}  // namespace
}  // namespace flywheel::server
