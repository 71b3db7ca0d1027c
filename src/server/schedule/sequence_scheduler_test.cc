// SPDX-License-Identifier: Apache-2.0
// Stateful models on real threads: what the instances are told, what they keep, and how it ends.
#include "server/schedule/sequence_scheduler.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "server/config/server_tensors.h"
#include "server/schedule/scheduler_test_data.h"

namespace flywheel::schedule {
namespace {

using config::DataType;
using ::testing::ElementsAre;

constexpr const char* kText = R"(
max_batch_size: 4
input [{ name: "x" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [1] }]
sequence_batching {
  direct { }
  control_input [
    { name: "START" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] },
    { name: "READY" control [{ kind: CONTROL_SEQUENCE_READY fp32_false_true: [0, 1] }] },
    { name: "END" control [{ kind: CONTROL_SEQUENCE_END bool_false_true: [false, true] }] },
    { name: "ID" control [{ kind: CONTROL_SEQUENCE_CORRID data_type: %ID% }] }
  ]
  state [{ input_name: "sum_in" output_name: "sum_out" data_type: TYPE_FP32 dims: [1]
           initial_state { name: "init" data_type: TYPE_FP32 dims: [1] %INITIAL% } }]
})";

config::ModelConfig accumulator_config(const std::string& id = "TYPE_UINT64",
                                       const std::string& initial = "zero_data: true") {
  std::string text = kText;
  text.replace(text.find("%ID%"), 4, id);
  text.replace(text.find("%INITIAL%"), 9, initial);
  auto parsed = config::parse_config(text, "config.pbtxt", "m");
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  config::ModelDescription model;
  const DataType type = id == "TYPE_STRING" ? DataType::kString : DataType::kUint64;
  model.inputs = {{"x", DataType::kFp32, {-1, 1}},
                  {"START", DataType::kInt32, {-1, 1}},
                  {"READY", DataType::kFp32, {-1, 1}},
                  {"END", DataType::kBool, {-1, 1}},
                  {"ID", type, {-1, 1}},
                  {"sum_in", DataType::kFp32, {-1, 1}}};
  model.outputs = {{"y", DataType::kFp32, {-1, 1}}, {"sum_out", DataType::kFp32, {-1, 1}}};
  model.max_batch_size = 4;
  auto completed = config::complete_config(*parsed, model);
  EXPECT_TRUE(completed.is_ok()) << completed.status().message();
  return *completed;
}

template <class T>
T value_of(const InferRequest& request, const std::string& name) {
  for (const InputView& input : request.inputs) {
    if (input.name != name) continue;
    T value{};
    EXPECT_EQ(input.bytes.size(), sizeof value) << name;
    std::memcpy(&value, input.bytes.data(), std::min(sizeof value, input.bytes.size()));
    return value;
  }
  ADD_FAILURE() << name << " is missing";
  return {};
}

OutputTensor one_float(const std::string& name, float value) {
  auto owner = std::make_shared<float>(value);
  OutputTensor output{name, DataType::kFp32, {1, 1}, std::as_bytes(std::span(owner.get(), 1)), owner};
  return output;
}

// y = state + x, and that is the next state; remembers what it was told.
class Accumulator : public BatchExecutor {
 public:
  explicit Accumulator(std::shared_ptr<std::vector<std::string>> told) : told_(std::move(told)) {}
  Status execute(Batch& batch) override {
    std::string row;
    for (BatchItem& item : batch.items) {
      const InferRequest& request = *item.request;
      const bool ready = value_of<float>(request, "READY") == 1;
      row += row.empty() ? "" : " ";
      if (!ready) {
        row += "-";
        continue;
      }
      row += request.id + (value_of<int32_t>(request, "START") == 1 ? "S" : "") +
             (value_of<uint8_t>(request, "END") == 1 ? "E" : "");
      const float sum = value_of<float>(request, "sum_in") + value_of<float>(request, "x");
      if (sum > 1000) {
        item.status = internal_error("too much");
        continue;
      }
      item.outputs.push_back(one_float("y", sum));
      item.outputs.push_back(one_float("sum_out", sum));
    }
    told_->push_back(row);
    return {};
  }

 private:
  std::shared_ptr<std::vector<std::string>> told_;
};

