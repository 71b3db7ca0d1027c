// SPDX-License-Identifier: Apache-2.0
#include "server/backend/engine/model_instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/backend/engine/engine_description.h"
#include "server/backend/engine/fake_engine.h"
#include "server/config/parse_config.h"
#include "server/repository/request_check.h"

namespace flywheel::engines {
namespace {

using config::DataType;
using testing::ElementsAre;

template <class T>
std::vector<T> values(const schedule::OutputTensor& output) {
  std::vector<T> copied(output.bytes.size() / sizeof(T));
  std::memcpy(copied.data(), output.bytes.data(), output.bytes.size());
  return copied;
}

class ModelInstanceTest : public testing::Test {
 protected:
  void make(const std::string& kind, const std::string& config_text = "") {
    auto engine = std::make_shared<FakeEngine>(kind, device_);
    ASSERT_TRUE(engine->define());
    auto parsed = config::parse_config(config_text, "config.pbtxt", "m");
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
    auto config = config::complete_config(*parsed, describe_engine(*engine));
    ASSERT_TRUE(config.is_ok()) << config.status().to_string();
    config_ = std::move(config).value();
    auto instance = ModelInstance::create(engine, config_, 1, std::make_shared<BufferPool>(4));
    ASSERT_TRUE(instance.is_ok()) << instance.status().to_string();
    instance_ = std::move(instance).value();
  }
  template <class T>
  schedule::InputView view(std::string name, DataType type, std::vector<int64_t> shape, const std::vector<T>& data) {
    return {std::move(name), type, std::move(shape), std::as_bytes(std::span(data))};
  }
  schedule::InferRequest& add_request(std::vector<schedule::InputView> inputs) {
    requests_.push_back(std::make_unique<schedule::InferRequest>());
    requests_.back()->inputs = std::move(inputs);
    return *requests_.back();
  }
  Status execute() {
    batch_ = {};
    for (const auto& request : requests_) {
      FW_RETURN_IF_ERROR(repository::check_request(config_, *request));
      batch_.items.emplace_back();
      batch_.items.back().request = request.get();
      batch_.batch_size += request->batch_size;
    }
    return instance_->execute(batch_);
  }

  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  config::ModelConfig config_;
  std::unique_ptr<ModelInstance> instance_;
  std::vector<std::unique_ptr<schedule::InferRequest>> requests_;
  schedule::Batch batch_;
};

TEST_F(ModelInstanceTest, GivesEachRequestItsRows) {
  make("double");
  const std::vector<float> a = {1, 2, 3, 4}, b = {5, 6, 7, 8, 9, 10, 11, 12}, c = {-1, -2, -3, -4};
  add_request({view("x", DataType::kFp32, {1, 4}, a)});
  add_request({view("x", DataType::kFp32, {2, 4}, b)});
  add_request({view("x", DataType::kFp32, {1, 4}, c)});
  ASSERT_TRUE(execute().is_ok());
  EXPECT_THAT(device_->batches(), ElementsAre(4));
  EXPECT_THAT(values<float>(batch_.items[0].outputs[0]), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(values<float>(batch_.items[1].outputs[0]), ElementsAre(10, 12, 14, 16, 18, 20, 22, 24));
  EXPECT_THAT(values<float>(batch_.items[2].outputs[0]), ElementsAre(-2, -4, -6, -8));
  EXPECT_THAT(batch_.items[1].outputs[0].shape, ElementsAre(2, 4));
  EXPECT_GT(batch_.input_done_ns, 0);
  EXPECT_GE(batch_.compute_done_ns, batch_.input_done_ns);
}

TEST_F(ModelInstanceTest, ReadsUnalignedInputs) {
  make("double");
  std::vector<std::byte> bytes(17);
  const float values_in[4] = {1, 2, 3, 4};
  std::memcpy(bytes.data() + 1, values_in, 16);
  add_request({{"x", DataType::kFp32, {1, 4}, std::span<const std::byte>(bytes).subspan(1)}});
  ASSERT_TRUE(execute().is_ok());
  EXPECT_THAT(values<float>(batch_.items[0].outputs[0]), ElementsAre(2, 4, 6, 8));
}

TEST_F(ModelInstanceTest, RunsModelsWithoutBatch) {
  make("fixed");
  const std::vector<int32_t> a = {1, 2, 3, 4, 5, 6};
  add_request({view("a", DataType::kInt32, {2, 3}, a)});
  ASSERT_TRUE(execute().is_ok());
  EXPECT_THAT(values<int32_t>(batch_.items[0].outputs[0]), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_THAT(batch_.items[0].outputs[0].shape, ElementsAre(2, 3));
}

TEST_F(ModelInstanceTest, TakesVariableShapesAndInputsInAnyOrder) {
  make("text");
  const std::vector<int64_t> ids = {1, 2, 3, 4, 5, 6}, mask = {1, 1, 0, 1, 0, 1};
  add_request({view("mask", DataType::kInt64, {2, 3}, mask), view("ids", DataType::kInt64, {2, 3}, ids)});
  ASSERT_TRUE(execute().is_ok());
  EXPECT_THAT(values<float>(batch_.items[0].outputs[0]), ElementsAre(1, 2, 0, 4, 0, 6));
  EXPECT_THAT(batch_.items[0].outputs[0].shape, ElementsAre(2, 3));
}

TEST_F(ModelInstanceTest, ReshapesBothWays) {
  make("double", R"(max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [2, 2] reshape { shape: [4] } }
    output { name: "y" data_type: TYPE_FP32 dims: [4, 1] reshape { shape: [4] } })");
  const std::vector<float> a = {1, 2, 3, 4};
  add_request({view("x", DataType::kFp32, {1, 2, 2}, a)});
  ASSERT_TRUE(execute().is_ok());
  EXPECT_THAT(values<float>(batch_.items[0].outputs[0]), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(batch_.items[0].outputs[0].shape, ElementsAre(1, 4, 1));
}

TEST_F(ModelInstanceTest, ABadRequestFailsAlone) {
  make("index");
  const std::vector<int32_t> good = {3}, bad = {99};
  add_request({view("i", DataType::kInt32, {1, 1}, good)});
  add_request({view("i", DataType::kInt32, {1, 1}, bad)});
  add_request({view("i", DataType::kInt32, {1, 1}, good)});
  ASSERT_TRUE(execute().is_ok());
  EXPECT_TRUE(batch_.items[0].status.is_ok());
  EXPECT_EQ(batch_.items[1].status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(batch_.items[1].outputs.empty());
  EXPECT_THAT(values<int32_t>(batch_.items[2].outputs[0]), ElementsAre(3));
}

TEST_F(ModelInstanceTest, GivesOnlyWhatWasAskedFor) {
  make("double");
  const std::vector<float> a = {1, 2, 3, 4};
  add_request({view("x", DataType::kFp32, {1, 4}, a)}).requested_outputs = {"y"};
  ASSERT_TRUE(execute().is_ok());
  ASSERT_EQ(batch_.items[0].outputs.size(), 1u);
  EXPECT_EQ(batch_.items[0].outputs[0].name, "y");
}

TEST_F(ModelInstanceTest, ReusesLargeOutputBlocks) {
  make("big");
  const std::vector<float> a = {1, 2, 3, 4};
  add_request({view("x", DataType::kFp32, {1, 4}, a)});
  ASSERT_TRUE(execute().is_ok());
  const std::byte* first = batch_.items[0].outputs[0].bytes.data();
  ASSERT_TRUE(execute().is_ok());  // which lets go of the first answer
  ASSERT_TRUE(execute().is_ok());
  EXPECT_EQ(batch_.items[0].outputs[0].bytes.data(), first);
}

TEST(FindMaxBatchSize, NeedsOneSymbolInAllLeadingDimensionsAndNowhereElse) {
  class Probe : public FakeEngine {
   public:
    Probe() : FakeEngine("double", std::make_shared<FakeDevice>()) {
      define();
      inputs_.assign(FakeEngine::inputs().begin(), FakeEngine::inputs().end());
      outputs_.assign(FakeEngine::outputs().begin(), FakeEngine::outputs().end());
    }
    std::span<const TensorInfo> inputs() const override { return inputs_; }
    std::span<const TensorInfo> outputs() const override { return outputs_; }
    std::vector<TensorInfo> inputs_, outputs_;
  };
  EXPECT_EQ(find_max_batch_size(Probe()), 8);
  Probe other_symbol;
  other_symbol.outputs_[0].dim_names[0] = "batch2";
  EXPECT_EQ(find_max_batch_size(other_symbol), 0);
  Probe expression;
  expression.outputs_[0].dim_names[0] = "batch*2";
  EXPECT_EQ(find_max_batch_size(expression), 0);
  Probe square;
  square.outputs_[0].dims[1] = -1;
  square.outputs_[0].dim_names[1] = "batch+1";
  EXPECT_EQ(find_max_batch_size(square), 0);
  Probe similar;
  similar.outputs_[0].dims[1] = -1;
  similar.outputs_[0].dim_names[1] = "batches";
  EXPECT_EQ(find_max_batch_size(similar), 8);
  Probe fixed;
  fixed.inputs_[0].dims[0] = 8;
  fixed.inputs_[0].dim_names[0] = "";
  EXPECT_EQ(find_max_batch_size(fixed), 0);
  Probe no_single_rows;
  no_single_rows.inputs_[0].min[0] = 4;
  EXPECT_EQ(find_max_batch_size(no_single_rows), 0);
}

TEST(MapDims, MovesVariableExtents) {
  const std::vector<int64_t> from = {-1, 3, -1}, to = {3, -1, 1, -1}, dims = {7, 3, 9};
  EXPECT_THAT(map_dims(from, to, dims), ElementsAre(3, 7, 1, 9));
}

}  // namespace
}  // namespace flywheel::engines
