// SPDX-License-Identifier: Apache-2.0
// What config.pbtxt asks of the schedulers, as a client sees it over HTTP: sequences and their controls, priorities and
// queue policies, rate limits, warm-up, ragged batches, ensembles under pressure.
#include <algorithm>
#include <optional>

#include "server/server_test_data.h"

namespace flywheel::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kControls = R"(
input [{ name: "x" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "seen" data_type: TYPE_FP32 dims: [5] }]
sequence_batching {
  control_input [
    { name: "start" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] },
    { name: "end" control [{ kind: CONTROL_SEQUENCE_END int32_false_true: [2, 3] }] },
    { name: "ready" control [{ kind: CONTROL_SEQUENCE_READY int32_false_true: [0, 1] }] },
    { name: "id" control [{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 }] }])";

class SchedulingTest : public ServerTest {
 protected:
  void begin() {
    const Status status = start();
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
  // On a connection of its own; the answer is there when receive() returns.
  http::Client send(const std::string& model, const std::string& body) {
    http::Client client = connect();
    EXPECT_TRUE(client.send(http::format_request("POST", "/v2/models/" + model + "/infer", {}, body)).is_ok());
    return client;
  }
  static std::string rows(int count, const std::string& parameters = "", const std::string& name = "x") {
    std::string data;
    for (int i = 0; i < count * 4; ++i) data += (i == 0 ? "" : ",") + std::to_string(i);
    return R"({"parameters":{)" + parameters + R"(},"inputs":[{"name":")" + name + R"(","shape":[)" +
           std::to_string(count) + R"(,4],"datatype":"FP32","data":[)" + data + "]}]}";
  }
  static std::string step(int id, int x, const std::string& more = "") {
    return R"({"parameters":{"sequence_id":)" + std::to_string(id) + more +
           R"(},"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[)" + std::to_string(x) + "]}]}";
  }
  // Sends while nothing runs to its end, and waits until it is in the queue.
  http::Client queue(const std::string& model, const std::string& body) {
    const repository::ServedModelPtr served = *server_->models().find(model);
    const size_t before = served->queued_requests();
    http::Client client = send(model, body);
    EXPECT_TRUE(eventually([&] { return served->queued_requests() == before + 1; }));
    return client;
  }
  // A run that stays until the gate opens.
  http::Client occupy(const std::string& model) {
    device_->close_gate();
    const size_t runs = device_->batches().size();
    http::Client client = send(model, rows(1));
    EXPECT_TRUE(device_->wait_for_runs(runs + 1));
    return client;
  }
};

const std::string kStart = R"(,"sequence_start":true)", kEnd = R"(,"sequence_end":true)";

TEST_F(SchedulingTest, ControlsTellAModelWhereItsSequencesStand) {
  for (const std::string strategy : {"direct {} }", "oldest { max_candidate_sequences: 4 } }"}) {
    add_model("s", "controls", "max_batch_size: 4" + std::string(kControls) + strategy);
    begin();
    EXPECT_THAT(infer("s", step(7, 10, kStart)).body, HasSubstr(R"("data":[10.0,1.0,2.0,1.0,7.0])"));
    EXPECT_THAT(infer("s", step(7, 11)).body, HasSubstr(R"("data":[11.0,0.0,2.0,1.0,7.0])"));
    EXPECT_THAT(infer("s", step(7, 12, kEnd)).body, HasSubstr(R"("data":[12.0,0.0,3.0,1.0,7.0])"));
    EXPECT_THAT(infer("s", step(9, 13, kStart + kEnd)).body, HasSubstr(R"("data":[13.0,1.0,3.0,1.0,9.0])"));
  }
}

TEST_F(SchedulingTest, DirectSequencesKeepTheirRowAndOldestOnesDoNot) {
  for (const bool direct : {true, false}) {
    add_model("s", "controls", "max_batch_size: 4" + std::string(kControls) + (direct ? "direct {} }" : "oldest {} }"));
    begin();
    EXPECT_EQ(infer("s", step(1, 1, kStart)).status, 200);
    EXPECT_EQ(infer("s", step(2, 1, kStart)).status, 200);
    EXPECT_THAT(infer("s", step(2, 5)).body, HasSubstr(R"("shape":[1,5],"data":[5.0,0.0,2.0,1.0,2.0])"));
    // The first sequence's row goes along, without being ready.
    EXPECT_EQ(device_->batches().back(), direct ? 2 : 1);
  }
}