class SequenceSchedulerTest : public ::testing::Test {
 protected:
  void make(const config::ModelConfig& config, const std::string& folder = "") {
    auto tensors = SequenceTensors::create(config, folder);
    ASSERT_TRUE(tensors.is_ok()) << tensors.status().message();
    std::vector<std::unique_ptr<BatchExecutor>> executors;
    executors.push_back(std::make_unique<Accumulator>(told_));
    auto made = SequenceScheduler::create(config, *std::move(tensors), std::move(executors));
    ASSERT_TRUE(made.is_ok());
    scheduler_ = *std::move(made);
  }
  std::future<InferResponse> send(SequencePosition position, float x) {
    auto request = std::make_shared<InferRequest>();
    request->id = "r" + std::to_string(next_++);
    request->sequence = std::move(position);
    auto owner = std::make_shared<float>(x);
    request->inputs.push_back({"x", DataType::kFp32, {1, 1}, std::as_bytes(std::span(owner.get(), 1))});
    request->input_owner = owner;
    auto promise = std::make_shared<std::promise<InferResponse>>();
    request->on_response = [promise](InferRequest&, InferResponse response) {
      promise->set_value(std::move(response));
    };
    scheduler_->enqueue(request);
    return promise->get_future();
  }
  float ask(SequencePosition position, float x) {
    const InferResponse response = send(std::move(position), x).get();
    EXPECT_TRUE(response.status.is_ok()) << response.status.message();
    if (response.outputs.size() != 1) {
      ADD_FAILURE() << response.outputs.size() << " outputs";
      return -1;
    }
    EXPECT_EQ(response.outputs[0].name, "y");
    float value = 0;
    std::memcpy(&value, response.outputs[0].bytes.data(), sizeof value);
    return value;
  }

  std::shared_ptr<std::vector<std::string>> told_ = std::make_shared<std::vector<std::string>>();
  std::unique_ptr<SequenceScheduler> scheduler_;
  int next_ = 0;
};

TEST_F(SequenceSchedulerTest, FeedsStatesBackAndKeepsThemFromClients) {
  make(accumulator_config());
  EXPECT_EQ(ask({1u, true, false}, 1), 1);
  EXPECT_EQ(ask({2u, true, false}, 10), 10);
  EXPECT_EQ(ask({1u, false, false}, 2), 3);
  EXPECT_EQ(ask({2u, false, true}, 5), 15);
  EXPECT_EQ(ask({1u, false, true}, 4), 7);
  EXPECT_EQ(ask({1u, true, true}, 4), 4);
  scheduler_->stop(kDefaultGraceNs);
  EXPECT_THAT(*told_, ElementsAre("r0S", "- r1S", "r2", "- r3E", "r4E", "r5SE"));
  EXPECT_EQ(scheduler_->statistics()->snapshot().inference_count, 6u);
}

TEST_F(SequenceSchedulerTest, AFailedStepLeavesTheStateAsItWas) {
  make(accumulator_config());
  EXPECT_EQ(ask({1u, true, false}, 1), 1);
  EXPECT_EQ(send({1u, false, false}, 5000).get().status.message(), "too much");
  EXPECT_EQ(ask({1u, false, false}, 2), 3);
}

TEST_F(SequenceSchedulerTest, BeginsWithTheFilesState) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "sequence_initial";
  std::filesystem::create_directories(folder / "initial_state");
  const float value = 100;
  std::ofstream(folder / "initial_state" / "hundred", std::ios::binary)
      .write(reinterpret_cast<const char*>(&value), sizeof value);
  make(accumulator_config("TYPE_UINT64", "data_file: \"hundred\""), folder.string());
  EXPECT_EQ(ask({1u, true, false}, 1), 101);
  EXPECT_EQ(ask({1u, false, true}, 1), 102);
  std::filesystem::remove_all(folder);
}

TEST_F(SequenceSchedulerTest, RefusesIdsOfTheWrongKindAndSequencesWithoutStart) {
  make(accumulator_config());
  EXPECT_EQ(send({std::string("abc"), true, false}, 1).get().status.message(),
            "sequence batching control 'ID' data-type is 'BYTES', but model 'm' expects 'UINT64'");
  EXPECT_EQ(send({5u, false, false}, 1).get().status.message(),
            "inference request for sequence 5 to model 'm' must specify the START flag on the first "
            "request of the sequence");
  EXPECT_EQ(scheduler_->statistics()->snapshot().fail.count, 2u);
}

TEST_F(SequenceSchedulerTest, StringIdsAreTold) {
  const config::ModelConfig config = accumulator_config("TYPE_STRING");
  auto tensors = SequenceTensors::create(config, "");
  ASSERT_TRUE(tensors.is_ok());
  InferRequest request;
  request.sequence = {std::string("abc"), true, false};
  tensors->add(request, {});
  for (const InputView& input : request.inputs) {
    if (input.name != "ID") continue;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(input.bytes.data()), input.bytes.size()),
              std::string("\3\0\0\0abc", 7));
  }
}

TEST_F(SequenceSchedulerTest, StopAnswersAllThatWaits) {
  make(accumulator_config());
  std::vector<std::future<InferResponse>> answers;
  for (uint64_t i = 1; i <= 20; ++i) answers.push_back(send({i, true, false}, 1));
  scheduler_->stop(kDefaultGraceNs);
  for (auto& answer : answers) EXPECT_TRUE(answer.get().status.is_ok());
  EXPECT_EQ(send({99u, true, false}, 1).get().status.code(), Code::kUnavailable);
}

