// SPDX-License-Identifier: Apache-2.0
// The inference protocol over gRPC against a whole server: every kind of tensor both ways, errors with Triton's codes
// and texts, streams, deadlines and cancellation in the queue, the other methods, and stopping.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/protocol/grpc/health.pb.h"
#include "server/protocol/grpc/inference_service.pb.h"
#include "server/protocol/grpc/reflection_v1.pb.h"
#include "server/protocol/grpc/test_client.h"
#include "server/server_test_data.h"

namespace flywheel::server {
namespace {

using grpc::TestClient;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kService = "/inference.GRPCInferenceService/";

class GrpcTest : public ServerTest {
 protected:
  void serve(const std::string& name, const std::string& kind, const std::string& config = "") {
    add_model(name, kind, config);
    const Status status = start();
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    grpc_ = std::make_unique<TestClient>(server_->grpc_port());
  }
  ~GrpcTest() override { grpc_.reset(); }

  template <class Response>
  Response call(const std::string& method, const google::protobuf::Message& request, int status = 0) {
    last_ = grpc_->call(method.front() == '/' ? method : kService + method, request.SerializeAsString());
    EXPECT_EQ(last_.status(), status) << last_.message();
    Response response;
    const std::vector<std::string> messages = last_.messages();
    EXPECT_EQ(messages.size(), status == 0 ? 1u : 0u);
    if (!messages.empty()) {
      EXPECT_TRUE(response.ParseFromString(messages[0]));
    }
    return response;
  }
  inference::ModelInferResponse infer(const inference::ModelInferRequest& request) {
    return call<inference::ModelInferResponse>("ModelInfer", request);
  }
  std::string infer_error(const inference::ModelInferRequest& request, int status) {
    call<inference::ModelInferResponse>("ModelInfer", request, status);
    return last_.message();
  }
  static inference::ModelInferRequest double_request(const std::vector<float>& values, const std::string& id = "") {
    inference::ModelInferRequest request;
    request.set_model_name("m");
    request.set_id(id);
    auto& input = *request.add_inputs();
    input.set_name("x");
    input.set_datatype("FP32");
    input.add_shape(static_cast<int64_t>(values.size() / 4));
    input.add_shape(4);
    request.add_raw_input_contents(bytes_of(values));
    return request;
  }
  static std::vector<float> floats(const std::string& bytes) {
    std::vector<float> values(bytes.size() / 4);
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  // Of the stream's messages.
  std::vector<inference::ModelStreamInferResponse> stream_responses(int32_t stream) {
    std::vector<inference::ModelStreamInferResponse> responses;
    for (const std::string& message : grpc_->get(stream).messages()) {
      EXPECT_TRUE(responses.emplace_back().ParseFromString(message));
    }
    return responses;
  }
  static std::string framed(const google::protobuf::Message& message) {
    return grpc::frame_message(message.SerializeAsString());
  }

  std::unique_ptr<TestClient> grpc_;
  TestClient::Call last_;
};

TEST_F(GrpcTest, RawAndTypedTensors) {
  serve("m", "double");
  inference::ModelInferRequest request = double_request({1, 2.5, -3, 400}, "q7");
  inference::ModelInferResponse response = infer(request);
  EXPECT_EQ(response.model_name(), "m");
  EXPECT_EQ(response.model_version(), "1");
  EXPECT_EQ(response.id(), "q7");
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs(0).name(), "y");
  EXPECT_EQ(response.outputs(0).datatype(), "FP32");
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(1, 4));
  EXPECT_THAT(floats(response.raw_output_contents(0)), ElementsAre(2, 5, -6, 800));
  request.clear_raw_input_contents();
  for (float value : {1.f, 2.f, 3.f, 4.f}) request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(value);
  EXPECT_THAT(floats(infer(request).raw_output_contents(0)), ElementsAre(2, 4, 6, 8));
  request.set_model_version("1");
  EXPECT_EQ(infer(request).outputs_size(), 1);
}

TEST_F(GrpcTest, LargeOutputsAreWhole) {
  serve("m", "big");
  const std::vector<float> got = floats(infer(double_request({3, 0, 0, 0, 5, 0, 0, 0})).raw_output_contents(0));
  ASSERT_EQ(got.size(), 2u * 262144);
  EXPECT_EQ(got.front(), 3);
  EXPECT_EQ(got[262143], 3);
  EXPECT_EQ(got[262144], 5);
  EXPECT_EQ(got.back(), 5);
}

TEST_F(GrpcTest, Classification) {
  serve("m", "scores");
  inference::ModelInferRequest request;
  request.set_model_name("m");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(1), input.add_shape(3);
  request.add_raw_input_contents(bytes_of<float>({0.5f, 2, 1}));
  auto& output = *request.add_outputs();
  output.set_name("scores");
  (*output.mutable_parameters())["classification"].set_int64_param(2);
  const inference::ModelInferResponse response = infer(request);
  EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(1, 2));
  EXPECT_EQ(response.raw_output_contents(0), std::string("\xA\0\0\0"
                                                         "2.000000:1\xA\0\0\0"
                                                         "1.000000:2",
                                                         28));
  (*request.mutable_outputs(0)->mutable_parameters())["classification"].set_string_param("2");
  EXPECT_EQ(infer_error(request, 3), "invalid value type for 'classification' parameter, expected int64_param");
  (*request.mutable_outputs(0)->mutable_parameters())["classification"].set_int64_param(0);
  EXPECT_EQ(infer_error(request, 3), "invalid value for 'classification' parameter, expected >= 0");
}

