// SPDX-License-Identifier: Apache-2.0
// Every route but inference: health, metadata, configuration, statistics, the repository's control, metrics, and what
// is refused with which words.
#include "server/server_test_data.h"

namespace flywheel::server {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

constexpr std::string_view kRequest =
    R"({"inputs":[{"name":"x","shape":[2,4],"datatype":"FP32","data":[1,2,3,4,5,6,7,8]}]})";

TEST_F(ServerTest, AnswersHealth) {
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  for (const char* path : {"/v2/health/live", "/v2/health/ready"}) {
    const auto answer = get(path);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "");
    EXPECT_EQ(error(post(path, ""), 405), "Method Not Allowed");
  }
  EXPECT_EQ(get("/v2/models/m/ready").status, 200);
  EXPECT_EQ(get("/v2/models/m/versions/1/ready").status, 200);
  EXPECT_EQ(error(get("/v2/models/m/versions/2/ready"), 400), "Model version not ready");
  EXPECT_EQ(error(get("/v2/models/x/ready"), 400), "Model version not ready");
}

TEST_F(ServerTest, IsAliveButNotReadyWhileAModelIsMissing) {
  add_model("good", "double");
  add_model("bad", "nonsense");
  options_.exit_on_error = false;
  EXPECT_TRUE(start().is_ok());
  EXPECT_EQ(get("/v2/health/live").status, 200);
  const auto ready = get("/v2/health/ready");
  EXPECT_EQ(ready.status, 400);
  EXPECT_EQ(ready.body, "");
  EXPECT_EQ(get("/v2/models/good/ready").status, 200);
  EXPECT_EQ(error(post("/v2/models/bad/infer", kRequest), 404),
            "Request for unknown model: 'bad' has no available versions");
  EXPECT_EQ(error(post("/v2/models/bad/versions/1/infer", kRequest), 503),
            "Request for unknown model: 'bad' version 1 is not at ready state");
  options_.strict_readiness = false;
  EXPECT_TRUE(start().is_ok());
  EXPECT_EQ(get("/v2/health/ready").status, 200);
  options_.exit_on_error = true;
  EXPECT_THAT(start().message(), HasSubstr("load failed for model 'bad': version 1 is at UNAVAILABLE state"));
}

TEST_F(ServerTest, DescribesItself) {
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(get("/v2").body,
            R"({"name":"flywheel","version":"0.1.0","extensions":["classification","sequence","model_repository",)"
            R"x("model_repository(unload_dependents)","schedule_policy","model_configuration","system_shared_memory",)x"
            R"("cuda_shared_memory","binary_tensor_data","parameters","statistics","trace","logging"]})");
}

TEST_F(ServerTest, DescribesModels) {
  add_model("text", "text");
  folder_.write("text/2/model.engine", "text");
  folder_.write("text/config.pbtxt", "version_policy { all {} }");
  add_model("fixed", "fixed");
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(
      get("/v2/models/text").body,
      R"({"name":"text","versions":["1","2"],"platform":"flywheel_engine","inputs":[{"name":"ids","datatype":"INT64",)"
      R"("shape":[-1,-1]},{"name":"mask","datatype":"INT64","shape":[-1,-1]}],"outputs":[{"name":"sum","datatype":"FP32",)"
      R"("shape":[-1,-1]}]})");
  EXPECT_THAT(get("/v2/models/text/versions/2").body, HasSubstr(R"("versions":["2"])"));
  EXPECT_THAT(get("/v2/models/fixed").body, HasSubstr(R"("inputs":[{"name":"a","datatype":"INT32","shape":[2,3]}])"));
  EXPECT_EQ(error(get("/v2/models/none"), 404), "Request for unknown model: 'none' is not found");
  EXPECT_EQ(error(get("/v2/models/text/versions/3"), 404), "Request for unknown model: 'text' version 3 is not found");
  const auto config = get("/v2/models/text/config");
  EXPECT_THAT(config.body, HasSubstr(R"("name":"text")"));
  EXPECT_THAT(config.body, HasSubstr(R"("max_batch_size":8)"));
  EXPECT_EQ(get("/v2/models/text/versions/1/config").status, 200);
  EXPECT_EQ(error(get("/v2/models/none/config"), 404), "Request for unknown model: 'none' is not found");
}

