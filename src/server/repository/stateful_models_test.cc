// SPDX-License-Identifier: Apache-2.0
// Models whose engines take what clients do not send: states and controls of sequences, ends of ragged rows. From
// config.pbtxt to the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "base/temporary_folder_test_data.h"
#include "server/backend/engine/fake_engine.h"
#include "server/repository/model_repository.h"

namespace flywheel::repository {
namespace {

using config::DataType;
using testing::ElementsAre;
using testing::HasSubstr;

class StatefulModels : public testing::Test {
 protected:
  StatefulModels() {
    options_.paths = {folder_.path()};
    options_.loader.engines.load = engines::fake_loader(device_);
    options_.cores = 2;
  }
  Status serve(const std::string& kind, const std::string& config) {
    folder_.write("m/1/model.engine", kind);
    folder_.write("m/config.pbtxt", config);
    repository_ = std::make_unique<ModelRepository>(options_);
    repository_->start();
    return repository_->wait_until_started();
  }
  std::future<schedule::InferResponse> send(std::vector<float> values, std::vector<int64_t> shape,
                                            schedule::SequencePosition sequence = {}) {
    auto request = std::make_shared<schedule::InferRequest>();
    auto owner = std::make_shared<std::vector<float>>(std::move(values));
    request->inputs.push_back({"x", DataType::kFp32, std::move(shape), std::as_bytes(std::span(*owner))});
    request->input_owner = owner;
    request->sequence = std::move(sequence);
    auto promise = std::make_shared<std::promise<schedule::InferResponse>>();
    const ServedModelPtr model = *repository_->find("m");
    const Status status = model->prepare(*request);
    EXPECT_TRUE(status.is_ok()) << status.message();
    request->on_response = [promise, model](schedule::InferRequest&, schedule::InferResponse response) {
      promise->set_value(std::move(response));
    };
    model->infer(std::move(request));
    return promise->get_future();
  }
  static std::vector<float> output(const schedule::InferResponse& response, const std::string& name) {
    EXPECT_TRUE(response.status.is_ok()) << response.status.message();
    for (const schedule::OutputTensor& tensor : response.outputs) {
      if (tensor.name != name) continue;
      std::vector<float> values(tensor.bytes.size() / sizeof(float));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      return values;
    }
    return {};
  }

  TemporaryFolder folder_;
  std::shared_ptr<engines::FakeDevice> device_ = std::make_shared<engines::FakeDevice>();
  RepositoryOptions options_;
  std::unique_ptr<ModelRepository> repository_;
};

TEST_F(StatefulModels, SequencesKeepTheirStateInTheServer) {
  const Status status = serve("running", R"(
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input [{ name: "start" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] }]
  state [{ input_name: "sum_in" output_name: "sum_out" data_type: TYPE_FP32 dims: [1] }]
}
model_warmup [{ name: "w" batch_size: 2 inputs { key: "x" value { data_type: TYPE_FP32 dims: [1] zero_data: true } } }]
)");
  ASSERT_TRUE(status.is_ok()) << status.message();
  const config::ModelConfig& config = (*repository_->find("m"))->config();
  ASSERT_EQ(config.inputs.size(), 1u);
  ASSERT_EQ(config.outputs.size(), 1u);
  EXPECT_THAT(output(send({5}, {1, 1}, {1u, true, false}).get(), "y"), ElementsAre(5));
  EXPECT_THAT(output(send({7}, {1, 1}, {std::string("a"), true, false}).get(), "y"), ElementsAre(7));
  EXPECT_THAT(output(send({6}, {1, 1}, {1u, false, false}).get(), "y"), ElementsAre(11));
  const schedule::InferResponse last = send({1}, {1, 1}, {std::string("a"), false, true}).get();
  EXPECT_THAT(output(last, "y"), ElementsAre(8));
  EXPECT_EQ(last.outputs.size(), 1u);
  EXPECT_THAT(send({1}, {1, 1}, {std::string("a"), false, false}).get().status.message(),
              HasSubstr("must specify the START flag on the first request of the sequence"));
}

TEST_F(StatefulModels, ControlsThatTheModelLacksFailTheLoad) {
  EXPECT_THAT(serve("double", R"(
sequence_batching {
  control_input [{ name: "start" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] }]
})")
                  .message(),
              HasSubstr("the model has no sequence control input 'start'"));
}

TEST_F(StatefulModels, RowsOfDifferentLengthsShareARaggedBatch) {
  const Status status = serve("ragged", R"(
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }]
output [{ name: "total" data_type: TYPE_FP32 dims: [1] }, { name: "same" data_type: TYPE_FP32 dims: [-1] }]
batch_input [{ kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "x" }]
batch_output [{ kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "same" source_input: "x" }]
dynamic_batching { preferred_batch_size: [2] max_queue_delay_microseconds: 60000000 }
)");
  ASSERT_TRUE(status.is_ok()) << status.message();
  auto first = send({1, 2, 3}, {1, 3});
  auto second = send({10, 20}, {1, 2});
  const schedule::InferResponse a = first.get(), b = second.get();
  EXPECT_THAT(output(a, "total"), ElementsAre(6));
  EXPECT_THAT(output(a, "same"), ElementsAre(1, 2, 3));
  EXPECT_THAT(output(b, "total"), ElementsAre(30));
  EXPECT_THAT(output(b, "same"), ElementsAre(10, 20));
  EXPECT_EQ(device_->batches().size(), 1u);
}

}  // namespace
}  // namespace flywheel::repository
