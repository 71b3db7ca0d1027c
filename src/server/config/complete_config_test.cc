// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "server/config/config_test_data.h"
#include "server/config/model_config.pb.h"
#include "server/config/parse_config.h"

namespace flywheel::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<ModelConfig> complete(std::string_view text, const ModelDescription& model, CompletionOptions options = {}) {
  auto parsed = parse_config(text, "config.pbtxt", "m");
  if (!parsed.is_ok()) return parsed.status();
  return complete_config(*parsed, model, options);
}

std::string error_of(std::string_view text, const ModelDescription& model = image_model(),
                     CompletionOptions options = {}) {
  auto result = complete(text, model, options);
  return result.is_ok() ? "" : result.status().message();
}

TEST(CompleteConfig, EmptyTextIsFilledFromTheModel) {
  auto config = complete("", image_model());
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->max_batch_size, 8);
  EXPECT_EQ(config->platform, "flywheel_engine");
  EXPECT_EQ(config->backend, "flywheel");
  EXPECT_EQ(config->default_model_filename, "model.engine");
  ASSERT_EQ(config->inputs.size(), 1u);
  EXPECT_EQ(config->inputs[0].name, "image");
  EXPECT_EQ(config->inputs[0].data_type, DataType::kFp32);
  EXPECT_THAT(config->inputs[0].dims, ElementsAre(3, 28, 28));
  ASSERT_EQ(config->outputs.size(), 1u);
  EXPECT_THAT(config->outputs[0].dims, ElementsAre(10));
  ASSERT_TRUE(config->dynamic_batching.has_value());
  EXPECT_THAT(config->dynamic_batching->preferred_batch_sizes, ElementsAre(8));
  ASSERT_EQ(config->instance_groups.size(), 1u);
  EXPECT_EQ(config->instance_groups[0].name, "m");
  EXPECT_EQ(config->instance_count(), 1);
}

TEST(CompleteConfig, ScalarsForEachRowAreGivenAsOneElement) {
  auto config = complete("", text_model());
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_THAT(config->inputs[0].dims, ElementsAre(-1));
  EXPECT_THAT(config->find_output("score")->dims, ElementsAre(1));
  EXPECT_THAT(config->find_output("score")->model_dims(), IsEmpty());
  EXPECT_THAT(config->find_output("hidden")->dims, ElementsAre(-1, 16));
  EXPECT_EQ(config->find_output("nothing"), nullptr);
}

TEST(CompleteConfig, PartialTextIsCompleted) {
  auto config = complete(R"(max_batch_size: 4 input { name: "mask" } output { name: "hidden" dims: [ -1, 16 ] }
                            instance_group [ { count: 2 }, { kind: KIND_CPU } ])",
                         text_model());
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->max_batch_size, 4);
  ASSERT_EQ(config->inputs.size(), 2u) << "an engine needs all its inputs";
  EXPECT_EQ(config->inputs[0].name, "mask");
  EXPECT_EQ(config->inputs[0].data_type, DataType::kInt64);
  EXPECT_EQ(config->inputs[1].name, "ids");
  ASSERT_EQ(config->outputs.size(), 1u) << "a text that names outputs hides the others";
  EXPECT_EQ(config->outputs[0].data_type, DataType::kFp32);
  EXPECT_THAT(config->dynamic_batching->preferred_batch_sizes, ElementsAre(4));
  ASSERT_EQ(config->instance_groups.size(), 2u);
  EXPECT_EQ(config->instance_groups[0].name, "m_0");
  EXPECT_EQ(config->instance_groups[1].name, "m_1");
  EXPECT_EQ(config->instance_count(), 3);
}

TEST(CompleteConfig, DimsWithTheBatchTurnBatchingOff) {
  auto config = complete(
      R"(input { name: "image" dims: [ -1, 3, 28, 28 ] } output { name: "scores" dims: [ -1, 10 ] })", image_model());
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->max_batch_size, 0);
  EXPECT_FALSE(config->dynamic_batching.has_value());
}

