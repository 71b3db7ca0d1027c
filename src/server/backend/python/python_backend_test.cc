// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <atomic>

#include "server/backend/python/python_test_data.h"

namespace flywheel::python {
namespace {

using config::DataType;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kOneInOneOut =
    "input { name: \"x\" data_type: TYPE_FP32 dims: [-1] } output { name: \"y\" data_type: TYPE_FP32 dims: [-1] } ";

constexpr const char* kDouble = R"py(
class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        config = json.loads(args["model_config"])
        self.type = pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(config, "y")["data_type"])

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", (2 * x).astype(self.type))]))
        return responses
)py";

TEST_F(PythonTest, AnswersSmallAndLargeRequests) {
  ASSERT_EQ(load(kOneInOneOut, kDouble).to_string(), "OK");
  const std::vector<float> small = {1, 2, -3};
  std::vector<float> large(1 << 20);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  for (int round = 0; round < 5; ++round) {
    schedule::InferResponse response = infer(make_request({view("x", DataType::kFp32, {3}, small)}));
    ASSERT_EQ(response.status.to_string(), "OK");
    ASSERT_EQ(response.outputs.size(), 1u);
    EXPECT_EQ(response.outputs[0].name, "y");
    EXPECT_THAT(response.outputs[0].shape, ElementsAre(3));
    EXPECT_THAT(values<float>(response.outputs[0]), ElementsAre(2, 4, -6));
    response = infer(make_request({view("x", DataType::kFp32, {1 << 20}, large)}));
    ASSERT_EQ(response.status.to_string(), "OK");
    const std::vector<float> doubled = values<float>(response.outputs[0]);
    ASSERT_EQ(doubled.size(), large.size());
    for (size_t i = 0; i < large.size(); ++i) ASSERT_EQ(doubled[i], 2 * large[i]);
  }
  const schedule::InferResponse none = infer(make_request({view("x", DataType::kFp32, {0}, std::vector<float>())}));
  ASSERT_EQ(none.status.to_string(), "OK");
  EXPECT_THAT(none.outputs[0].shape, ElementsAre(0));
}

TEST_F(PythonTest, ResponsesOutliveTheProcess) {
  ASSERT_EQ(load(kOneInOneOut, kDouble).to_string(), "OK");
  const std::vector<float> large(1 << 18, 4);
  const schedule::InferResponse response = infer(make_request({view("x", DataType::kFp32, {1 << 18}, large)}));
  runner_.reset();
  const std::vector<float> doubled = values<float>(response.outputs[0]);
  EXPECT_EQ(doubled.back(), 8);
}

constexpr const char* kEcho = R"py(
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y_" + t.name()[2:], t.as_numpy()) if t.triton_dtype() != 14 else
                                            pb_utils.Tensor.from_dlpack("y_" + t.name()[2:], t.to_dlpack()) for t in r.inputs()])
                for r in requests]
)py";

TEST_F(PythonTest, EveryTypeGoesThrough) {
  std::string text;
  for (int type = 1; type <= 14; ++type) {
    const std::string name(config::config_name(static_cast<DataType>(type)));
    text += "input { name: \"x_" + name + "\" data_type: " + name + " dims: [2] } ";
    text += "output { name: \"y_" + name + "\" data_type: " + name + " dims: [2] } ";
  }
  ASSERT_EQ(load(text, kEcho).to_string(), "OK");
  std::vector<std::vector<uint8_t>> data;
  std::vector<schedule::InputView> inputs;
  for (int type = 1; type <= 14; ++type) {
    std::vector<uint8_t> bytes(2 * config::element_bytes(static_cast<DataType>(type)));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = type == 1 ? i % 2 : static_cast<uint8_t>(i + 1);
    if (type == 13) bytes = {3, 0, 0, 0, 'a', 0, 0xff, 0, 0, 0, 0};
    data.push_back(std::move(bytes));
  }
  for (int type = 1; type <= 14; ++type) {
    const auto data_type = static_cast<DataType>(type);
    inputs.push_back(
        view("x_" + std::string(config::config_name(data_type)), data_type, {2}, data[static_cast<size_t>(type - 1)]));
  }
  const schedule::InferResponse response = infer(make_request(inputs));
  ASSERT_EQ(response.status.to_string(), "OK");
  ASSERT_EQ(response.outputs.size(), 14u);
  for (size_t i = 0; i < 14; ++i) {
    EXPECT_EQ(response.outputs[i].data_type, inputs[i].data_type);
    EXPECT_THAT(response.outputs[i].shape, ElementsAre(2));
    EXPECT_EQ(values<uint8_t>(response.outputs[i]), data[i]) << response.outputs[i].name;
  }
}

