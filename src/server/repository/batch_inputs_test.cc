// SPDX-License-Identifier: Apache-2.0
#include "server/repository/batch_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "server/repository/request_check.h"

namespace flywheel::repository {
namespace {

using config::DataType;
using Kind = config::BatchInput::Kind;
using testing::ElementsAre;

class BatchInputs : public testing::Test {
 protected:
  // Two requests: [2, 3] and [1, 4] of batch and length.
  BatchInputs() {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 3}, std::vector<int64_t>{1, 4}}) {
      auto request = std::make_shared<schedule::InferRequest>();
      request->batch_size = shape[0];
      request->inputs.push_back({"x", DataType::kFp32, shape, {}});
      requests_.push_back(request);
      items_.emplace_back();
      items_.back().request = request.get();
    }
  }
  template <class T = int32_t>
  std::vector<T> values(Kind kind, DataType type = DataType::kInt32) {
    auto computed = compute_batch_input({kind, {"t"}, type, "x"}, 0, items_);
    EXPECT_TRUE(computed.is_ok());
    shape_ = computed->shape;
    std::vector<T> found(computed->bytes.size() / sizeof(T));
    if (!found.empty()) std::memcpy(found.data(), computed->bytes.data(), computed->bytes.size());
    return found;
  }
  std::vector<std::shared_ptr<schedule::InferRequest>> requests_;
  std::vector<schedule::BatchItem> items_;
  std::vector<int64_t> shape_;
};

TEST_F(BatchInputs, AllKinds) {
  EXPECT_THAT(values(Kind::kElementCount), ElementsAre(6, 4));
  EXPECT_THAT(values(Kind::kAccumulatedElementCount), ElementsAre(6, 10));
  EXPECT_THAT(values(Kind::kAccumulatedElementCountWithZero), ElementsAre(0, 6, 10));
  EXPECT_THAT(shape_, ElementsAre(3));
  EXPECT_EQ(values(Kind::kMaxElementCountAsShape).size(), 6u);
  EXPECT_THAT(values(Kind::kItemShape), ElementsAre(3, 3, 4));
  EXPECT_THAT(shape_, ElementsAre(3, 1));
  EXPECT_THAT(values(Kind::kItemShapeFlatten), ElementsAre(3, 3, 4));
  EXPECT_THAT(shape_, ElementsAre(3));
  EXPECT_THAT(values<float>(Kind::kElementCount, DataType::kFp32), ElementsAre(6.0f, 4.0f));
}

TEST_F(BatchInputs, CountsThatDoNotFitAreRefused) {
  requests_[0]->inputs[0].shape = {1, int64_t{1} << 31};
  EXPECT_FALSE(compute_batch_input({Kind::kElementCount, {"t"}, DataType::kInt32, "x"}, 0, items_).is_ok());
}

TEST(RaggedOutputs, AreCutByTheInputsShapes) {
  const std::shared_ptr<std::byte> data(new std::byte[40], std::default_delete<std::byte[]>());
  std::vector<schedule::OutputTensor> outputs;
  size_t at = 0;
  EXPECT_TRUE(add_cut(data, "y", DataType::kFp32, 4, 40, {2, 3}, at, outputs).is_ok());
  EXPECT_TRUE(add_cut(data, "y", DataType::kFp32, 4, 40, {1, 4}, at, outputs).is_ok());
  EXPECT_EQ(outputs[1].bytes.data(), data.get() + 24);
  EXPECT_EQ(outputs[1].bytes.size(), 16u);
  EXPECT_FALSE(add_cut(data, "y", DataType::kFp32, 4, 40, {1, 1}, at, outputs).is_ok());
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
