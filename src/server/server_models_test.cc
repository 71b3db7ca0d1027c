// SPDX-License-Identifier: Apache-2.0
// Ensembles, the response cache and the server's own batching options, over HTTP.
#include "server/server_test_data.h"

namespace flywheel::server {
namespace {

using testing::HasSubstr;

constexpr std::string_view kOne = R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]})";
constexpr std::string_view kIn = R"({"inputs":[{"name":"IN","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]})";

constexpr const char* kEnsemble = R"(platform: "ensemble" max_batch_size: 8
input [{ name: "IN" data_type: TYPE_FP32 dims: [4] }] output [{ name: "OUT" data_type: TYPE_FP32 dims: [4] }]
ensemble_scheduling { step [
  { model_name: "m" model_version: -1 input_map { key: "x" value: "IN" } output_map { key: "y" value: "mid" } },
  { model_name: "m" model_version: -1 input_map { key: "x" value: "mid" } output_map { key: "y" value: "OUT" } } ] })";

class ModelsTest : public ServerTest {
 protected:
  void begin() {
    const Status status = start();
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
};

TEST_F(ModelsTest, AnEnsembleIsAModelLikeOthers) {
  add_model("m", "double");
  folder_.write("e/config.pbtxt", kEnsemble);
  folder_.write("e/1/.keep", "");
  begin();
  EXPECT_EQ(get("/v2/health/ready").status, 200);
  EXPECT_THAT(get("/v2/models/e").body, HasSubstr(R"("platform":"ensemble")"));
  const auto answer = infer("e", kIn);
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr(R"("data":[4.0,8.0,12.0,16.0])"));
  EXPECT_THAT(get("/v2/models/e/stats").body, HasSubstr(R"("success":{"count":1)"));
  EXPECT_THAT(get("/v2/models/m/stats").body, HasSubstr(R"("success":{"count":2)"));
  EXPECT_THAT(metrics(), HasSubstr("nv_inference_request_success{model=\"e\",version=\"1\"} 1"));
  EXPECT_THAT(get("/v2/models/e/config").body, HasSubstr("ensemble_scheduling"));
}

TEST_F(ModelsTest, TheCacheAnswersEqualRequests) {
  options_.response_cache_bytes = 1 << 20;
  add_model("m", "double", "response_cache { enable: true }");
  begin();
  const std::string first = infer("m", kOne).body;
  EXPECT_EQ(infer("m", kOne).body, first);
  EXPECT_EQ(device_->batches().size(), 1u);
  const std::string stats = get("/v2/models/m/stats").body;
  EXPECT_THAT(stats, HasSubstr(R"("inference_count":1)"));
  EXPECT_THAT(stats, HasSubstr(R"("success":{"count":2)"));
  EXPECT_THAT(stats, HasSubstr(R"("cache_hit":{"count":1)"));
  EXPECT_THAT(stats, HasSubstr(R"("cache_miss":{"count":1)"));
  EXPECT_THAT(metrics(), HasSubstr("nv_cache_num_hits_per_model{model=\"m\",version=\"1\"} 1"));
}

TEST_F(ModelsTest, LargeRequestsAreSplitWhereThatIsAskedFor) {
  const std::string body =
      R"({"inputs":[{"name":"x","shape":[3,4],"datatype":"FP32","data":[1,2,3,4,5,6,7,8,9,10,11,12]}]})";
  add_model("m", "double", "max_batch_size: 2");
  begin();
  EXPECT_THAT(error(infer("m", body), 400), HasSubstr("inference request batch-size must be <= 2 for 'm'"));
  add_model("m", "double",
            "max_batch_size: 2 parameters { key: \"split_large_requests\" value { string_value: \"true\" } }");
  begin();
  const auto answer = infer("m", body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr(R"("shape":[3,4])"));
  EXPECT_THAT(answer.body, HasSubstr(R"("data":[2.0,4.0,6.0,8.0,10.0,12.0,14.0,16.0,18.0,20.0,22.0,24.0])"));
}

TEST_F(ModelsTest, LengthsArePaddedToBuckets) {
  add_model("m", "text", "parameters { key: \"length_buckets\" value { string_value: \"4, 8\" } }");
  begin();
  const auto answer = infer("m", R"({"inputs":[
      {"name":"ids","shape":[1,3],"datatype":"INT64","data":[5,6,7]},
      {"name":"mask","shape":[1,3],"datatype":"INT64","data":[1,1,2]}]})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr(R"("shape":[1,3],"data":[5.0,6.0,14.0])"));
}

TEST_F(ModelsTest, OptionsThatMakeNoSenseFailTheLoad) {
  options_.exit_on_error = true;
  add_model("m", "double", "parameters { key: \"length_buckets\" value { string_value: \"8,4\" } }");
  EXPECT_THAT(start().message(), HasSubstr("must be lengths in ascending order"));
  add_model("m", "double", "parameters { key: \"split_large_requests\" value { string_value: \"yes\" } }");
  EXPECT_THAT(start().message(), HasSubstr("must be \"true\" or \"false\""));
  add_model("m", "double", "input [{ name: \"x\" optional: true }]");
  EXPECT_THAT(start().message(), HasSubstr("an engine needs all of its inputs"));
}

TEST_F(ModelsTest, RateLimitsThatNobodyCanMeetFailTheLoad) {
  options_.rate_limits.enabled = true;
  options_.rate_limits.resources["R"] = 2;
  const std::string group = "instance_group [{ count: 2 rate_limiter { resources [{ name: \"R\" count: ";
  add_model("m", "double", group + "3 }] } }]");
  EXPECT_THAT(start().message(), HasSubstr("Resource count for \"R\" is limited to 2"));
  add_model("m", "double", group + "2 }] } }]");
  begin();
  EXPECT_EQ(infer("m", kOne).status, 200);
}

}  // namespace
}  // namespace flywheel::server