TEST(CompleteConfig, ExplicitZeroTurnsBatchingOff) {
  auto config = complete("max_batch_size: 0", image_model());
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->max_batch_size, 0);
  EXPECT_THAT(config->inputs[0].dims, ElementsAre(-1, 3, 28, 28));
}

TEST(CompleteConfig, ModelWithoutBatchIsServedWhole) {
  ModelDescription model = image_model();
  model.max_batch_size = 0;
  model.inputs[0].shape = {1, 3, 28, 28};
  auto config = complete("", model);
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->max_batch_size, 0);
  EXPECT_THAT(config->inputs[0].dims, ElementsAre(1, 3, 28, 28));
  EXPECT_THAT(error_of("max_batch_size: 4", model),
              HasSubstr("model 'm' does not support batching while non-zero max_batch_size is specified"));
}

TEST(CompleteConfig, MaxBatchSizeIsHeldAgainstTheModel) {
  EXPECT_EQ(error_of("max_batch_size: 9"),
            "'max_batch_size' is 9 for m, but the model takes at most 8: lower it, or build the engine with a larger "
            "profile");
  EXPECT_EQ(error_of("max_batch_size: -1"), "'max_batch_size' must be non-negative value for m");
}

TEST(CompleteConfig, OneRowModelsGetNoBatcher) {
  auto config = complete("max_batch_size: 1", image_model());
  ASSERT_TRUE(config.is_ok());
  EXPECT_FALSE(config->dynamic_batching.has_value());
}

TEST(CompleteConfig, AutoCompletionCanBeOff) {
  CompletionOptions strict{.auto_complete = false};
  EXPECT_THAT(error_of("", image_model(), strict), HasSubstr("must specify all inputs of model 'm'"));
  auto config = complete(R"(max_batch_size: 8 input { name: "image" data_type: TYPE_FP32 dims: [ 3, 28, 28 ] }
                            output { name: "scores" data_type: TYPE_FP32 dims: 10 })",
                         image_model(), strict);
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_FALSE(config->dynamic_batching.has_value());
}

TEST(CompleteConfig, TensorsAreHeldAgainstTheModel) {
  EXPECT_EQ(error_of(R"(input { name: "img" })"),
            "unexpected inference input 'img' for model 'm', allowed inputs are: image");
  EXPECT_THAT(error_of(R"(output { name: "x" })"), HasSubstr("unexpected inference output 'x' for model 'm'"));
  EXPECT_EQ(
      error_of(R"(input { name: "image" data_type: TYPE_FP16 })"),
      "unable to load model 'm', configuration expects datatype TYPE_FP16 for input 'image', model provides TYPE_FP32");
  EXPECT_EQ(error_of(R"(max_batch_size: 8 input { name: "image" dims: [ 3, 28, 29 ] })"),
            "unable to load model 'm', input 'image': the model expects shape [-1,3,28,28] but the model configuration "
            "specifies shape [-1,3,28,29] (dims leave out the batch dimension, as max_batch_size is not 0)");
  EXPECT_THAT(error_of(R"(max_batch_size: 8 input { name: "image" dims: [ -1, 3, 28, 28 ] })"),
              HasSubstr("specifies shape [-1,-1,3,28,28]"));
}

TEST(CompleteConfig, AFixedSizeMayStandForAVariableOneOnly) {
  EXPECT_EQ(error_of(R"(input { name: "ids" dims: 128 } input { name: "mask" dims: 128 })", text_model()), "");
  EXPECT_THAT(error_of(R"(max_batch_size: 8 input { name: "image" dims: [ 3, -1, 28 ] })"),
              HasSubstr("the model expects"));
}