TEST_F(ServerTest, FindsModelsWithUnusualNames) {
  add_model("my model+1", "double");
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(get("/v2/models/my%20model%2B1").status, 200);
  EXPECT_EQ(post("/v2/models/my%20model%2B1/infer", kRequest).status, 200);
  EXPECT_EQ(get("/v2/models/my%2").status, 404);
  EXPECT_EQ(get("/v2/models/my%zz").status, 404);
}

TEST_F(ServerTest, CountsWhatItDoes) {
  add_model("a", "double");
  add_model("b", "double");
  ASSERT_TRUE(start().is_ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post("/v2/models/a/infer", kRequest).status, 200);
  EXPECT_EQ(post("/v2/models/a/infer", "{}").status, 400);
  const std::string duration = R"(\{"count":3,"ns":[0-9]+\})";
  EXPECT_THAT(
      get("/v2/models/a/stats").body,
      MatchesRegex(R"(\{"model_stats":\[\{"name":"a","version":"1","last_inference":[0-9]{13},"inference_count":6,)"
                   R"("execution_count":3,"inference_stats":\{"success":)" +
                   duration + R"(,"fail":\{"count":1,"ns":[0-9]+\},"queue":)" + duration + R"(,"compute_input":)" +
                   duration + R"(,"compute_infer":)" + duration + R"(,"compute_output":)" + duration +
                   R"(,"cache_hit":\{"count":0,"ns":0\},"cache_miss":\{"count":0,"ns":0\}\},"response_stats":\{\},)"
                   R"("batch_stats":\[\{"batch_size":2,"compute_input":)" +
                   duration + R"(,"compute_infer":)" + duration + R"(,"compute_output":)" + duration +
                   R"(\}\],"memory_usage":\[.*\]\}\]\})"));
  EXPECT_THAT(get("/v2/models/a/versions/1/stats").body, HasSubstr(R"("inference_count":6)"));
  EXPECT_THAT(get("/v2/models/stats").body, testing::AllOf(HasSubstr(R"("name":"a")"), HasSubstr(R"("name":"b")")));
  EXPECT_EQ(error(get("/v2/models/none/stats"), 400), "requested model 'none' is not available");
  EXPECT_EQ(error(get("/v2/models/a/versions/2/stats"), 400), "requested model version is not available for model 'a'");

  const std::string text = metrics();
  for (const char* line : {
           "nv_inference_request_success{model=\"a\",version=\"1\"} 3\n",
           "nv_inference_request_success{model=\"b\",version=\"1\"} 0\n",
           "nv_inference_request_failure{model=\"a\",version=\"1\",reason=\"OTHER\"} 1\n",
           "nv_inference_request_failure{model=\"a\",version=\"1\",reason=\"REJECTED\"} 0\n",
           "nv_inference_request_failure{model=\"a\",version=\"1\",reason=\"CANCELED\"} 0\n",
           "nv_inference_request_failure{model=\"a\",version=\"1\",reason=\"BACKEND\"} 0\n",
           "nv_inference_count{model=\"a\",version=\"1\"} 6\n",
           "nv_inference_exec_count{model=\"a\",version=\"1\"} 3\n",
           "nv_inference_pending_request_count{model=\"a\",version=\"1\"} 0\n",
           "# TYPE nv_inference_request_duration_us counter\n",
           "# TYPE nv_model_load_duration_secs gauge\n",
           "# TYPE flywheel_batch_size histogram\n",
           "flywheel_batch_size_bucket{model=\"a\",version=\"1\",le=\"1\"} 0\n",
           "flywheel_batch_size_bucket{model=\"a\",version=\"1\",le=\"2\"} 3\n",
           "flywheel_batch_size_bucket{model=\"a\",version=\"1\",le=\"+Inf\"} 3\n",
           "flywheel_batch_size_sum{model=\"a\",version=\"1\"} 6\n",
           "flywheel_batch_size_count{model=\"a\",version=\"1\"} 3\n",
           "flywheel_request_duration_seconds_count{model=\"a\",version=\"1\"} 4\n",
           "flywheel_request_duration_seconds_bucket{model=\"a\",version=\"1\",le=\"0.0001\"} ",
           "flywheel_http_responses_total{code=\"2xx\"} ",
           "flywheel_server_ready 1\n",
           "nv_cpu_memory_total_bytes ",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(ServerTest, LabelsMetricsWithTags) {
  add_model("m", "double", R"(metric_tags { key: "team" value: "a\"b" })");
  ASSERT_TRUE(start().is_ok());
  EXPECT_THAT(metrics(), HasSubstr("nv_inference_count{_team=\"a\\\"b\",model=\"m\",version=\"1\"} 0\n"));
}

TEST_F(ServerTest, ServesMetricsApart) {
  ASSERT_TRUE(start().is_ok());
  auto client = http::Client::connect("127.0.0.1", server_->metrics_port());
  ASSERT_TRUE(client.is_ok());
  EXPECT_EQ(client->get("/metrics/")->find("content-type"), "text/plain; charset=utf-8");
  EXPECT_EQ(client->get("/v2")->status, 404);
  EXPECT_EQ(client->post("/metrics", "")->status, 405);
  EXPECT_EQ(get("/metrics").status, 404);
}

TEST_F(ServerTest, ListsTheRepository) {
  add_model("a", "double");
  add_model("b", "nonsense");
  options_.exit_on_error = false;
  ASSERT_TRUE(start().is_ok());
  const auto all = post("/v2/repository/index", "");
  EXPECT_THAT(all.body,
              MatchesRegex(R"(\[\{"name":"a","version":"1","state":"READY"\},\{"name":"b","version":"1","state":)"
                           R"("UNAVAILABLE","reason":"Internal: .* is not an engine"\}\])"));
  EXPECT_EQ(post("/v2/repository/index", R"({"ready":true})").body, R"([{"name":"a","version":"1","state":"READY"}])");
  EXPECT_EQ(post("/v2/repository/index", R"({"ready":false})").body, all.body);
  EXPECT_EQ(error(post("/v2/repository/index", R"({"ready":1})"), 400),
            "Invalid value for 'ready': expected a boolean");
  EXPECT_EQ(error(post("/v2/repository/index",
                       R"({"ready":)" + std::string(250000, '[') + "true" + std::string(250000, ']') + "}"),
                  400),
            "Invalid value for 'ready': expected a boolean");
  EXPECT_THAT(error(post("/v2/repository/index", "{"), 400), HasSubstr("failed to parse the request JSON buffer"));
  EXPECT_EQ(error(get("/v2/repository/index"), 405), "Method Not Allowed");
  EXPECT_EQ(error(post("/v2/repository/r/index", ""), 501), "'repository_name' specification is not supported");
}

TEST_F(ServerTest, RefusesControlWithoutExplicitMode) {
  ASSERT_TRUE(start().is_ok());
  for (const char* action : {"load", "unload"}) {
    EXPECT_EQ(error(post(std::string("/v2/repository/models/m/") + action, ""), 503),
              "explicit model load / unload is not allowed if polling is enabled");
  }
}

TEST_F(ServerTest, LoadsFilesThatComeWithTheRequest) {
  options_.control_mode = repository::ControlMode::kExplicit;
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  EXPECT_THAT(
      error(post("/v2/repository/models/m/load", R"({"parameters":{"config":"{}","file:1/model.engine":"Y*=="}})"),
            400),
      HasSubstr("is not base64"));
  EXPECT_THAT(error(post("/v2/repository/models/m/load", R"({"parameters":{"file:1/model.engine":"ZG91Ymxl"}})"), 400),
              HasSubstr("send 'config', too"));
  EXPECT_EQ(
      post("/v2/repository/models/sent/load", R"({"parameters":{"config":"{}","file:3/model.engine":"ZG91Ymxl"}})")
          .status,
      200);
  EXPECT_EQ(get("/v2/models/sent/versions/3/ready").status, 200);
  EXPECT_EQ(post("/v2/models/sent/infer", kRequest).status, 200);
}

TEST_F(ServerTest, LoadsAndUnloadsInExplicitMode) {
  options_.control_mode = repository::ControlMode::kExplicit;
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(post("/v2/repository/index", "").body, R"([{"name":"m"}])");
  EXPECT_EQ(error(post("/v2/models/m/infer", kRequest), 404), "Request for unknown model: 'm' is not found");
  const auto loaded = post("/v2/repository/models/m/load", "");
  EXPECT_EQ(loaded.status, 200);
  EXPECT_EQ(loaded.body, "");
  EXPECT_EQ(post("/v2/models/m/infer", kRequest).status, 200);
  EXPECT_EQ(post("/v2/repository/models/m/load", R"({"parameters":{"config":"{\"max_batch_size\":1}"}})").status, 200);
  EXPECT_THAT(error(post("/v2/models/m/infer", kRequest), 400), HasSubstr("inference request batch-size must be <= 1"));
  EXPECT_THAT(error(post("/v2/repository/models/m/load", R"({"parameters":{"config":"{"}})"), 400),
              HasSubstr("failed to load 'm'"));
  EXPECT_THAT(error(post("/v2/repository/models/m/load", R"({"parameters":{"other":"x"}})"), 400),
              HasSubstr("'other'"));
  EXPECT_EQ(post("/v2/models/m/ready", "").status, 405);
  EXPECT_EQ(error(post("/v2/repository/models/m/unload", R"({"parameters":{"unload_dependents":1}})"), 400),
            "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean");
  EXPECT_EQ(post("/v2/repository/models/m/unload", R"({"parameters":{"unload_dependents":true}})").status, 200);
  EXPECT_EQ(get("/v2/models/m/ready").status, 400);
  EXPECT_TRUE(eventually([&] {
    return post("/v2/repository/index", "").body ==
           R"([{"name":"m","version":"1","state":"UNAVAILABLE","reason":"unloaded"}])";
  }));
  EXPECT_EQ(get("/v2/health/ready").status, 200);
  EXPECT_THAT(error(post("/v2/repository/models/none/load", ""), 400), HasSubstr("failed to load 'none'"));
}

TEST_F(ServerTest, KnowsNoOtherRoutes) {
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  for (const char* path :
       {"/", "/v1", "/v2/", "/v2//health/live", "/v2/health", "/v2/health/dead", "/v2/models", "/v2/models/m/",
        "/v2/models/m/versions", "/v2/models/m/versions/x", "/v2/models/m/versions/1/trace/setting",
        "/v2/models/m/infer/x", "/v2/repository", "/v2/repository/models/m/reload", "/favicon.ico"}) {
    EXPECT_EQ(error(get(path), 404), "Not Found") << path;
  }
  EXPECT_EQ(error(request("DELETE", "/v2/models/m"), 405), "Method Not Allowed");
  EXPECT_EQ(get("/v2/models/m?query=ignored").status, 200);
}

TEST_F(ServerTest, RefusesBadOptions) {
  ServerOptions options;
  EXPECT_THAT(Server::start(options).status().message(), HasSubstr("--model-repository"));
  options = options_;
  options.http_port = 70000;
  EXPECT_THAT(Server::start(options).status().message(), HasSubstr("--http-port is 70000"));
  ASSERT_TRUE(start().is_ok());
  options = options_;
  options.metrics_port = server_->http_port();
  EXPECT_THAT(Server::start(options).status().message(), HasSubstr("another program has the port"));
  options.metrics_port = options.grpc_port = 8765;
  EXPECT_THAT(Server::start(options).status().message(), HasSubstr("--grpc-port and --metrics-port are both 8765"));
  options.http_address = "unix:" + folder_.path() + "/socket";
  options.grpc_address = "127.0.0.1";
  options.metrics_address.clear();
  EXPECT_THAT(Server::start(options).status().message(),
              HasSubstr("/socket is where both --http-address and --metrics-address listen: give --metrics-address"));
}

TEST_F(ServerTest, BuildsFromOnnx) {
  folder_.write("m/1/model.onnx", "onnx");
  options_.build_from_onnx = [](const std::string&, const std::string& engine, const engines::KnownShapes&,
                                const std::function<bool()>&) -> Status {
    std::ofstream(engine) << "double";
    return {};
  };
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(post("/v2/models/m/infer", kRequest).status, 200);
}

TEST_F(ServerTest, GivesUpBuildingWhenStopped) {
  folder_.write("m/1/model.onnx", "onnx");
  std::atomic<bool> building{false};
  options_.build_from_onnx = [&](const std::string&, const std::string&, const engines::KnownShapes&,
                                 const std::function<bool()>& keep_going) -> Status {
    building = true;
    while (keep_going()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {Code::kCancelled, "cancelled"};
  };
  auto started = Server::start(options_);
  ASSERT_TRUE(started.is_ok());
  server_ = std::move(started).value();
  ASSERT_TRUE(eventually([&] { return building.load(); }));
  EXPECT_EQ(get("/v2/health/live").status, 200);
  EXPECT_EQ(get("/v2/health/ready").status, 400);
  client_.reset();
  EXPECT_TRUE(server_->stop(10'000).is_ok());
  EXPECT_FALSE(server_->wait_until_loaded().is_ok());
}

}  // namespace
}  // namespace flywheel::server