TEST_F(GrpcTest, ErrorsHaveTritonsCodesAndTexts) {
  serve("m", "double", "max_batch_size: 4");
  const inference::ModelInferRequest good = double_request({1, 2, 3, 4});
  auto with = [&](auto&& change) {
    inference::ModelInferRequest request = good;
    change(request);
    return request;
  };
  using Request = inference::ModelInferRequest;
  EXPECT_EQ(infer_error(with([](Request& r) { r.set_model_name("nope"); }), 5),
            "Request for unknown model: 'nope' is not found");
  EXPECT_EQ(infer_error(with([](Request& r) { r.set_model_version("9"); }), 5),
            "Request for unknown model: 'm' version 9 is not found");
  EXPECT_THAT(infer_error(with([](Request& r) { r.set_model_version("x"); }), 3),
              StartsWith("failed to get model version from specified version string 'x'"));
  EXPECT_THAT(infer_error(with([](Request& r) { r.set_model_version("-2"); }), 3),
              StartsWith("invalid model version specified '-2'"));
  EXPECT_EQ(infer_error(with([](Request& r) { r.clear_raw_input_contents(); }), 3),
            "unable to find data for input tensor 'x' for model 'm' in request.");
  EXPECT_EQ(infer_error(with([](Request& r) { r.mutable_inputs(0)->mutable_contents(); }), 3),
            "contents field must not be specified when using raw_input_contents for 'x' for model 'm'");
  EXPECT_EQ(infer_error(with([](Request& r) { r.mutable_inputs(0)->set_datatype("INT32"); }), 3),
            "[request id: <id_unknown>] inference input 'x' data-type is 'INT32', but model 'm' expects 'FP32'");
  EXPECT_THAT(infer_error(with([](Request& r) { r.add_outputs()->set_name("z"); }), 3),
              HasSubstr("unexpected inference output 'z' for model 'm'"));
  EXPECT_THAT(infer_error(double_request(std::vector<float>(20, 1)), 3),
              HasSubstr("inference request batch-size must be <= 4 for 'm'"));
  const auto parameter = [&](const std::string& key, auto&& set) {
    return infer_error(with([&](Request& r) { set((*r.mutable_parameters())[key]); }), 3);
  };
  using Parameter = inference::InferParameter;
  EXPECT_EQ(parameter("priority", [](Parameter& p) { p.set_int64_param(-1); }),
            "invalid value for 'priority', expected value >= 0.");
  EXPECT_EQ(parameter("priority", [](Parameter& p) { p.set_bool_param(true); }),
            "invalid value type for 'priority' parameter, expected int64_param or uint64_param.");
  EXPECT_EQ(parameter("timeout", [](Parameter& p) { p.set_string_param("1"); }),
            "invalid value type for 'timeout' parameter, expected int64_param.");
  EXPECT_EQ(parameter("sequence_id", [](Parameter& p) { p.set_double_param(1); }),
            "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.");
  EXPECT_EQ(parameter("sequence_start", [](Parameter& p) { p.set_int64_param(1); }),
            "invalid value type for 'sequence_start' parameter, expected bool_param.");
  EXPECT_EQ(parameter("triton_x", [](Parameter& p) { p.set_bool_param(true); }),
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting "
            "with 'triton_' are allowed: triton_enable_empty_final_response");
  EXPECT_EQ(parameter("mine", [](Parameter& p) { p.set_uint64_param(1); }),
            "invalid value type for 'mine' parameter, expected int64_param, bool_param, or string_param.");
  EXPECT_GE(server_->models().find("m").value()->statistics().snapshot().fail.count, 10u);
}

