// SPDX-License-Identifier: Apache-2.0
// Ensembles, the response cache and the server's own batching options, over HTTP.
#include <thread>

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

TEST_F(ModelsTest, SequencesKeepTheirStateHere) {
  add_model("s", "running", R"(
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input [{ name: "start" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] }]
  state [{ input_name: "sum_in" output_name: "sum_out" data_type: TYPE_FP32 dims: [1] }]
})");
  begin();
  EXPECT_THAT(get("/v2/models/s").body, HasSubstr(R"("inputs":[{"name":"x","datatype":"FP32","shape":[-1,1]}])"));
  const auto step = [&](const std::string& id, int x, const std::string& flags = "") {
    return infer("s", R"({"parameters":{"sequence_id":)" + id + flags + R"(},"inputs":[{"name":"x","shape":[1,1],)" +
                          R"("datatype":"FP32","data":[)" + std::to_string(x) + "]}]}");
  };
  const std::string start = R"(,"sequence_start":true)", end = R"(,"sequence_end":true)";
  EXPECT_THAT(step("1", 5, start).body, HasSubstr(R"("data":[5.0])"));
  EXPECT_THAT(step("\"a\"", 7, start).body, HasSubstr(R"("data":[7.0])"));
  EXPECT_THAT(step("1", 6).body, HasSubstr(R"("data":[11.0])"));
  EXPECT_THAT(step("\"a\"", 1).body, HasSubstr(R"("data":[8.0])"));
  const std::string last = step("1", 1, end).body;
  EXPECT_THAT(last, HasSubstr(R"("data":[12.0])"));
  EXPECT_THAT(last, testing::Not(HasSubstr("sum_out")));
  EXPECT_THAT(error(step("1", 1), 400), HasSubstr("must specify the START flag on the first request of the sequence"));
  EXPECT_THAT(error(infer("s", R"({"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]})"), 400),
              HasSubstr("must specify a non-zero or non-empty correlation ID"));
}

TEST_F(ModelsTest, RowsOfDifferentLengthsShareARaggedBatch) {
  add_model("r", "ragged", R"(
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }]
output [{ name: "total" data_type: TYPE_FP32 dims: [1] }, { name: "same" data_type: TYPE_FP32 dims: [-1] }]
batch_input [{ kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "x" }]
batch_output [{ kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "same" source_input: "x" }]
dynamic_batching { preferred_batch_size: [2] max_queue_delay_microseconds: 10000000 }
)");
  begin();
  std::string first;
  std::thread other([&] {
    auto client = connect();
    auto answer =
        client.request("POST", "/v2/models/r/infer",
                       R"({"id":"a","inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]})", {});
    ASSERT_TRUE(answer.is_ok());
    first = answer->body;
  });
  const auto second =
      infer("r", R"({"id":"b","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[10,20]}]})");
  other.join();
  EXPECT_THAT(first, HasSubstr(R"("data":[6.0])"));
  EXPECT_THAT(first, HasSubstr(R"("shape":[1,3],"data":[1.0,2.0,3.0])"));
  EXPECT_THAT(second.body, HasSubstr(R"("data":[30.0])"));
  EXPECT_THAT(second.body, HasSubstr(R"("shape":[1,2],"data":[10.0,20.0])"));
  EXPECT_EQ(device_->batches().size(), 1u);
}

}  // namespace
}  // namespace flywheel::server