TEST_F(SchedulingTest, SequencesBeyondTheCandidatesWaitForTheEndOfAnother) {
  add_model("s", "controls",
            "max_batch_size: 4 " + std::string(kControls) +
                "max_sequence_idle_microseconds: 60000000 oldest { max_candidate_sequences: 1 } }");
  begin();
  EXPECT_EQ(infer("s", step(1, 1, kStart)).status, 200);
  http::Client second = queue("s", step(2, 5, kStart + kEnd));
  EXPECT_EQ(error(infer("s", step(3, 1, kStart + R"(,"timeout":1000)")), 503),
            "timeout of the corresponding sequence has been expired");
  EXPECT_EQ(infer("s", step(1, 2)).status, 200);
  EXPECT_EQ((*server_->models().find("s"))->queued_requests(), 1u);
  EXPECT_EQ(infer("s", step(1, 3, kEnd)).status, 200);
  EXPECT_THAT(second.receive()->body, HasSubstr(R"("data":[5.0,1.0,3.0,1.0,2.0])"));
}

TEST_F(SchedulingTest, ASilentSequenceHasEnded) {
  add_model("s", "controls",
            "max_batch_size: 4 " + std::string(kControls) + "max_sequence_idle_microseconds: 1000 direct {} }");
  begin();
  EXPECT_EQ(infer("s", step(1, 1, kStart)).status, 200);
  http::ClientResponse late;
  EXPECT_TRUE(eventually([&] {
    // Executing for a while, as other models do.
    device_->close_gate();
    http::Client client = send("s", step(1, 2));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    device_->open_gate();
    late = *client.receive();
    return late.status != 200;
  }));
  EXPECT_THAT(error(late, 400), HasSubstr("must specify the START flag on the first request of the sequence"));
}

TEST_F(SchedulingTest, PrioritiesGoFirstAndEachLevelHasItsPolicy) {
  add_model("m", "double", R"(max_batch_size: 2
dynamic_batching { preferred_batch_size: [2] priority_levels: 3 default_priority_level: 3
  priority_queue_policy { key: 1 value { max_queue_size: 1 } }
  priority_queue_policy { key: 2 value { default_timeout_microseconds: 1000 } } })");
  begin();
  http::Client running = occupy("m");
  http::Client low = queue("m", rows(1));
  http::Client high = queue("m", rows(2, R"("priority":1)"));
  EXPECT_THAT(error(infer("m", rows(1, R"("priority":1)")), 503), HasSubstr("Exceeds maximum queue size"));
  EXPECT_THAT(error(infer("m", rows(1, R"("priority":2)")), 503), HasSubstr("Request timeout expired"));
  http::Client other = queue("m", rows(2, R"("priority":9)"));  // beyond the levels: as low as the default
  device_->open_gate();
  for (http::Client* client : {&running, &low, &high, &other}) EXPECT_EQ(client->receive()->status, 200);
  EXPECT_THAT(device_->batches(), ElementsAre(1, 2, 1, 2));
  const std::string text = metrics();
  EXPECT_THAT(text, HasSubstr("nv_inference_request_failure{model=\"m\",version=\"1\",reason=\"REJECTED\"} 2"));
}

TEST_F(SchedulingTest, ExpiredRequestsThatAreDelayedRunLast) {
  add_model("m", "double", R"(max_batch_size: 2
dynamic_batching { preferred_batch_size: [2] default_queue_policy { timeout_action: DELAY
  default_timeout_microseconds: 60000000 allow_timeout_override: true } })");
  begin();
  http::Client running = occupy("m");
  http::Client expired = queue("m", rows(1, R"("timeout":1)"));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  http::Client punctual = queue("m", rows(2));
  device_->open_gate();
  for (http::Client* client : {&running, &expired, &punctual}) EXPECT_EQ(client->receive()->status, 200);
  EXPECT_THAT(device_->batches(), ElementsAre(1, 2, 1));
}

TEST_F(SchedulingTest, RateLimitedModelsShareAResource) {
  options_.rate_limits.enabled = true;
  options_.rate_limits.resources["R"] = 1;
  options_.execution_slots = 4;
  device_->delay_us = 200;
  const std::string group =
      R"(max_batch_size: 1 instance_group [{ count: 2 rate_limiter { resources [{ name: "R" count: 1 }] } }])";
  add_model("a", "double", group);
  add_model("b", "double", group);
  begin();
  for (int round = 0; round < 20; ++round) {
    std::vector<http::Client> clients;
    for (const char* model : {"a", "b", "a", "b"}) clients.push_back(send(model, rows(1)));
    for (http::Client& client : clients) EXPECT_EQ(client.receive()->status, 200);
  }
  EXPECT_EQ(device_->batches().size(), 80u);
  EXPECT_EQ(device_->most_running(), 1);
}