TEST_F(PythonTest, RequestsSayWhatTheClientSaid) {
  ASSERT_EQ(load(kOneInOneOut, R"py(
class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        del args["model_config"]

    def execute(self, requests):
        r, = requests
        said = [r.request_id(), r.correlation_id(), r.flags(), r.priority(), r.timeout(), json.loads(r.parameters()),
                r.requested_output_names(), self.args["model_instance_name"], self.args["model_version"], r.is_cancelled()]
        pb_utils.Logger.log_info("an event")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros(1, np.float32))], parameters={"said": json.dumps(said), "n": 7})]
)py")
                .to_string(),
            "OK");
  schedule::RequestPtr request = make_request({view("x", DataType::kFp32, {1}, std::vector<float>{1})});
  request->id = "a \"quoted\" \xff id";
  request->sequence.id = uint64_t{18446744073709551615u};
  request->sequence.end = true;
  request->priority = 3;
  request->timeout_us = 5'000'000;
  request->parameters = {{"flag", true}, {"half", 0.5}, {"many", int64_t{1} << 62}, {"text", std::string("t")}};
  const schedule::InferResponse response = infer(request);
  ASSERT_EQ(response.status.to_string(), "OK");
  EXPECT_EQ(std::get<std::string>(response.parameters.at("said")),
            R"(["a \"quoted\" \ufffd id", 18446744073709551615, 2, 3, 5000000, {"flag": true, "half": 0.5, "many": )"
            R"(4611686018427387904, "text": "t"}, ["y"], "m_0", "1", false])");
  EXPECT_EQ(std::get<int64_t>(response.parameters.at("n")), 7);
}

constexpr const char* kUnruly = R"py(
import os
import time

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            what = int(x[0])
            if what == 1:
                1 // 0
            if what == 2:
                os._exit(3)
            if what == 3:
                os.kill(os.getpid(), 11)
            if what == 4:
                time.sleep(3600)
            if what == 5:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("no such thing", pb_utils.TritonError.NOT_FOUND)))
                continue
            if what == 6:
                return responses
            if what == 7:
                os.close(3)
                time.sleep(3600)
            if what == 8 and os.fork() == 0:
                time.sleep(3600)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array([os.getpid()], np.float32))]))
        return responses
)py";

TEST_F(PythonTest, FailuresAreThoseOfTheirRequestsAlone) {
  ASSERT_EQ(
      load(std::string(kOneInOneOut) + "parameters { key: \"EXECUTION_TIMEOUT_MS\" value { string_value: \"2000\" } }",
           kUnruly)
          .to_string(),
      "OK");
  auto ask = [&](float what) {
    return infer(make_request({view("x", DataType::kFp32, {1}, std::vector<float>{what})}));
  };
  float pid = values<float>(ask(0).outputs.at(0))[0];
  schedule::InferResponse response = ask(1);
  EXPECT_EQ(response.status.code(), Code::kInternal);
  EXPECT_THAT(response.status.message(),
              HasSubstr("Failed to process the request(s) for model instance 'm_0', message: ZeroDivisionError: "));
  EXPECT_THAT(response.status.message(), HasSubstr("/1/model.py(15): execute"));
  response = ask(5);
  EXPECT_EQ(response.status.code(), Code::kNotFound);
  EXPECT_EQ(response.status.message(), "no such thing");
  EXPECT_THAT(ask(6).status.message(), HasSubstr("InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0"));
  EXPECT_EQ(values<float>(ask(0).outputs.at(0))[0], pid);
  for (const auto& [what, reason] : {std::pair(2.0f, "its Python process exited with status 3"),
                                     std::pair(3.0f, "its Python process was ended by signal 11"),
                                     std::pair(7.0f, "its Python process closed its connection")}) {
    EXPECT_THAT(ask(what).status.message(), HasSubstr(reason));
    // While it starts, requests wait; when it has died twice in a row, for a moment they are refused.
    for (response = ask(0); !response.status.is_ok(); response = ask(0))
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_NE(values<float>(response.outputs.at(0))[0], pid);
    pid = values<float>(response.outputs.at(0))[0];
  }
  EXPECT_THAT(ask(4).status.message(), HasSubstr("did not finish a batch within 2000 ms"));
  for (response = ask(0); !response.status.is_ok(); response = ask(0))
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_NE(values<float>(response.outputs.at(0))[0], pid);
}

