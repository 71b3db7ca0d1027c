// SPDX-License-Identifier: Apache-2.0
// Opens examples/native_backend, as compiled for this test, the way the model loader does.
#include "server/backend/native/native_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/temporary_folder_test_data.h"
#include "server/config/parse_config.h"

namespace flywheel::native {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kConfig =
    "backend: \"scale\" max_batch_size: 8 input { name: \"x\" data_type: TYPE_FP32 dims: [2] } "
    "output { name: \"y\" data_type: TYPE_FP32 dims: [2] } ";

class NativeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ + "/1");
    std::ofstream(folder_ + "/1/scale.txt") << "2.5\n";
    std::filesystem::copy(FLYWHEEL_SCALE_BACKEND, folder_ + "/libflywheel_scale.so");
  }
  void TearDown() override {
    instance_.reset();
    model_.reset();
  }
  Status load(const std::string& text, const std::string& backend_folder = "") {
    instance_.reset();
    FW_ASSIGN_OR_RETURN(const config::ModelConfig parsed, config::parse_config(text, "config.pbtxt", "m"));
    FW_ASSIGN_OR_RETURN(model_, NativeBackend(backend_folder)
                                    .open({.parsed = parsed, .model_folder = folder_, .version = 1, .keep_going = {}}));
    FW_ASSIGN_OR_RETURN(config_, config::complete_config(parsed, model_->description()));
    FW_RETURN_IF_ERROR(model_->configure(config_));
    FW_ASSIGN_OR_RETURN(instance_, model_->create_instance(0));
    return {};
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  config::ModelConfig config_;
  std::shared_ptr<backend::OpenModel> model_;
  std::unique_ptr<schedule::BatchExecutor> instance_;
};

TEST_F(NativeTest, ExecutesABatch) {
  ASSERT_EQ(load(kConfig).to_string(), "OK");
  EXPECT_EQ(config_.backend, "scale");
  EXPECT_FALSE(config_.dynamic_batching.has_value());
  const std::vector<float> a = {1, 2}, b = {3, 4, 5, 6};
  schedule::InferRequest first, second;
  first.inputs = {{"x", config::DataType::kFp32, {1, 2}, std::as_bytes(std::span(a))}};
  second.inputs = {{"x", config::DataType::kFp32, {2, 2}, std::as_bytes(std::span(b))}};
  second.requested_outputs = {"y"};
  schedule::Batch batch;
  for (const schedule::InferRequest* request : {&first, &second}) {
    batch.items.emplace_back();
    batch.items.back().request = request;
  }
  ASSERT_EQ(instance_->execute(batch).to_string(), "OK");
  for (const schedule::BatchItem& item : batch.items) ASSERT_EQ(item.status.to_string(), "OK");
  model_.reset();  // what is answered outlives the model
  instance_.reset();
  std::vector<float> values(4);
  std::memcpy(values.data(), batch.items[1].outputs.at(0).bytes.data(), batch.items[1].outputs.at(0).bytes.size());
  EXPECT_THAT(values, ElementsAre(7.5, 10, 12.5, 15));
  EXPECT_THAT(batch.items[0].outputs.at(0).shape, ElementsAre(1, 2));
}

TEST_F(NativeTest, ARequestFailsAlone) {
  ASSERT_EQ(load(kConfig).to_string(), "OK");
  const std::vector<float> a = {1, 2};
  schedule::InferRequest good, bad;
  good.inputs = {{"x", config::DataType::kFp32, {1, 2}, std::as_bytes(std::span(a))}};
  bad.inputs = {{"x", config::DataType::kInt32, {1, 2}, std::as_bytes(std::span(a))}};
  schedule::Batch batch;
  for (const schedule::InferRequest* request : {&bad, &good}) {
    batch.items.emplace_back();
    batch.items.back().request = request;
  }
  ASSERT_EQ(instance_->execute(batch).to_string(), "OK");
  EXPECT_EQ(batch.items[0].status.to_string(), "invalid argument: the input x must be FP32");
  EXPECT_EQ(batch.items[1].status.to_string(), "OK");
}

TEST_F(NativeTest, IsFoundInTheBackendDirectoryToo) {
  std::filesystem::create_directories(folder_ + "/backends/scale");
  std::filesystem::rename(folder_ + "/libflywheel_scale.so", folder_ + "/backends/scale/libflywheel_scale.so");
  EXPECT_THAT(
      load(kConfig).to_string(),
      HasSubstr("unable to find backend library for backend 'scale' of model 'm': there is no libflywheel_scale.so"));
  EXPECT_EQ(load(kConfig, folder_ + "/backends").to_string(), "OK");
}

TEST_F(NativeTest, LoadingSaysWhatIsWrong) {
  std::ofstream(folder_ + "/1/scale.txt") << "no number";
  EXPECT_THAT(load(kConfig).to_string(), HasSubstr("/1/scale.txt' holds no number"));
  EXPECT_THAT(load(std::string(kConfig) + "model_transaction_policy { decoupled: true }").to_string(),
              HasSubstr("decoupled"));
  std::ofstream(folder_ + "/libflywheel_text.so") << "text";
  EXPECT_THAT(load("backend: \"text\"").to_string(), HasSubstr("cannot load the backend"));
  EXPECT_THAT(load("backend: \"../scale\"").to_string(), HasSubstr("is no name of a backend"));
}

}  // namespace
}  // namespace flywheel::native