TEST_F(SchedulingTest, RatePrioritiesAreTurnsInProportion) {
  options_.rate_limits.enabled = true;
  options_.rate_limits.resources["R"] = 1;
  const auto group = [](int priority) {
    return R"(max_batch_size: 4 instance_group [{ count: 2 rate_limiter { resources [{ name: "R" count: 1 }] priority: )" +
           std::to_string(priority) + " } }] dynamic_batching { preferred_batch_size: [1] }";
  };
  // Long enough that the other instance waits for its turn before this one's ends.
  device_->delay_us = 5000;
  // Told apart by their rows.
  add_model("often", "double", group(1));
  add_model("seldom", "double", group(3));
  begin();
  http::Client running = occupy("often");
  std::vector<http::Client> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(send("often", rows(4)));
    clients.push_back(send("seldom", rows(3)));
  }
  EXPECT_TRUE(eventually([&] {
    return (*server_->models().find("often"))->queued_requests() >= 6 &&
           (*server_->models().find("seldom"))->queued_requests() >= 6;
  }));
  device_->open_gate();
  EXPECT_EQ(running.receive()->status, 200);
  for (http::Client& client : clients) EXPECT_EQ(client.receive()->status, 200);
  // While both had something waiting: three turns for one.
  const std::vector<int64_t> batches = device_->batches();
  ASSERT_EQ(batches.size(), 17u);
  const auto seldom = std::count(batches.begin() + 1, batches.begin() + 9, 3);
  EXPECT_GE(seldom, 1) << testing::PrintToString(batches);
  EXPECT_LE(seldom, 3) << testing::PrintToString(batches);
}

TEST_F(SchedulingTest, WarmUpRunsBeforeTheModelIsReadyAndIsNotCounted) {
  folder_.write("m/warmup/ones", bytes_of<float>({1, 1, 1, 1}));
  add_model("m", "double", R"(max_batch_size: 4
model_warmup [
  { name: "random" batch_size: 3 count: 2 inputs { key: "x" value { data_type: TYPE_FP32 dims: [4] random_data: true } } },
  { name: "file" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: [4] input_data_file: "ones" } } }])");
  begin();
  EXPECT_THAT(device_->batches(), ElementsAre(3, 3, 1));
  EXPECT_THAT(get("/v2/models/m/stats").body, HasSubstr(R"("inference_count":0,"execution_count":0)"));
  EXPECT_THAT(infer("m", rows(1)).body, HasSubstr(R"("data":[0.0,2.0,4.0,6.0])"));
}

TEST_F(SchedulingTest, AWarmUpThatFailsFailsTheLoad) {
  folder_.write("m/warmup/far", bytes_of<int32_t>({99}));
  const std::string config = R"(max_batch_size: 4 model_warmup [{ name: "w" batch_size: 1
  inputs { key: "i" value { data_type: TYPE_INT32 dims: [1] input_data_file: "FILE" } } }])";
  const auto with = [&](const std::string& file) {
    std::string text = config;
    return text.replace(text.find("FILE"), 4, file);
  };
  add_model("m", "index", with("far"));
  EXPECT_THAT(start().message(), HasSubstr("an index is out of range"));
  add_model("m", "index", with("absent"));
  EXPECT_THAT(start().message(), HasSubstr("absent"));
}

TEST_F(SchedulingTest, RaggedBatchesComeWithAllKindsOfLengths) {
  const auto computed = [](const std::string& kind, const std::string& target, const std::string& type) {
    return "batch_input [{ kind: BATCH_" + kind + " target_name: \"" + target + "\" data_type: TYPE_" + type +
           " source_input: \"x\" }]\n";
  };
  add_model("r", "lengths",
            R"(max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }]
output [{ name: "total" data_type: TYPE_FP32 dims: [7] }]
dynamic_batching { preferred_batch_size: [8] }
)" + computed("ACCUMULATED_ELEMENT_COUNT", "ends", "INT32") +
                computed("ELEMENT_COUNT", "count", "INT32") +
                computed("ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", "bounds", "FP32") +
                computed("MAX_ELEMENT_COUNT_AS_SHAPE", "longest", "INT32") + computed("ITEM_SHAPE", "shapes", "INT32") +
                computed("ITEM_SHAPE_FLATTEN", "flat", "INT32"));
  begin();
  const auto row = [](int length) {
    std::string data;
    for (int i = 0; i < length; ++i) data += (i == 0 ? "" : ",") + std::to_string(i);
    return R"({"inputs":[{"name":"x","shape":[1,)" + std::to_string(length) + R"(],"datatype":"FP32","data":[)" + data +
           "]}]}";
  };
  device_->close_gate();
  http::Client alone = send("r", row(4));
  ASSERT_TRUE(device_->wait_for_runs(1));
  http::Client three = queue("r", row(3));
  http::Client five = queue("r", row(5));
  device_->open_gate();
  //                                                          ends count bounds  longest shape flat
  EXPECT_THAT(alone.receive()->body, HasSubstr(R"("data":[4.0,4.0,0.0,4.0,4.0,4.0,4.0])"));
  EXPECT_THAT(three.receive()->body, HasSubstr(R"("data":[3.0,3.0,0.0,3.0,5.0,3.0,3.0])"));
  EXPECT_THAT(five.receive()->body, HasSubstr(R"("data":[8.0,5.0,3.0,8.0,5.0,5.0,5.0])"));
  EXPECT_THAT(device_->batches(), ElementsAre(4, 8));
}

