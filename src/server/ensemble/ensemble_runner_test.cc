// SPDX-License-Identifier: Apache-2.0
// Requests on their way through ensembles: order, errors, cancellation, decoupled steps, stopping.
#include "server/ensemble/ensemble_runner.h"

#include <gmock/gmock.h>

#include <thread>

#include "server/ensemble/ensemble_test_data.h"

namespace flywheel::ensemble {
namespace {

using schedule::FailureReason;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kIo = R"(
max_batch_size: 4
input [{ name: "IN" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [4] }]
)";

std::string step(const std::string& model, const std::string& in, const std::string& out) {
  return "step { model_name: \"" + model + "\" input_map { key: \"x\" value: \"" + in +
         "\" } output_map { key: \"y\" value: \"" + out + "\" } }";
}
std::string scheduling(const std::string& steps) { return kIo + ("ensemble_scheduling { " + steps + " }"); }

class EnsembleRun : public ::testing::Test {
 protected:
  EnsembleRun() {
    models->add_map("double", [](float v) { return 2 * v; });
    models->add_map("increment", [](float v) { return v + 1; });
    config::ModelConfig add;
    add.max_batch_size = 8;
    add.inputs = {tensor("a", {4}), tensor("b", {4})};
    add.outputs = {tensor("sum", {4})};
    models->add("add", add, [](const schedule::InferRequest& request) {
      std::vector<float> sum = values_of(request.inputs[0].bytes);
      const std::vector<float> other = values_of(request.inputs[1].bytes);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
      schedule::InferResponse response;
      response.outputs.push_back(floats("sum", request.inputs[0].shape, sum));
      return response;
    });
    config::ModelConfig held;
    held.max_batch_size = 8;
    held.inputs = {tensor("x", {4})};
    held.outputs = {tensor("y", {4})};
    models->add("held", held);
    held.decoupled = true;
    models->add("repeat", held);
  }
  EnsembleRunner& make(const std::string& text) {
    auto made = blueprint(text, models);
    EXPECT_TRUE(made.is_ok()) << made.status().message();
    runner = std::make_unique<EnsembleRunner>(*made);
    return *runner;
  }
  void answer_held(std::vector<float> values, bool final = true) {
    auto [name, request] = models->held.front();
    if (final) models->held.pop_front();
    schedule::InferResponse response;
    response.final = final;
    if (!values.empty()) response.outputs.push_back(floats("y", {1, 4}, std::move(values)));
    request->respond(std::move(response));
  }

  std::shared_ptr<FakeModels> models = std::make_shared<FakeModels>();
  std::unique_ptr<EnsembleRunner> runner;
  std::shared_ptr<Answer> answer = std::make_shared<Answer>();
};

constexpr const char* kDiamond = R"(
step { model_name: "add" input_map { key: "a" value: "twice" } input_map { key: "b" value: "more" }
       output_map { key: "sum" value: "OUT" } }
step { model_name: "double" input_map { key: "x" value: "IN" } output_map { key: "y" value: "twice" } }
step { model_name: "increment" input_map { key: "x" value: "IN" } output_map { key: "y" value: "more" } }
)";

TEST_F(EnsembleRun, StepsRunAsTheirInputsArrive) {
  make(scheduling(kDiamond)).enqueue(request_of({1, 2, 3, 4}, {1, 4}, answer));
  ASSERT_EQ(answer->finals, 1);
  ASSERT_TRUE(answer->status.is_ok()) << answer->status.message();
  ASSERT_EQ(answer->responses.size(), 1u);
  EXPECT_EQ(answer->responses[0][0].name, "OUT");
  EXPECT_THAT(answer->responses[0][0].shape, ElementsAre(1, 4));
  EXPECT_THAT(values_of(answer->responses[0][0].bytes), ElementsAre(4, 7, 10, 13));
  const auto statistics = runner->statistics()->snapshot();
  EXPECT_EQ(statistics.success.count, 1u);
  EXPECT_EQ(statistics.execution_count, 1u);
  EXPECT_EQ(statistics.inference_count, 1u);
}

TEST_F(EnsembleRun, BytesPassFromStepToStepWithoutCopies) {
  auto request = request_of({1, 2, 3, 4}, {1, 4}, answer);
  const std::byte* in = request->inputs[0].bytes.data();
  make(scheduling(step("held", "IN", "mid") + step("held", "mid", "OUT"))).enqueue(request);
  EXPECT_EQ(models->held.front().second->inputs[0].bytes.data(), in);
  schedule::InferResponse response;
  response.outputs.push_back(floats("y", {1, 4}, {5, 6, 7, 8}));
  const std::byte* mid = response.outputs[0].bytes.data();
  auto first = models->held.front().second;
  models->held.pop_front();
  first->respond(std::move(response));
  ASSERT_EQ(models->held.size(), 1u);
  EXPECT_EQ(models->held.front().second->inputs[0].bytes.data(), mid);
  answer_held({1, 1, 1, 1});
  EXPECT_EQ(answer->finals, 1);
}

