// SPDX-License-Identifier: Apache-2.0
// What stands before a model's runner: the response cache, and the splitting of large requests.
#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <future>

#include "server/schedule/caching_runner.h"
#include "server/schedule/padding_runner.h"
#include "server/schedule/scheduler_test_data.h"
#include "server/schedule/splitting_runner.h"

namespace flywheel::schedule {
namespace {

using config::DataType;
using ::testing::ElementsAre;

// Answers y = 2x at once, or keeps requests until the test answers them.
class FakeRunner : public RequestRunner {
 public:
  void enqueue(RequestPtr request) override {
    rows.push_back(request->batch_size);
    if (hold) {
      held.push_back(std::move(request));
    } else {
      answer(*request);
    }
  }
  void stop(int64_t) override {}
  std::shared_ptr<ModelStatistics> statistics() const override { return statistics_; }
  size_t queued_requests() const override { return held.size(); }

  void answer(InferRequest& request) const {
    InferResponse response;
    if (fail_from >= 0 && static_cast<int>(rows.size()) > fail_from) {
      response.status = internal_error("failed");
      response.reason = FailureReason::kBackend;
    } else {
      auto values = std::make_shared<std::vector<float>>(request.inputs[0].bytes.size() / sizeof(float));
      std::memcpy(values->data(), request.inputs[0].bytes.data(), request.inputs[0].bytes.size());
      for (float& value : *values) value *= 2;
      response.outputs.push_back(
          {"y", DataType::kFp32, request.inputs[0].shape, std::as_bytes(std::span(*values)), values});
    }
    request.respond(std::move(response));
  }

  std::vector<int64_t> rows;
  std::deque<RequestPtr> held;
  bool hold = false;
  int fail_from = -1;

