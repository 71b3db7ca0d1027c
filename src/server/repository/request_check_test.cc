// SPDX-License-Identifier: Apache-2.0
#include "server/repository/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flywheel::repository {
namespace {

using config::DataType;
using testing::HasSubstr;

class RequestCheck : public testing::Test {
 protected:
  RequestCheck() {
    config_.name = "M";
    config_.max_batch_size = 8;
    config_.inputs = {{"A", DataType::kFp32, {16}, {}, {}}, {"B", DataType::kInt32, {-1}, {}, {}}};
    config_.outputs = {{"Y", DataType::kFp32, {4}, {}, {}}, {"Z", DataType::kFp32, {4}, {}, {}}};
    add("A", DataType::kFp32, {2, 16}, 128);
    add("B", DataType::kInt32, {2, 3}, 24);
  }
  void add(std::string name, DataType type, std::vector<int64_t> shape, size_t bytes) {
    request_.inputs.push_back({std::move(name), type, std::move(shape), std::span<const std::byte>(data_, bytes)});
  }
  std::string error() {
    const Status status = check_request(config_, request_);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  }

  config::ModelConfig config_;
  schedule::InferRequest request_;
  std::byte data_[4096] = {};
};

TEST_F(RequestCheck, OrdersInputsAndFillsInTheRest) {
  std::swap(request_.inputs[0], request_.inputs[1]);
  ASSERT_TRUE(check_request(config_, request_).is_ok());
  EXPECT_EQ(request_.inputs[0].name, "A");
  EXPECT_EQ(request_.inputs[1].name, "B");
  EXPECT_EQ(request_.batch_size, 2);
  EXPECT_EQ(request_.signature, (std::vector<int64_t>{1, 16, 1, 3}));
}

TEST_F(RequestCheck, LeavesTheSignatureEmptyWhenAllShapesAreFixed) {
  config_.inputs[1].dims = {3};
  ASSERT_TRUE(check_request(config_, request_).is_ok());
  EXPECT_TRUE(request_.signature.empty());
}

TEST_F(RequestCheck, CountsInputs) {
  request_.inputs.pop_back();
  EXPECT_EQ(
      error(),
      "[request id: <id_unknown>] expected 2 inputs but got 1 inputs for model 'M'. Got input(s) ['A'], but missing "
      "required input(s) ['B']. Please provide all required input(s).");
  request_.inputs.clear();
  request_.id = "77";
  EXPECT_EQ(error(),
            "[request id: 77] expected 2 inputs but got 0 inputs for model 'M'. Got input(s) [], but missing required "
            "input(s) ['A','B']. Please provide all required input(s).");
}

TEST_F(RequestCheck, NamesUnknownAndRepeatedInputs) {
  request_.inputs[1].name = "C";
  EXPECT_EQ(error(), "unexpected inference input 'C' for model 'M'");
  request_.inputs[1].name = "A";
  EXPECT_EQ(error(), "[request id: <id_unknown>] input 'A' already exists in request");
}

TEST_F(RequestCheck, ChecksTheBatchSize) {
  request_.inputs[0].shape[0] = request_.inputs[1].shape[0] = 9;
  EXPECT_EQ(error(), "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'M'");
  request_.inputs[0].shape[0] = 2;
  EXPECT_EQ(error(), "[request id: <id_unknown>] input 'B' batch size does not match other inputs for 'M'");
  request_.inputs[0].shape[0] = request_.inputs[1].shape[0] = 0;
  EXPECT_EQ(error(), "[request id: <id_unknown>] inference request batch-size must be >= 1 for 'M'");
  request_.inputs[0].shape.clear();
  EXPECT_EQ(error(), "[request id: <id_unknown>] input 'A' has no shape but model requires batch dimension for 'M'");
}

TEST_F(RequestCheck, ChecksTypesShapesAndSizes) {
  request_.inputs[0].data_type = DataType::kString;
  EXPECT_EQ(error(),
            "[request id: <id_unknown>] inference input 'A' data-type is 'BYTES', but model 'M' expects 'FP32'");
  request_.inputs[0].data_type = DataType::kFp32;
  request_.inputs[0].shape = {2, 17};
  EXPECT_THAT(error(), HasSubstr("[request id: <id_unknown>] unexpected shape for input 'A' for model 'M'. Expected "
                                 "[-1,16], got [2,17]. NOTE: Setting a non-zero max_batch_size in the model config "
                                 "requires a batch dimension to be prepended to each input shape."));
  request_.inputs[0].shape = {2, 16, 1};
  EXPECT_THAT(error(), HasSubstr("Expected [-1,16], got [2,16,1]"));
  request_.inputs[0].shape = {2, 16};
  request_.inputs[1].shape = {2, 4};
  EXPECT_EQ(error(),
            "[request id: <id_unknown>] input byte size mismatch for input 'B' for model 'M'. Expected 32, got 24");
  request_.inputs[1].shape = {2, -1};
  EXPECT_THAT(error(), HasSubstr("All input dimensions should be specified for input 'B'"));
  request_.inputs[1].shape = {2, int64_t{1} << 61};
  EXPECT_THAT(error(), HasSubstr("has more elements than any tensor can"));
  config_.max_batch_size = 0;
  config_.inputs[0].dims = {16};
  EXPECT_EQ(error(),
            "[request id: <id_unknown>] unexpected shape for input 'A' for model 'M'. Expected [16], got [2,16]. ");
}

TEST_F(RequestCheck, ChecksRequestedOutputs) {
  request_.requested_outputs = {"Y", "Q"};
  EXPECT_EQ(error(), "unexpected inference output 'Q' for model 'M'");
  request_.requested_outputs = {"Y", "Y"};
  EXPECT_EQ(error(), "[request id: <id_unknown>] output 'Y' already exists in request");
}

TEST_F(RequestCheck, DeducesARawInput) {
  request_.inputs.clear();
  const std::span<const std::byte> bytes(data_, 48);
  EXPECT_EQ(
      add_raw_input(config_, bytes, request_).message(),
      "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'M' "
      "model configuration");
  config_.inputs = {{"A", DataType::kFp32, {-1, 4}, {}, {}}};
  ASSERT_TRUE(add_raw_input(config_, bytes, request_).is_ok());
  EXPECT_EQ(request_.inputs[0].shape, (std::vector<int64_t>{1, 3, 4}));
  EXPECT_TRUE(check_request(config_, request_).is_ok());
  config_.inputs[0].dims = {-1, -1};
  EXPECT_EQ(
      add_raw_input(config_, bytes, request_).message(),
      "[request id: <id_unknown>] The shape of the raw input 'A' can not be deduced because there are more than one "
      "variable-sized dimension");
}

TEST(OptionalInputs, MayBeLeftOut) {
  config::ModelConfig config;
  config.name = "m";
  config.max_batch_size = 4;
  for (const char* name : {"a", "b"}) {
    config::TensorConfig& tensor = config.inputs.emplace_back();
    tensor.name = name;
    tensor.data_type = DataType::kUint8;
    tensor.dims = {1};
    tensor.optional = name[0] == 'a';
  }
  static const std::byte kByte[1] = {};
  schedule::InferRequest request;
  request.inputs.push_back({"b", DataType::kUint8, {1, 1}, kByte});
  const Status status = check_request(config, request);
  ASSERT_TRUE(status.is_ok()) << status.message();
  ASSERT_EQ(request.inputs.size(), 2u);
  EXPECT_EQ(request.inputs[0].data_type, DataType::kInvalid);
  EXPECT_EQ(request.inputs[1].name, "b");
  schedule::InferRequest with;
  with.inputs.push_back({"b", DataType::kUint8, {1, 1}, kByte});
  with.inputs.push_back({"a", DataType::kUint8, {1, 1}, kByte});
  ASSERT_TRUE(check_request(config, with).is_ok());
  EXPECT_NE(with.signature, request.signature);
  schedule::InferRequest without;
  without.inputs.push_back({"a", DataType::kUint8, {1, 1}, kByte});
  EXPECT_EQ(check_request(config, without).message(),
            "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 1 inputs for model 'm'. Got "
            "input(s) ['a'], but missing required input(s) ['b']. Please provide all required input(s).");
}

}  // namespace
}  // namespace flywheel::repository