TEST_F(EnsembleRun, StepsGetWhatTheRequestSays) {
  make(scheduling(step("held", "IN", "OUT")));
  auto request = request_of({1, 2, 3, 4}, {1, 4}, answer);
  request->id = "seven";
  request->priority = 3;
  request->timeout_us = 99;
  request->parameters["key"] = std::string("value");
  request->sequence = {uint64_t{12}, true, false};
  runner->enqueue(request);
  const schedule::InferRequest& step = *models->held.front().second;
  EXPECT_EQ(step.id, "seven");
  EXPECT_EQ(step.priority, 3u);
  EXPECT_EQ(step.timeout_us, 99u);
  EXPECT_EQ(std::get<std::string>(step.parameters.at("key")), "value");
  EXPECT_EQ(std::get<uint64_t>(step.sequence.id), 12u);
  EXPECT_TRUE(step.sequence.start);
  answer_held({1, 1, 1, 1});
}

TEST_F(EnsembleRun, AFailedStepFailsTheRequestByName) {
  models->add("double", *models->config_of("double"), [](const schedule::InferRequest&) {
    return schedule::InferResponse{unavailable("Exceeds maximum queue size"), FailureReason::kRejected, {}};
  });
  make(scheduling(step("double", "IN", "mid") + step("increment", "mid", "OUT")))
      .enqueue(request_of({1, 2, 3, 4}, {1, 4}, answer));
  ASSERT_EQ(answer->finals, 1);
  EXPECT_EQ(answer->status.code(), Code::kUnavailable);
  EXPECT_EQ(answer->status.message(), "in ensemble 'e', Exceeds maximum queue size");
  EXPECT_EQ(runner->statistics()->snapshot().failures[static_cast<size_t>(FailureReason::kOther)], 1u);
}

TEST_F(EnsembleRun, AModelThatIsGoneIsSaidSo) {
  make(scheduling(step("double", "IN", "OUT")));
  models->remove("double");
  runner->enqueue(request_of({1, 2, 3, 4}, {1, 4}, answer));
  EXPECT_EQ(answer->status.message(), "in ensemble 'e', Request for unknown model: 'double' is not found");
}

TEST_F(EnsembleRun, AModelReplacedMeanwhileServesTheNextRequest) {
  make(scheduling(step("double", "IN", "OUT")));
  models->add_map("double", [](float v) { return 20 * v; });
  runner->enqueue(request_of({1, 2, 3, 4}, {1, 4}, answer));
  EXPECT_THAT(values_of(answer->responses[0][0].bytes), ElementsAre(20, 40, 60, 80));
}

TEST_F(EnsembleRun, AMissingOutputIsNoHang) {
  models->add("double", *models->config_of("double"),
              [](const schedule::InferRequest&) { return schedule::InferResponse{}; });
  make(scheduling(step("double", "IN", "OUT"))).enqueue(request_of({1, 2, 3, 4}, {1, 4}, answer));
  EXPECT_THAT(
      answer->status.message(),
      HasSubstr("in ensemble 'e', [request id: <id_unknown>] unexpected deadlock, at least one output is not set"));
}

TEST_F(EnsembleRun, CancellingReachesTheStepsInFlight) {
  make(scheduling(step("held", "IN", "mid") + step("double", "mid", "OUT")));
  auto request = request_of({1, 2, 3, 4}, {1, 4}, answer);
  runner->enqueue(request);
  request->cancel();
  EXPECT_TRUE(models->held.front().second->is_cancelled());
  EXPECT_EQ(answer->finals, 0);
  auto step = models->held.front().second;
  models->held.clear();
  step->respond({{Code::kCancelled, "Request was cancelled"}, FailureReason::kCanceled, {}});
  EXPECT_EQ(answer->finals, 1);
  EXPECT_EQ(answer->status.code(), Code::kCancelled);
  EXPECT_EQ(answer->reason, FailureReason::kCanceled);
  EXPECT_TRUE(models->held.empty());
}

TEST_F(EnsembleRun, OnlyStepsThatAreNeededRun) {
  const char* text = R"(
max_batch_size: 4
input [{ name: "IN" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "A" data_type: TYPE_FP32 dims: [4] }, { name: "B" data_type: TYPE_FP32 dims: [4] }]
ensemble_scheduling { )";
  make(std::string(text) + step("held", "IN", "A") + step("double", "IN", "B") + "}");
  auto request = request_of({1, 2, 3, 4}, {1, 4}, answer);
  request->requested_outputs = {"B"};
  runner->enqueue(request);
  EXPECT_TRUE(models->held.empty());
  ASSERT_EQ(answer->finals, 1);
  EXPECT_EQ(answer->responses[0].size(), 1u);
}