class EnsembleTest : public SchedulingTest {
 protected:
  void add_chain(const std::string& model_config) {
    options_.execution_slots = 4;
    add_model("first", "double", "max_batch_size: 4");
    add_model("second", "double", model_config);
    folder_.write("e/config.pbtxt", R"(platform: "ensemble" max_batch_size: 2
input [{ name: "IN" data_type: TYPE_FP32 dims: [4] }] output [{ name: "OUT" data_type: TYPE_FP32 dims: [4] }]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1 input_map { key: "x" value: "IN" } output_map { key: "y" value: "mid" } },
  { model_name: "second" model_version: -1 input_map { key: "x" value: "mid" } output_map { key: "y" value: "OUT" } } ] })");
    folder_.write("e/1/.keep", "");
  }
  // With two rows, which stay until the gate opens; those of single rows pass through it.
  void keep_second_busy() {
    device_->close_gate(2);
    busy_ = send("second", rows(2));
    EXPECT_TRUE(device_->wait_for_runs(1));
  }
  std::optional<http::Client> busy_;
  static std::string in(const std::string& parameters = "") { return rows(1, parameters, "IN"); }
};

TEST_F(EnsembleTest, AFullStepRefusesWhatTheOthersHaveDone) {
  add_chain("max_batch_size: 2 dynamic_batching { default_queue_policy { max_queue_size: 2 } }");
  begin();
  keep_second_busy();
  http::Client one = queue("second", rows(2)), two = queue("second", rows(2));
  EXPECT_EQ(error(infer("e", in()), 503), "in ensemble 'e', [request id: <id_unknown>] Exceeds maximum queue size");
  device_->open_gate();
  for (http::Client* client : {&*busy_, &one, &two}) EXPECT_EQ(client->receive()->status, 200);
  EXPECT_THAT(infer("e", in()).body, HasSubstr(R"("data":[0.0,4.0,8.0,12.0])"));
  EXPECT_THAT(get("/v2/models/e/stats").body, HasSubstr(R"("success":{"count":1,)"));
  EXPECT_THAT(get("/v2/models/e/stats").body, HasSubstr(R"("fail":{"count":1,)"));
  EXPECT_THAT(get("/v2/models/first/stats").body, HasSubstr(R"("success":{"count":2,)"));
  EXPECT_THAT(get("/v2/models/second/stats").body, HasSubstr(R"("success":{"count":4,)"));
  EXPECT_THAT(get("/v2/models/second/stats").body, HasSubstr(R"("fail":{"count":1,)"));
}

TEST_F(EnsembleTest, AClientThatLeavesTakesItsStepsAlong) {
  add_chain("max_batch_size: 2");
  begin();
  keep_second_busy();
  send("e", in()).close();
  http::Client waiting = queue("second", rows(2));
  http::Client leaving = send("e", in());
  const repository::ServedModelPtr second = *server_->models().find("second");
  ASSERT_TRUE(eventually([&] { return second->queued_requests() == 2; }));
  leaving.close();
  EXPECT_TRUE(eventually([&] { return second->queued_requests() == 1; }));
  device_->open_gate();
  EXPECT_EQ(busy_->receive()->status, 200);
  EXPECT_EQ(waiting.receive()->status, 200);
  const auto failures = (*server_->models().find("e"))->statistics().snapshot().failures;
  EXPECT_GE(failures[static_cast<size_t>(schedule::FailureReason::kCanceled)], 1u);
  EXPECT_EQ(second->statistics().snapshot().success.count, 2u);
}

TEST_F(EnsembleTest, ATimeoutHoldsForTheStepsQueues) {
  add_chain(
      "max_batch_size: 2 dynamic_batching { default_queue_policy { default_timeout_microseconds: 60000000 "
      "allow_timeout_override: true } }");
  begin();
  keep_second_busy();
  EXPECT_EQ(error(infer("e", in(R"("timeout":1000)")), 503), "in ensemble 'e', Request timeout expired");
  EXPECT_EQ((*server_->models().find("second"))->queued_requests(), 0u);
}

}  // namespace
}  // namespace flywheel::server