TEST(CompleteConfig, ReshapeStandsForTheModelsShape) {
  auto config = complete(R"(max_batch_size: 8 input { name: "image" dims: [ 2352 ] reshape { shape: [ 3, 28, 28 ] } })",
                         image_model());
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_THAT(config->inputs[0].dims, ElementsAre(2352));
  EXPECT_THAT(config->inputs[0].model_dims(), ElementsAre(3, 28, 28));
}

// Whatever the text says, it is an answer or an error; run with the address sanitizer this looks for worse.
TEST(CompleteConfig, DamagedTextsAreAnsweredToo) {
  const std::string text = R"(name: "m" max_batch_size: 8 version_policy { specific { versions: [ 1, 2 ] } }
    input { name: "image" data_type: TYPE_FP32 dims: [ 2352 ] reshape { shape: [ 3, 28, 28 ] } }
    dynamic_batching { preferred_batch_size: [ 2, 4 ] priority_levels: 3 default_priority_level: 2
      default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }
      priority_queue_policy { key: 1 value { max_queue_size: 9 } } }
    instance_group [ { kind: KIND_CPU count: 2 } ] parameters { key: "k" value { string_value: "v" } })";
  ASSERT_TRUE(complete(text, image_model()).is_ok());
  std::mt19937 random(1);
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (size_t n = random() % 3 + 1; n > 0; --n) {
      const size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0: damaged[at] = static_cast<char>(random()); break;
        case 1: damaged.erase(at, random() % 20); break;
        case 2: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 40)); break;
        default: damaged.insert(at, std::to_string(static_cast<int64_t>(random()) << (random() % 32))); break;
      }
    }
    auto config = complete(damaged, image_model());
    if (config.is_ok()) {
      ++accepted;
      EXPECT_FALSE(config_to_json(*config).empty());
    } else {
      EXPECT_FALSE(config.status().message().empty());
    }
  }
  EXPECT_GT(accepted, 0);
}