TEST_F(GrpcTest, StreamsAnswerInOrderAndGoOnAfterErrors) {
  serve("m", "double");
  const int32_t stream = grpc_->begin(kService + "ModelStreamInfer", "", false);
  std::string data;
  for (int i = 0; i < 100; ++i) data += framed(double_request({static_cast<float>(i), 0, 0, 0}, std::to_string(i)));
  inference::ModelInferRequest bad = double_request({1, 2, 3, 4}, "bad");
  bad.set_model_name("nope");
  grpc_->send(stream, data + framed(bad) + framed(double_request({1, 2, 3, 4}, "last")), true);
  EXPECT_EQ(grpc_->wait(stream).status(), 0);
  const auto responses = stream_responses(stream);
  ASSERT_EQ(responses.size(), 102u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(responses[i].error_message(), "");
    EXPECT_EQ(responses[i].infer_response().id(), std::to_string(i));
    EXPECT_EQ(floats(responses[i].infer_response().raw_output_contents(0))[0], 2.f * static_cast<float>(i));
    EXPECT_TRUE(responses[i].infer_response().parameters().at("triton_final_response").bool_param());
  }
  EXPECT_EQ(responses[100].error_message(), "Request for unknown model: 'nope' is not found");
  EXPECT_EQ(responses[100].infer_response().id(), "bad");
  EXPECT_EQ(responses[101].infer_response().id(), "last");
}

TEST_F(GrpcTest, AStreamMayAskForStatusesInstead) {
  serve("m", "double");
  inference::ModelInferRequest bad = double_request({1, 2, 3, 4}, "bad");
  bad.set_model_name("nope");
  const int32_t stream = grpc_->begin(kService + "ModelStreamInfer", framed(double_request({1, 2, 3, 4})) + framed(bad),
                                      false, {{"triton_grpc_error", "true"}});
  EXPECT_EQ(grpc_->wait(stream).status(), 5);
  EXPECT_EQ(grpc_->get(stream).message(), "Request for unknown model: 'nope' is not found");
  EXPECT_EQ(stream_responses(stream).size(), 1u);
}

TEST_F(GrpcTest, AStreamIsNotReadBeyondWhatItMayHaveInHand) {
  options_.grpc.max_stream_requests = 4;
  serve("m", "double", "max_batch_size: 1");
  device_->close_gate();
  std::string data;
  for (int i = 0; i < 50; ++i) data += framed(double_request({1, 2, 3, 4}, std::to_string(i)));
  const int32_t stream = grpc_->begin(kService + "ModelStreamInfer", data, true);
  EXPECT_TRUE(grpc_->run_until([&] { return server_->models().find("m").value()->queued_requests() >= 3; }));
  grpc_->run_until([] { return false; }, 50);
  EXPECT_LE(server_->models().find("m").value()->queued_requests(), 4u);
  device_->open_gate();
  EXPECT_EQ(grpc_->wait(stream).status(), 0);
  EXPECT_EQ(stream_responses(stream).size(), 50u);
}