TEST_F(EnsembleRun, DecoupledStepsSetOffWhatFollowsForEachResponse) {
  make(scheduling(step("repeat", "IN", "mid") + step("increment", "mid", "OUT")));
  runner->enqueue(request_of({1, 2, 3, 4}, {1, 4}, answer));
  answer_held({10, 10, 10, 10}, false);
  EXPECT_EQ(answer->responses.size(), 1u);
  answer_held({20, 20, 20, 20}, false);
  EXPECT_EQ(answer->finals, 0);
  answer_held({}, true);
  EXPECT_EQ(answer->finals, 1);
  ASSERT_EQ(answer->responses.size(), 2u);
  EXPECT_THAT(values_of(answer->responses[0][0].bytes), ElementsAre(11, 11, 11, 11));
  EXPECT_THAT(values_of(answer->responses[1][0].bytes), ElementsAre(21, 21, 21, 21));
}

TEST_F(EnsembleRun, NoMoreOfAStepThanAllowedAreInFlight) {
  make(std::string(kIo) + "ensemble_scheduling { max_inflight_requests: 1 " + step("repeat", "IN", "mid") +
       step("held", "mid", "OUT") + "}");
  runner->enqueue(request_of({1, 2, 3, 4}, {1, 4}, answer));
  const auto repeat = models->held.front().second;
  models->held.clear();
  for (int i = 0; i < 3; ++i) {
    schedule::InferResponse response;
    response.final = i == 2;
    response.outputs.push_back(floats("y", {1, 4}, {1, 1, 1, 1}));
    repeat->respond(std::move(response));
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(models->held.size(), 1u);
    EXPECT_EQ(answer->finals, 0);
    answer_held({2, 2, 2, 2});
  }
  EXPECT_EQ(answer->finals, 1);
  EXPECT_EQ(answer->responses.size(), 3u);
}

TEST_F(EnsembleRun, BatchOfOneMayLoseItsBatchDimension) {
  config::ModelConfig single;
  single.inputs = {tensor("x", {4})};
  single.outputs = {tensor("y", {4})};
  models->add("single", single, [](const schedule::InferRequest& request) {
    schedule::InferResponse response;
    response.outputs.push_back(floats("y", request.inputs[0].shape, values_of(request.inputs[0].bytes)));
    return response;
  });
  make(scheduling(step("single", "IN", "mid") + step("double", "mid", "OUT")));
  runner->enqueue(request_of({1, 2, 3, 4}, {1, 4}, answer));
  ASSERT_TRUE(answer->status.is_ok()) << answer->status.message();
  EXPECT_THAT(models->prepared, ElementsAre(std::vector<int64_t>{4}, std::vector<int64_t>{1, 4}));
  EXPECT_THAT(answer->responses[0][0].shape, ElementsAre(1, 4));
}

TEST_F(EnsembleRun, StoppingWaitsAndThenAnswersWhatIsLeft) {
  make(scheduling(step("held", "IN", "OUT")));
  runner->enqueue(request_of({1, 2, 3, 4}, {1, 4}, answer));
  runner->stop(0);
  EXPECT_EQ(answer->finals, 1);
  EXPECT_EQ(answer->status.message(), "model 'e' was stopped before it could answer");
  EXPECT_TRUE(models->held.front().second->is_cancelled());
  answer_held({1, 1, 1, 1});
  EXPECT_EQ(answer->finals, 1);
  auto late = std::make_shared<Answer>();
  runner->enqueue(request_of({1, 2, 3, 4}, {1, 4}, late));
  EXPECT_EQ(late->status.code(), Code::kUnavailable);
}

TEST_F(EnsembleRun, ManyThreadsBringAnswersAtOnce) {
  make(
      scheduling("step { model_name: \"add\" input_map { key: \"a\" value: \"p\" } input_map { key: \"b\" value: \"q\" "
                 "} output_map { key: \"sum\" value: \"OUT\" } }" +
                 step("held", "IN", "p") + step("held", "IN", "q")));
  for (int i = 0; i < 200; ++i) {
    auto each = std::make_shared<Answer>();
    runner->enqueue(request_of({1, 2, 3, 4}, {1, 4}, each));
    auto p = models->held[0].second, q = models->held[1].second;
    models->held.clear();
    auto give = [](const schedule::RequestPtr& request) {
      schedule::InferResponse response;
      response.outputs.push_back(floats("y", {1, 4}, {1, 2, 3, 4}));
      request->respond(std::move(response));
    };
    std::thread other([&] { give(p); });
    give(q);
    other.join();
    ASSERT_EQ(each->finals, 1);
    ASSERT_TRUE(each->status.is_ok()) << each->status.message();
    ASSERT_THAT(values_of(each->responses[0][0].bytes), ElementsAre(2, 4, 6, 8));
  }
}

}  // namespace
}  // namespace flywheel::ensemble