// Texts that people know and search for.
TEST(ValidateConfig, DynamicBatching) {
  EXPECT_EQ(error_of("dynamic_batching { preferred_batch_size: 0 }"),
            "dynamic batching preferred size must be positive for m");
  EXPECT_EQ(error_of("dynamic_batching { preferred_batch_size: 9 }"),
            "dynamic batching preferred size must be <= max batch size for m");
  EXPECT_EQ(error_of("dynamic_batching { priority_levels: 2 }"),
            "default priority level must be in range [1, 2] for m");
  EXPECT_EQ(error_of("dynamic_batching { priority_levels: 2 default_priority_level: 3 }"),
            "default priority level must be in range [1, 2] for m");
  EXPECT_EQ(error_of("dynamic_batching { priority_levels: 2 default_priority_level: 1 "
                     "priority_queue_policy { key: 3 value { } } }"),
            "priority queue policy must have priority level in range [1, 2] for m");
  EXPECT_EQ(error_of("dynamic_batching { priority_levels: 2 default_priority_level: 1 preserve_ordering: true }"),
            "Only one priority level is allowed when 'preserve_ordering' is true for m");
  EXPECT_EQ(error_of("dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY "
                     "default_timeout_microseconds: 1 } }"),
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m");
  EXPECT_EQ(
      error_of("dynamic_batching { priority_levels: 1 default_priority_level: 1 preserve_ordering: true "
               "priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } } }"),
      "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m");
  EXPECT_EQ(error_of("dynamic_batching { priority_levels: 18446744073709551615 default_priority_level: 4294967296 }"),
            "");
}

TEST(ValidateConfig, Tensors) {
  EXPECT_EQ(error_of(R"(input { name: "image" dims: [ 3, 0, 28 ] })"),
            "model input 'image' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m");
  EXPECT_EQ(error_of(R"(max_batch_size: 8 input { name: "image" dims: 2351 reshape { shape: [ 3, 28, 28 ] } })"),
            "model input 'image' has different size for dims and reshape for m");
  EXPECT_EQ(error_of(R"(max_batch_size: 8 input { name: "image" dims: -1 reshape { shape: [ 3, 28, 28 ] } })"),
            "model input 'image' has different number of variable-size dimensions for dims and reshape for m");
  EXPECT_THAT(error_of(R"(max_batch_size: 8 input { name: "image" dims: [ 4611686018427387904, 4 ] })"),
              HasSubstr("more elements than fit"));
  EXPECT_EQ(
      error_of(R"(max_batch_size: 0 input { name: "image" dims: 1 reshape { } })"),
      "model input 'image' cannot have empty reshape for non-batching model as scalar tensors are not supported for m");
  EXPECT_EQ(error_of(R"(input [ { name: "image" }, { name: "image" } ])"), "model input 'image' is given twice for m");
  EXPECT_EQ(
      error_of(R"(output { name: "scores" label_filename: "../../etc/passwd" })"),
      "'label_filename' is '../../etc/passwd', but must be a relative path that stays inside the model's folder for m");
  EXPECT_THAT(error_of(R"(default_model_filename: "/etc/passwd")"),
              HasSubstr("'default_model_filename' is '/etc/passwd'"));
  EXPECT_EQ(error_of(R"(input { name: "ids" format: FORMAT_NHWC })", text_model()),
            "model input 'ids' NHWC/NCHW require 3 dims for m");
}

TEST(ValidateConfig, Instances) {
  EXPECT_EQ(
      error_of("instance_group { kind: KIND_GPU }"),
      "instance group m_0 of model m has kind KIND_GPU but server does not support GPUs; use KIND_CPU or KIND_AUTO");
  EXPECT_EQ(error_of("instance_group { kind: KIND_CPU gpus: 0 }"),
            "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs");
  EXPECT_EQ(error_of("instance_group { kind: KIND_AUTO gpus: 0 }"), "");
  EXPECT_THAT(error_of("instance_group { count: -1 }"), HasSubstr("has count -1"));
  EXPECT_THAT(error_of("instance_group [ { count: 2147483647 }, { count: 2147483647 } ]"),
              HasSubstr("asks for 4294967294 instances, but at most 256"));
}

TEST(ValidateConfig, Warmup) {
  const std::string head = R"(model_warmup { name: "w" batch_size: 1 inputs { key: )";
  EXPECT_EQ(error_of(head + R"("image" value { data_type: TYPE_FP32 dims: [ 3, 28, 28 ] zero_data: true } } })"), "");
  EXPECT_THAT(error_of(head + R"("x" value { } } })"),
              HasSubstr("warmup 'w' of model m: input 'x': the model has no such"));
  EXPECT_THAT(error_of(head + R"("image" value { data_type: TYPE_FP16 dims: [ 3, 28, 28 ] zero_data: true } } })"),
              HasSubstr("data type is TYPE_FP16, but the input's is TYPE_FP32"));
  EXPECT_THAT(error_of(head + R"("image" value { data_type: TYPE_FP32 dims: [ 3, 28, -1 ] zero_data: true } } })"),
              HasSubstr("'dims' must be sizes"));
  EXPECT_THAT(error_of(head + R"("image" value { data_type: TYPE_FP32 dims: [ 3, 28, 28 ] } } })"),
              HasSubstr("must specify one of 'zero_data'"));
  EXPECT_THAT(
      error_of(head + R"("image" value { data_type: TYPE_FP32 dims: [ 3, 28, 28 ] input_data_file: "../x" } } })"),
      HasSubstr("stays inside"));
  EXPECT_THAT(error_of(R"(model_warmup { name: "w" batch_size: 9 })"),
              HasSubstr("batch_size is 9, but must be in range [1, 8]"));
  EXPECT_THAT(error_of(R"(model_warmup { name: "w" batch_size: 8 })"),
              HasSubstr("has no data for the model's input 'image'"));
}

}  // namespace
}  // namespace flywheel::config