TEST_F(GrpcTest, DeadlinesAndResetsTakeRequestsFromTheQueue) {
  serve("m", "double", "max_batch_size: 1");
  device_->close_gate();
  const int32_t running = grpc_->begin(kService + "ModelInfer", framed(double_request({1, 2, 3, 4})));
  EXPECT_TRUE(grpc_->run_until([&] { return device_->batches().size() == 1; }));
  const auto model = server_->models().find("m").value();
  // The model allows no time-out of a request's own, but the deadline is the client's.
  const int32_t late =
      grpc_->begin(kService + "ModelInfer", framed(double_request({1, 2, 3, 4})), true, {{"grpc-timeout", "50m"}});
  const int32_t reset = grpc_->begin(kService + "ModelInfer", framed(double_request({1, 2, 3, 4})));
  EXPECT_TRUE(grpc_->run_until([&] { return model->queued_requests() == 2; }));
  grpc_->reset(reset);
  EXPECT_EQ(grpc_->wait(late).status(), 4);
  EXPECT_EQ(grpc_->get(late).message(), "Deadline Exceeded");
  EXPECT_TRUE(grpc_->run_until([&] { return model->queued_requests() == 0; }));
  auto other = std::make_unique<TestClient>(server_->grpc_port());
  other->begin(kService + "ModelInfer", framed(double_request({1, 2, 3, 4})));
  EXPECT_TRUE(other->run_until([&] { return model->queued_requests() == 1; }));
  other.reset();
  EXPECT_TRUE(eventually([&] { return model->queued_requests() == 0; }));
  device_->open_gate();
  EXPECT_EQ(grpc_->wait(running).status(), 0);
  EXPECT_EQ(device_->batches().size(), 1u);
  EXPECT_EQ(server_->grpc_counts().in_flight, 0u);
}

TEST_F(GrpcTest, ADeadlineReachesTheStepsOfAnEnsemble) {
  options_.execution_slots = 4;
  add_model("first", "double", "max_batch_size: 2");
  folder_.write("e/config.pbtxt", R"(platform: "ensemble" max_batch_size: 2
input [{ name: "x" data_type: TYPE_FP32 dims: [4] }] output [{ name: "y" data_type: TYPE_FP32 dims: [4] }]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "mid" } },
  { model_name: "m" model_version: -1 input_map { key: "x" value: "mid" } output_map { key: "y" value: "y" } } ] })");
  folder_.write("e/1/.keep", "");
  serve("m", "double", "max_batch_size: 2");
  device_->close_gate(2);  // for requests of two rows
  const int32_t running = grpc_->begin(kService + "ModelInfer", framed(double_request({1, 2, 3, 4, 5, 6, 7, 8})));
  EXPECT_TRUE(grpc_->run_until([&] { return device_->batches().size() == 1; }));
  inference::ModelInferRequest request = double_request({1, 2, 3, 4});
  request.set_model_name("e");
  const int32_t late = grpc_->begin(kService + "ModelInfer", framed(request), true, {{"grpc-timeout", "100m"}});
  EXPECT_EQ(grpc_->wait(late).status(), 4);
  const auto second = server_->models().find("m").value();
  EXPECT_TRUE(eventually([&] { return second->queued_requests() == 0; }));
  device_->open_gate();
  EXPECT_EQ(grpc_->wait(running).status(), 0);
  EXPECT_EQ(second->statistics().snapshot().success.count, 1u);
  EXPECT_EQ(server_->models().find("e").value()->statistics().snapshot().success.count, 0u);
}