TEST_F(PythonTest, NothingIsLeftOfAProcess) {
  ASSERT_EQ(load(kOneInOneOut, kUnruly).to_string(), "OK");
  const schedule::InferResponse response =
      infer(make_request({view("x", DataType::kFp32, {1}, std::vector<float>{8})}));
  ASSERT_EQ(response.status.to_string(), "OK");
  const pid_t pid = static_cast<pid_t>(values<float>(response.outputs.at(0))[0]);
  EXPECT_EQ(::kill(-pid, 0), 0);
  runner_.reset();
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(PythonTest, LoadingSaysWhatIsWrong) {
  EXPECT_THAT(load(kOneInOneOut,
                   "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('bad "
                   "weights')\n    def execute(self, r):\n        pass\n")
                  .to_string(),
              testing::AllOf(HasSubstr("ValueError: bad weights"), HasSubstr("/1/model.py(6): initialize")));
  EXPECT_THAT(load(kOneInOneOut, "import no_such_module\n").to_string(), HasSubstr("No module named 'no_such_module'"));
  EXPECT_THAT(load(kOneInOneOut, "def f(:\n").to_string(), HasSubstr("SyntaxError"));
  EXPECT_THAT(load(kOneInOneOut, "import os\nos._exit(4)\n").to_string(), HasSubstr("exited with status 4"));
  EXPECT_THAT(load(kOneInOneOut, "x = 1\n").to_string(), HasSubstr("has no class TritonPythonModel"));
  EXPECT_THAT(load(std::string(kOneInOneOut) +
                       "parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \"/nowhere\" } }",
                   kDouble)
                  .to_string(),
              HasSubstr("'/nowhere/bin/python3' is not there"));
}

TEST_F(PythonTest, ModelsCompleteTheirConfiguration) {
  ASSERT_EQ(load("", R"py(
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        n = np.array([[len(requests)]], np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", n)]) for _ in requests]
)py")
                .to_string(),
            "OK");
  EXPECT_EQ(config_.max_batch_size, 4);
  EXPECT_TRUE(config_.dynamic_batching.has_value());
  EXPECT_EQ(config_.inputs.at(0).name, "x");
  EXPECT_EQ(config_.backend, "python");
  EXPECT_EQ(config_.default_model_filename, "model.py");
  const schedule::InferResponse response =
      infer(make_request({view("x", DataType::kFp32, {1, 1}, std::vector<float>{1})}));
  ASSERT_EQ(response.status.to_string(), "OK");
  EXPECT_THAT(values<float>(response.outputs.at(0)), ElementsAre(1));
}

TEST_F(PythonTest, OtherModelsAreCalled) {
  std::atomic<int> calls{0};
  options_.caller = [&](std::string_view model, int64_t version, schedule::RequestPtr request) {
    ++calls;
    if (model != "other") {
      request->respond({.status = not_found("no such model")});
      return;
    }
    EXPECT_EQ(version, -1);
    schedule::InferResponse response;
    for (const schedule::InputView& input : request->inputs)
      response.outputs.push_back({"out", input.data_type, input.shape, input.bytes, request->input_owner});
    std::thread([request, response]() mutable { request->respond(std::move(response)); }).detach();
  };
  options_.is_ready = [](const std::string& model, int64_t) { return model == "other"; };
  ASSERT_EQ(load(kOneInOneOut, R"py(
import asyncio

def ask(model, x):
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["out"], inputs=[pb_utils.Tensor("in", x)])

class TritonPythonModel:
    async def execute(self, requests):
        r, = requests
        x = pb_utils.get_input_tensor_by_name(r, "x").as_numpy()
        assert pb_utils.is_model_ready("other") and not pb_utils.is_model_ready("none")
        y = pb_utils.get_output_tensor_by_name(ask("other", x).exec(), "out").as_numpy()
        answers = await asyncio.gather(*[ask("other", x + i).async_exec() for i in range(8)])
        y = y + sum(pb_utils.get_output_tensor_by_name(a, "out").as_numpy() for a in answers)
        failed = ask("none", x).exec()
        assert failed.has_error() and failed.error().code() == pb_utils.TritonError.NOT_FOUND
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", y)], parameters={"error": failed.error().message()})]
)py")
                .to_string(),
            "OK");
  for (const size_t count : {size_t{2}, size_t{100'000}}) {
    const std::vector<float> x(count, 1);
    const schedule::InferResponse response =
        infer(make_request({view("x", DataType::kFp32, {static_cast<int64_t>(count)}, x)}));
    ASSERT_EQ(response.status.to_string(), "OK");
    EXPECT_EQ(values<float>(response.outputs.at(0)), std::vector<float>(count, 1 + 8 + 28));
    EXPECT_EQ(std::get<std::string>(response.parameters.at("error")), "no such model");
  }
  EXPECT_EQ(calls.load(), 20);
}

constexpr const char* kDecoupled = R"py(
import threading
import time

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            threading.Thread(target=self.answer, args=(request.get_response_sender(), int(x[0]), x), daemon=True).start()
        return None

    def answer(self, sender, count, x):
        if count < 0:
            while not sender.is_cancelled():
                time.sleep(0.01)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        for i in range(count):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x + i)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
)py";

TEST_F(PythonTest, DecoupledModelsGiveAnyNumberOfResponses) {
  ASSERT_EQ(load(std::string(kOneInOneOut) + "model_transaction_policy { decoupled: true }", kDecoupled).to_string(),
            "OK");
  for (const size_t size : {size_t{1}, size_t{50'000}}) {
    std::vector<std::shared_ptr<Answers>> answers;
    const std::vector<int> counts = {0, 1, 3, 20};
    std::vector<std::vector<float>> data;
    for (int count : counts) data.emplace_back(size, static_cast<float>(count));
    for (const std::vector<float>& x : data)
      answers.push_back(start(make_request({view("x", DataType::kFp32, {static_cast<int64_t>(size)}, x)})));
    for (size_t i = 0; i < counts.size(); ++i) {
      const std::vector<schedule::InferResponse> responses = answers[i]->wait();
      ASSERT_EQ(responses.size(), static_cast<size_t>(counts[i]) + 1);
      for (size_t j = 0; j + 1 < responses.size(); ++j) {
        ASSERT_EQ(responses[j].status.to_string(), "OK");
        EXPECT_FALSE(responses[j].final);
        EXPECT_EQ(values<float>(responses[j].outputs.at(0)).back(), data[i][0] + static_cast<float>(j));
      }
      EXPECT_TRUE(responses.back().outputs.empty());
    }
  }
  EXPECT_EQ(runner_->statistics()->snapshot().success.count, 8u);
  // Cancelled while it answers, as the model notices.
  const std::vector<float> endless = {-1};
  schedule::RequestPtr request = make_request({view("x", DataType::kFp32, {1}, endless)});
  auto answers = start(request);
  auto wait_for_executed = [&](uint64_t count) {
    for (int i = 0; i < 10'000 && runner_->statistics()->snapshot().success.count < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  wait_for_executed(9);
  request->cancel();
  EXPECT_EQ(answers->wait().size(), 1u);
  // What is not answered when the model stops.
  request = make_request({view("x", DataType::kFp32, {1}, endless)});
  answers = start(request);
  wait_for_executed(10);
  runner_->stop(100'000'000);
  EXPECT_EQ(answers->wait().back().status.code(), Code::kUnavailable);
}

}  // namespace
}  // namespace flywheel::python