// Many clients, more sequences than slots, some of them cancelled: every request is answered once, and sums are right.
TEST(SequenceStorm, EveryRequestIsAnsweredOnceAndInItsOwnSequence) {
  for (const bool oldest : {false, true}) {
    config::ModelConfig config = accumulator_config();
    config.sequence_batching->oldest = oldest;
    config.sequence_batching->max_candidate_sequences = 3;
    auto tensors = SequenceTensors::create(config, "");
    ASSERT_TRUE(tensors.is_ok());
    std::vector<std::unique_ptr<BatchExecutor>> executors;
    for (int i = 0; i < 2; ++i)
      executors.push_back(std::make_unique<Accumulator>(std::make_shared<std::vector<std::string>>()));
    auto made = SequenceScheduler::create(config, *std::move(tensors), std::move(executors));
    ASSERT_TRUE(made.is_ok());
    SequenceScheduler& scheduler = **made;
    std::atomic<int> answers{0}, wrong{0};
    const auto send = [&](uint64_t id, bool start, bool end, float x, bool cancel) {
      auto request = std::make_shared<InferRequest>();
      request->sequence = {id, start, end};
      auto owner = std::make_shared<float>(x);
      request->inputs.push_back({"x", DataType::kFp32, {1, 1}, std::as_bytes(std::span(owner.get(), 1))});
      request->input_owner = owner;
      auto promise = std::make_shared<std::promise<InferResponse>>();
      request->on_response = [promise, &answers](InferRequest&, InferResponse response) {
        ++answers;
        promise->set_value(std::move(response));
      };
      scheduler.enqueue(request);
      if (cancel) request->cancel();
      return promise->get_future();
    };
    constexpr int kClients = 4, kSequences = 40, kSteps = 4;
    std::vector<std::thread> clients;
    for (int c = 0; c < kClients; ++c) {
      clients.emplace_back([&, c] {
        for (int n = 0; n < kSequences; ++n) {
          const uint64_t id = static_cast<uint64_t>(c * 1000 + n + 1);
          // Every fourth sequence is sent at once and cancelled in its middle.
          const bool all_at_once = n % 4 == 3;
          std::vector<std::future<InferResponse>> sent;
          float sum = 0;
          for (int step = 0; step < kSteps; ++step) {
            sum += static_cast<float>(step + 1);
            sent.push_back(
                send(id, step == 0, step + 1 == kSteps, static_cast<float>(step + 1), all_at_once && step == 1));
            if (all_at_once) continue;
            const InferResponse response = sent.back().get();
            float value = -1;
            if (response.status.is_ok()) std::memcpy(&value, response.outputs[0].bytes.data(), sizeof value);
            if (value != sum) ++wrong;
          }
          if (!all_at_once) continue;
          for (auto& future : sent) future.wait();
        }
      });
    }
    for (std::thread& client : clients) client.join();
    scheduler.stop(kDefaultGraceNs);
    EXPECT_EQ(answers, kClients * kSequences * kSteps);
    EXPECT_EQ(wrong, 0);
  }
}

TEST(SequenceConfig, ClientsDoNotSeeControlsAndStates) {
  const config::ModelConfig config = accumulator_config();
  EXPECT_EQ(config.inputs.size(), 1u);
  EXPECT_EQ(config.outputs.size(), 1u);
  const config::ModelConfig extended = config::with_server_tensors(config);
  EXPECT_EQ(extended.inputs.size(), 6u);
  EXPECT_EQ(extended.inputs[5].name, "sum_in");
  EXPECT_EQ(extended.outputs[1].name, "sum_out");
}

TEST(SequenceConfig, WhatIsWrongIsSaidInTritonsWords) {
  const auto error_of = [](const std::string& sequence) {
    auto parsed = config::parse_config("max_batch_size: 4 sequence_batching { " + sequence + " }", "config.pbtxt", "m");
    if (!parsed.is_ok()) return parsed.status().message();
    config::ModelDescription model;
    model.max_batch_size = 4;
    return config::complete_config(*parsed, model).status().message();
  };
  EXPECT_EQ(error_of("control_input [{ name: \"a\" control [{ kind: CONTROL_SEQUENCE_START }] }]"),
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
            "CONTROL_SEQUENCE_START for m");
  EXPECT_EQ(
      error_of("control_input [{ name: \"a\" control [{ kind: CONTROL_SEQUENCE_READY int32_false_true: [1] }] }]"),
      "sequence batching control 'int32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_READY for m");
  EXPECT_EQ(error_of("oldest { max_candidate_sequences: 4 preferred_batch_size: [8] }"),
            "sequence batching preferred batch size must be <= max batch size for m");
  EXPECT_EQ(error_of("direct { minimum_slot_utilization: 1.5 }"),
            "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m");
}

}  // namespace
}  // namespace flywheel::schedule
