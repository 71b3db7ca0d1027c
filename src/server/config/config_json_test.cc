// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/config_test_data.h"
#include "server/config/parse_config.h"

namespace flywheel::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string json_of(std::string_view text) {
  auto parsed = parse_config(text, "config.pbtxt", "m");
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  auto config = complete_config(*parsed, image_model());
  EXPECT_TRUE(config.is_ok()) << config.status().message();
  return config_to_json(*config);
}

TEST(ConfigJson, PrintsEveryFieldWithItsDefault) {
  EXPECT_EQ(
      json_of(""),
      R"({"name":"m","platform":"flywheel_engine","backend":"flywheel","runtime":"",)"
      R"("version_policy":{"latest":{"num_versions":1}},"max_batch_size":8,)"
      R"("input":[{"name":"image","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[3,28,28],)"
      R"("is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false}],)"
      R"("output":[{"name":"scores","data_type":"TYPE_FP32","dims":[10],"label_filename":"",)"
      R"("is_shape_tensor":false,"is_non_linear_format_io":false}],"batch_input":[],"batch_output":[],)"
      R"("optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},)"
      R"("output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,"eager_batching":false},)"
      R"("dynamic_batching":{"preferred_batch_size":[8],"max_queue_delay_microseconds":0,"preserve_ordering":false,)"
      R"("priority_levels":0,"default_priority_level":0,"priority_queue_policy":{}},)"
      R"("instance_group":[{"name":"m","kind":"KIND_CPU","count":1,"gpus":[],"secondary_devices":[],"profile":[],)"
      R"("passive":false,"host_policy":""}],"default_model_filename":"model.engine","cc_model_filenames":{},)"
      R"("metric_tags":{},"parameters":{},"model_warmup":[]})");
}

TEST(ConfigJson, SixtyFourBitIntegersAreNumbersAndMapKeysAreStrings) {
  std::string json = json_of(R"(dynamic_batching { priority_levels: 18446744073709551615 default_priority_level: 1
      max_queue_delay_microseconds: 12 priority_queue_policy { key: 2 value { default_timeout_microseconds: 7 } } })");
  EXPECT_THAT(json, HasSubstr(R"("priority_levels":18446744073709551615)"));
  EXPECT_THAT(json, HasSubstr(R"("max_queue_delay_microseconds":12)"));
  EXPECT_THAT(json,
              HasSubstr(R"("priority_queue_policy":{"2":{"timeout_action":"REJECT","default_timeout_microseconds":7,)"
                        R"("allow_timeout_override":false,"max_queue_size":0}})"));
}

TEST(ConfigJson, StringsAreEscaped) {
  std::string json = json_of(R"(parameters { key: "a\"\\\n\t\001" value { string_value: "\xc3\xa9 \xff" } })");
  EXPECT_THAT(json, HasSubstr("\"parameters\":{\"a\\\"\\\\\\n\\t\\u0001\":{\"string_value\":\"\xc3\xa9 \\ufffd\"}}"));
}

TEST(ConfigJson, IsWhatParseConfigJsonReads) {
  std::string json = json_of(R"(metric_tags { key: "k" value: "v" } instance_group { count: 3 })");
  auto parsed = parse_config_json(json, "m");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
  auto config = complete_config(*parsed, image_model());
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config_to_json(*config), json);
}

}  // namespace
}  // namespace flywheel::config