 private:
  std::shared_ptr<ModelStatistics> statistics_ = std::make_shared<ModelStatistics>(1);
};

struct Asked {
  RequestPtr request;
  std::shared_ptr<std::vector<InferResponse>> answers = std::make_shared<std::vector<InferResponse>>();
};

Asked ask(std::vector<float> values, int64_t rows) {
  Asked asked;
  asked.request = std::make_shared<InferRequest>();
  auto owner = std::make_shared<std::vector<float>>(std::move(values));
  const int64_t columns = static_cast<int64_t>(owner->size()) / rows;
  asked.request->batch_size = rows;
  asked.request->inputs.push_back({"x", DataType::kFp32, {rows, columns}, std::as_bytes(std::span(*owner))});
  asked.request->input_owner = owner;
  asked.request->on_response = [answers = asked.answers](InferRequest&, InferResponse response) {
    answers->push_back(std::move(response));
  };
  return asked;
}

std::vector<float> floats_of(const InferResponse& response) {
  std::vector<float> values(response.outputs.at(0).bytes.size() / sizeof(float));
  std::memcpy(values.data(), response.outputs[0].bytes.data(), response.outputs[0].bytes.size());
  return values;
}

class CachingRunnerTest : public ::testing::Test {
 protected:
  CachingRunnerTest() : cache(std::make_shared<ResponseCache>(size_t{1} << 20)) { renew(); }
  void renew() {
    auto made = std::make_unique<FakeRunner>();
    model = made.get();
    runner = std::make_unique<CachingRunner>(std::move(made), cache);
  }
  InferResponse send(std::vector<float> values, const std::function<void(InferRequest&)>& change = {}) {
    Asked asked = ask(std::move(values), 1);
    if (change) change(*asked.request);
    runner->enqueue(asked.request);
    EXPECT_EQ(asked.answers->size(), 1u);
    return asked.answers->empty() ? InferResponse() : asked.answers->front();
  }
  std::shared_ptr<ResponseCache> cache;
  FakeRunner* model = nullptr;
  std::unique_ptr<CachingRunner> runner;
};

TEST_F(CachingRunnerTest, AnswersEqualRequestsFromMemory) {
  EXPECT_THAT(floats_of(send({1, 2})), ElementsAre(2, 4));
  EXPECT_THAT(floats_of(send({1, 2})), ElementsAre(2, 4));
  EXPECT_THAT(floats_of(send({1, 3})), ElementsAre(2, 6));
  EXPECT_EQ(model->rows.size(), 2u);
  const StatisticsSnapshot statistics = runner->statistics()->snapshot();
  EXPECT_EQ(statistics.cache_hit.count, 1u);
  EXPECT_EQ(statistics.cache_miss.count, 2u);
  EXPECT_EQ(statistics.success.count, 1u);  // the others are the model's to count
  EXPECT_EQ(cache->counts().hits, 1u);
}

TEST_F(CachingRunnerTest, WhatIsAskedForIsPartOfTheKey) {
  send({1, 2});
  send({1, 2}, [](InferRequest& request) { request.requested_outputs = {"y"}; });
  send({1, 2}, [](InferRequest& request) { request.inputs[0].shape = {1, 2, 1}; });
  send({1, 2}, [](InferRequest& request) { request.parameters["temperature"] = 0.5; });
  send({1, 2}, [](InferRequest& request) { request.id = "another id"; });
  EXPECT_EQ(model->rows.size(), 4u);
}

TEST_F(CachingRunnerTest, FailuresAndSequencesAreNotKept) {
  model->fail_from = 0;
  EXPECT_FALSE(send({1}).status.is_ok());
  model->fail_from = -1;
  EXPECT_TRUE(send({1}).status.is_ok());
  const auto in_sequence = [](InferRequest& request) { request.sequence = {uint64_t{1}, true, false}; };
  send({1}, in_sequence);
  send({1}, in_sequence);
  EXPECT_EQ(model->rows.size(), 4u);
}

TEST_F(CachingRunnerTest, AReplacedModelBeginsAnew) {
  send({1});
  EXPECT_EQ(cache->counts().entries, 1u);
  renew();
  EXPECT_EQ(cache->counts().entries, 0u);
  send({1});
  EXPECT_EQ(model->rows.size(), 1u);
}

TEST_F(CachingRunnerTest, ASecondRequestInFlightDoesNotWait) {
  model->hold = true;
  Asked first = ask({1}, 1), second = ask({1}, 1);
  runner->enqueue(first.request);
  runner->enqueue(second.request);
  ASSERT_EQ(model->held.size(), 2u);
  model->answer(*model->held[1]);
  EXPECT_EQ(second.answers->size(), 1u);
  model->answer(*model->held[0]);
  EXPECT_EQ(first.answers->size(), 1u);
  EXPECT_EQ(cache->counts().entries, 1u);
}

TEST(ResponseCache, DropsWhatWasUsedLongestAgo) {
  ResponseCache cache(3000);
  InferResponse response;
  auto bytes = std::make_shared<std::vector<std::byte>>(600);
  response.outputs.push_back({"y", DataType::kUint8, {600}, std::span<const std::byte>(*bytes), bytes});
  cache.insert(1, {1, 0}, response);
  cache.insert(1, {2, 0}, response);
  EXPECT_NE(cache.find({1, 0}), nullptr);
  cache.insert(1, {3, 0}, response);
  cache.insert(1, {4, 0}, response);
  EXPECT_EQ(cache.find({2, 0}), nullptr);
  EXPECT_NE(cache.find({4, 0}), nullptr);
  EXPECT_LE(cache.counts().bytes, 3000u);
  EXPECT_GE(cache.counts().evictions, 1u);
  auto large = std::make_shared<std::vector<std::byte>>(4000);
  response.outputs[0].bytes = *large;
  cache.insert(1, {5, 0}, response);
  EXPECT_EQ(cache.find({5, 0}), nullptr);
  EXPECT_NE(cache.find({4, 0}), nullptr);
}

class SplittingRunnerTest : public ::testing::Test {
 protected:
  SplittingRunnerTest() {
    auto made = std::make_unique<FakeRunner>();
    model = made.get();
    config::ModelConfig config;
    config.max_batch_size = 2;
    runner = std::make_unique<SplittingRunner>(config, std::move(made));
  }
  FakeRunner* model = nullptr;
  std::unique_ptr<SplittingRunner> runner;
};

TEST_F(SplittingRunnerTest, JoinsThePartsInTheirOrder) {
  Asked asked = ask({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5);
  model->hold = true;
  runner->enqueue(asked.request);
  EXPECT_THAT(model->rows, ElementsAre(2, 2, 1));
  for (size_t i : {2, 0, 1}) model->answer(*model->held[i]);
  ASSERT_EQ(asked.answers->size(), 1u);
  const InferResponse& response = asked.answers->front();
  EXPECT_THAT(response.outputs[0].shape, ElementsAre(5, 2));
  EXPECT_THAT(floats_of(response), ElementsAre(2, 4, 6, 8, 10, 12, 14, 16, 18, 20));
}

TEST_F(SplittingRunnerTest, SmallRequestsPassAsTheyAre) {
  Asked asked = ask({1, 2}, 2);
  runner->enqueue(asked.request);
  EXPECT_THAT(model->rows, ElementsAre(2));
  EXPECT_EQ(asked.answers->size(), 1u);
}

TEST_F(SplittingRunnerTest, OneFailedPartFailsTheRequestOnce) {
  Asked asked = ask({1, 2, 3, 4, 5}, 5);
  model->fail_from = 1;
  runner->enqueue(asked.request);
  ASSERT_EQ(asked.answers->size(), 1u);
  EXPECT_EQ(asked.answers->front().status.message(), "failed");
}

TEST_F(SplittingRunnerTest, CancellingReachesTheParts) {
  Asked asked = ask({1, 2, 3}, 3);
  model->hold = true;
  runner->enqueue(asked.request);
  asked.request->cancel();
  for (const RequestPtr& part : model->held) EXPECT_TRUE(part->is_cancelled());
  for (const RequestPtr& part : model->held) model->answer(*part);
  EXPECT_EQ(asked.answers->size(), 1u);
}

class PaddingRunnerTest : public ::testing::Test {
 protected:
  PaddingRunnerTest() {
    auto made = std::make_unique<FakeRunner>();
    model = made.get();
    model->hold = true;
    config::ModelConfig config;
    config.max_batch_size = 4;
    config.batching_options.length_buckets = {4, 8};
    config::TensorConfig tensor;
    tensor.data_type = DataType::kFp32;
    tensor.dims = {-1};
    tensor.name = "x";
    config.inputs = {tensor};
    tensor.name = "y";
    config.outputs = {tensor};
    runner = std::make_unique<PaddingRunner>(config, std::move(made), nullptr);
  }
  FakeRunner* model = nullptr;
  std::unique_ptr<PaddingRunner> runner;
};

TEST_F(PaddingRunnerTest, PadsToTheNextLengthAndCutsTheAnswer) {
  Asked asked = ask({1, 2, 3, 4, 5, 6}, 2);
  runner->enqueue(asked.request);
  const InferRequest& padded = *model->held.front();
  EXPECT_THAT(padded.inputs[0].shape, ElementsAre(2, 4));
  EXPECT_EQ(padded.signature, shape_signature(padded.inputs, true));
  std::vector<float> values(8);
  ASSERT_EQ(padded.inputs[0].bytes.size(), 32u);
  std::memcpy(values.data(), padded.inputs[0].bytes.data(), 32);
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 0, 4, 5, 6, 0));
  model->answer(*model->held.front());
  ASSERT_EQ(asked.answers->size(), 1u);
  EXPECT_THAT(asked.answers->front().outputs[0].shape, ElementsAre(2, 3));
  EXPECT_THAT(floats_of(asked.answers->front()), ElementsAre(2, 4, 6, 8, 10, 12));
}

TEST_F(PaddingRunnerTest, LeavesWhatFitsOrIsLonger) {
  Asked exact = ask({1, 2, 3, 4}, 1), longer = ask(std::vector<float>(9), 1);
  runner->enqueue(exact.request);
  runner->enqueue(longer.request);
  EXPECT_THAT(model->held[0]->inputs[0].shape, ElementsAre(1, 4));
  EXPECT_THAT(model->held[1]->inputs[0].shape, ElementsAre(1, 9));
  for (const RequestPtr& request : model->held) model->answer(*request);
  EXPECT_THAT(longer.answers->front().outputs[0].shape, ElementsAre(1, 9));
}

}  // namespace
}  // namespace flywheel::schedule