TEST_F(GrpcTest, TellsAboutServerAndModels) {
  serve("m", "double");
  EXPECT_TRUE(call<inference::ServerLiveResponse>("ServerLive", inference::ServerLiveRequest()).live());
  EXPECT_TRUE(call<inference::ServerReadyResponse>("ServerReady", inference::ServerReadyRequest()).ready());
  const auto server = call<inference::ServerMetadataResponse>("ServerMetadata", inference::ServerMetadataRequest());
  EXPECT_EQ(server.name(), "flywheel");
  EXPECT_THAT(server.extensions(), testing::Contains("statistics"));
  inference::ModelReadyRequest ready;
  ready.set_name("m");
  EXPECT_TRUE(call<inference::ModelReadyResponse>("ModelReady", ready).ready());
  ready.set_name("nope");
  EXPECT_FALSE(call<inference::ModelReadyResponse>("ModelReady", ready).ready());
  inference::ModelMetadataRequest metadata;
  metadata.set_name("m");
  const auto model = call<inference::ModelMetadataResponse>("ModelMetadata", metadata);
  EXPECT_THAT(model.versions(), ElementsAre("1"));
  EXPECT_THAT(model.inputs(0).shape(), ElementsAre(-1, 4));
  inference::ModelConfigRequest config;
  config.set_name("m");
  EXPECT_EQ(call<inference::ModelConfigResponse>("ModelConfig", config).config().input(0).name(), "x");
  infer(double_request({1, 2, 3, 4}));
  inference::ModelStatisticsRequest statistics;
  auto rows = call<inference::ModelStatisticsResponse>("ModelStatistics", statistics);
  ASSERT_EQ(rows.model_stats_size(), 1);
  EXPECT_EQ(rows.model_stats(0).inference_count(), 1u);
  EXPECT_EQ(rows.model_stats(0).inference_stats().success().count(), 1u);
  EXPECT_EQ(rows.model_stats(0).batch_stats(0).batch_size(), 1u);
  statistics.set_name("nope");
  call<inference::ModelStatisticsResponse>("ModelStatistics", statistics, 3);
  const auto index = call<inference::RepositoryIndexResponse>("RepositoryIndex", inference::RepositoryIndexRequest());
  ASSERT_EQ(index.models_size(), 1);
  EXPECT_EQ(index.models(0).state(), "READY");
  EXPECT_EQ(call<::grpc::health::v1::HealthCheckResponse>("/grpc.health.v1.Health/Check",
                                                          ::grpc::health::v1::HealthCheckRequest())
                .status(),
            ::grpc::health::v1::HealthCheckResponse::SERVING);
  EXPECT_THAT(metrics(), HasSubstr("flywheel_grpc_responses_total{code=\"OK\"}"));
}

TEST_F(GrpcTest, LoadsAndUnloadsModels) {
  options_.control_mode = repository::ControlMode::kExplicit;
  serve("m", "double");
  EXPECT_EQ(infer_error(double_request({1, 2, 3, 4}), 5), "Request for unknown model: 'm' is not found");
  inference::RepositoryModelLoadRequest load;
  load.set_model_name("m");
  call<inference::RepositoryModelLoadResponse>("RepositoryModelLoad", load);
  EXPECT_EQ(infer(double_request({1, 2, 3, 4})).outputs_size(), 1);
  (*load.mutable_parameters())["config"].set_string_param(R"({"max_batch_size": 2})");
  call<inference::RepositoryModelLoadResponse>("RepositoryModelLoad", load);
  EXPECT_THAT(infer_error(double_request(std::vector<float>(12, 1)), 3), HasSubstr("batch-size must be <= 2"));
  (*load.mutable_parameters())["config"].set_int64_param(1);
  call<inference::RepositoryModelLoadResponse>("RepositoryModelLoad", load, 3);
  EXPECT_EQ(last_.message(), "invalid value type for load parameter 'config', expected string_param.");
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("m");
  call<inference::RepositoryModelUnloadResponse>("RepositoryModelUnload", unload);
  load.set_repository_name("r");
  call<inference::RepositoryModelLoadResponse>("RepositoryModelLoad", load, 12);
}

