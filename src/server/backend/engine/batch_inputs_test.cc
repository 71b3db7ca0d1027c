// SPDX-License-Identifier: Apache-2.0
#include "server/backend/engine/batch_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace flywheel::engines {
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

}  // namespace
}  // namespace flywheel::engines