TEST_F(GrpcTest, SharedMemoryCarriesTensors) {
  options_.allow_client_shared_memory = true;
  serve("m", "double");
  const std::string key = "/flywheel_grpc_test_" + std::to_string(::getpid());
  const int object = ::shm_open(key.c_str(), O_CREAT | O_RDWR | O_EXCL, 0600);
  ASSERT_GE(object, 0);
  const std::vector<float> values = {1, 2, 3, 4};
  ASSERT_EQ(::pwrite(object, values.data(), 16, 0), 16);
  ASSERT_EQ(::ftruncate(object, 64), 0);
  inference::SystemSharedMemoryRegisterRequest region;
  region.set_name("r");
  region.set_key(key);
  region.set_byte_size(64);
  call<inference::SystemSharedMemoryRegisterResponse>("SystemSharedMemoryRegister", region);
  const auto rows = call<inference::SystemSharedMemoryStatusResponse>("SystemSharedMemoryStatus",
                                                                      inference::SystemSharedMemoryStatusRequest());
  EXPECT_EQ(rows.regions().at("r").byte_size(), 64u);
  inference::ModelInferRequest request = double_request(values);
  request.clear_raw_input_contents();
  auto place = [](auto& parameters, int64_t offset, int64_t bytes) {
    parameters["shared_memory_region"].set_string_param("r");
    parameters["shared_memory_offset"].set_int64_param(offset);
    parameters["shared_memory_byte_size"].set_int64_param(bytes);
  };
  place(*request.mutable_inputs(0)->mutable_parameters(), 0, 16);
  request.add_outputs()->set_name("y");
  place(*request.mutable_outputs(0)->mutable_parameters(), 32, 16);
  const inference::ModelInferResponse response = infer(request);
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(1, 4));
  EXPECT_EQ(response.raw_output_contents(0), "");
  std::string written(16, ' ');
  ASSERT_EQ(::pread(object, written.data(), 16, 32), 16);
  EXPECT_THAT(floats(written), ElementsAre(2, 4, 6, 8));
  place(*request.mutable_outputs(0)->mutable_parameters(), 32, 8);
  EXPECT_THAT(infer_error(request, 13), HasSubstr("for output 'y' (8 bytes) should be at least 16 bytes"));
  request.mutable_outputs(0)->mutable_parameters()->erase("shared_memory_region");
  EXPECT_THAT(infer_error(request, 3), HasSubstr("can not be specified without 'shared_memory_region'"));
  call<inference::SystemSharedMemoryUnregisterResponse>("SystemSharedMemoryUnregister",
                                                        inference::SystemSharedMemoryUnregisterRequest());
  inference::CudaSharedMemoryRegisterRequest cuda;
  cuda.set_name("c");
  last_ = grpc_->call(kService + "CudaSharedMemoryRegister", cuda.SerializeAsString());
  EXPECT_THAT(last_.message(), HasSubstr("GPUs not supported"));
  ::close(object);
  ::shm_unlink(key.c_str());
}

TEST_F(GrpcTest, SettingsOfLogAndTraces) {
  serve("m", "double");
  inference::LogSettingsRequest log;
  EXPECT_TRUE(call<inference::LogSettingsResponse>("LogSettings", log).settings().at("log_info").has_bool_param());
  (*log.mutable_settings())["log_verbose_level"].set_bool_param(true);
  call<inference::LogSettingsResponse>("LogSettings", log, 3);
  EXPECT_EQ(last_.message(), "expect int32 for 'log_verbose_level'");
  inference::TraceSettingRequest trace;
  auto settings = call<inference::TraceSettingResponse>("TraceSetting", trace).settings();
  EXPECT_THAT(settings.at("trace_level").value(), ElementsAre("OFF"));
  EXPECT_THAT(settings.at("trace_rate").value(), ElementsAre("1000"));
  trace.set_model_name("m");
  (*trace.mutable_settings())["trace_rate"].add_value("7");
  settings = call<inference::TraceSettingResponse>("TraceSetting", trace).settings();
  EXPECT_THAT(settings.at("trace_rate").value(), ElementsAre("7"));
  (*trace.mutable_settings())["trace_rate"].clear_value();
  settings = call<inference::TraceSettingResponse>("TraceSetting", trace).settings();
  EXPECT_THAT(settings.at("trace_rate").value(), ElementsAre("1000"));
  trace.set_model_name("nope");
  call<inference::TraceSettingResponse>("TraceSetting", trace, 3);
  EXPECT_EQ(last_.message(), "Request for unknown model : nope");
}

TEST_F(GrpcTest, ReflectsItsServices) {
  serve("m", "double");
  ::grpc::reflection::v1::ServerReflectionRequest list, symbol, unknown;
  list.set_list_services("*");
  symbol.set_file_containing_symbol("inference.GRPCInferenceService.ModelInfer");
  unknown.set_file_by_filename("nope.proto");
  for (const std::string version : {"v1", "v1alpha"}) {
    const int32_t stream = grpc_->begin("/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo",
                                        framed(list) + framed(symbol) + framed(unknown));
    const std::vector<std::string> messages = grpc_->wait(stream).messages();
    EXPECT_EQ(grpc_->get(stream).status(), 0);
    ASSERT_EQ(messages.size(), 3u);
    ::grpc::reflection::v1::ServerReflectionResponse response;
    ASSERT_TRUE(response.ParseFromString(messages[0]));
    EXPECT_EQ(response.list_services_response().service_size(), 4);
    ASSERT_TRUE(response.ParseFromString(messages[1]));
    EXPECT_EQ(response.file_descriptor_response().file_descriptor_proto_size(), 2);
    ASSERT_TRUE(response.ParseFromString(messages[2]));
    EXPECT_EQ(response.error_response().error_code(), 5);
  }
}

TEST_F(GrpcTest, WatchersSeeTheServerStop) {
  serve("m", "double");
  const int32_t stream = grpc_->begin("/grpc.health.v1.Health/Watch", framed(::grpc::health::v1::HealthCheckRequest()));
  EXPECT_TRUE(grpc_->run_until([&] { return grpc_->get(stream).messages().size() == 1; }));
  std::thread stopping([&] { EXPECT_TRUE(server_->stop(10'000).is_ok()); });
  EXPECT_EQ(grpc_->wait(stream).status(), 14);
  ::grpc::health::v1::HealthCheckResponse response;
  ASSERT_EQ(grpc_->get(stream).messages().size(), 2u);
  ASSERT_TRUE(response.ParseFromString(grpc_->get(stream).messages()[1]));
  EXPECT_EQ(response.status(), ::grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_TRUE(grpc_->wait_for_end());
  stopping.join();
}

TEST_F(GrpcTest, StoppingAnswersEveryAcceptedRequest) {
  serve("m", "double", "max_batch_size: 1");
  device_->close_gate();
  std::vector<int32_t> calls;
  for (int i = 0; i < 10; ++i) {
    calls.push_back(grpc_->begin(kService + "ModelInfer", framed(double_request({1, 2, 3, 4}))));
  }
  const int32_t stream = grpc_->begin(kService + "ModelStreamInfer", framed(double_request({5, 6, 7, 8})), false);
  EXPECT_TRUE(grpc_->run_until([&] { return server_->models().find("m").value()->queued_requests() >= 9; }));
  std::thread stopping([&] { EXPECT_TRUE(server_->stop(10'000).is_ok()); });
  EXPECT_TRUE(grpc_->run_until([&] { return grpc_->told_to_go(); }));
  device_->open_gate();
  for (int32_t call : calls) EXPECT_EQ(grpc_->wait(call).status(), 0);
  EXPECT_EQ(grpc_->wait(stream).status(), 14);
  EXPECT_EQ(stream_responses(stream).size(), 1u);
  stopping.join();
}

TEST_F(GrpcTest, ResponsesAreCompressedWhenTheOperatorWantsIt) {
  options_.grpc.response_compression = grpc::CompressionLevel::kHigh;
  serve("m", "big");
  const int32_t stream = grpc_->begin(kService + "ModelInfer", framed(double_request({3, 0, 0, 0})), true,
                                      {{"grpc-accept-encoding", "identity,deflate,gzip"}});
  const TestClient::Call& call = grpc_->wait(stream);
  EXPECT_EQ(call.status(), 0);
  EXPECT_EQ(call.fields.at("grpc-encoding"), "gzip");
  EXPECT_EQ(call.data[0], 1);
  EXPECT_LT(call.data.size(), 100'000u);
}

}  // namespace
}  // namespace flywheel::server
