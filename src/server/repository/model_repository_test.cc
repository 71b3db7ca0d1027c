// SPDX-License-Identifier: Apache-2.0
#include "server/repository/model_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "base/temporary_folder_test_data.h"
#include "server/backend/engine/fake_engine.h"

namespace flywheel::repository {
namespace {

using config::DataType;
using testing::ElementsAre;
using testing::HasSubstr;

class ModelRepositoryTest : public testing::Test {
 protected:
  ModelRepositoryTest() {
    options_.paths = {folder_.path()};
    options_.loader.engines.load = engines::fake_loader(device_);
    options_.cores = 2;
  }
  ~ModelRepositoryTest() override {
    device_->open_gate();
    repository_.reset();
    EXPECT_EQ(device_->live_contexts, 0);
  }
  Status start() {
    repository_ = std::make_unique<ModelRepository>(options_);
    repository_->start();
    return repository_->wait_until_started();
  }
  Status load(const std::string& name, std::optional<std::string> config = std::nullopt,
              std::map<std::string, std::string> files = {}) {
    std::promise<Status> done;
    repository_->load(name, {std::move(config), std::move(files)},
                      [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
  Status unload(const std::string& name) {
    std::promise<Status> done;
    repository_->unload(name, [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
  std::string index_text() {
    std::string text;
    for (const IndexRow& row : repository_->index(false)) {
      text += row.name + ":" + std::to_string(row.version) + " " + std::string(model_state_name(row.state)) +
              (row.reason.empty() ? "" : " (" + row.reason + ")") + "\n";
    }
    return text;
  }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  // Sends {1,2,3,4} to a "double" model.
  std::future<schedule::InferResponse> infer(const ServedModelPtr& model) {
    static const std::vector<float> kInput = {1, 2, 3, 4};
    auto request = std::make_shared<schedule::InferRequest>();
    request->inputs.push_back({"x", DataType::kFp32, {1, 4}, std::as_bytes(std::span(kInput))});
    auto promise = std::make_shared<std::promise<schedule::InferResponse>>();
    EXPECT_TRUE(model->prepare(*request).is_ok());
    // As the protocols do: the request keeps the model.
    request->on_response = [promise, model](schedule::InferRequest&, schedule::InferResponse response) {
      promise->set_value(std::move(response));
    };
    model->infer(std::move(request));
    return promise->get_future();
  }

  TemporaryFolder folder_;
  std::shared_ptr<engines::FakeDevice> device_ = std::make_shared<engines::FakeDevice>();
  RepositoryOptions options_;
  std::unique_ptr<ModelRepository> repository_;
};

TEST_F(ModelRepositoryTest, ServesTheLatestVersionAndIgnoresOtherFolders) {
  folder_.write("m/1/model.engine", "bad");
  folder_.write("m/2/model.engine", "double");
  folder_.write("m/03/model.engine", "bad");
  folder_.write("m/x4/model.engine", "bad");
  folder_.write("m/0/model.engine", "bad");
  folder_.write("m/warmup/data", "");
  folder_.write(".hidden/1/model.engine", "bad");
  ASSERT_TRUE(start().is_ok());
  EXPECT_TRUE(repository_->is_ready());
  EXPECT_EQ(index_text(), "m:2 READY\n");
  auto model = repository_->find("m");
  ASSERT_TRUE(model.is_ok());
  EXPECT_EQ((*model)->version(), 2);
  EXPECT_EQ((*model)->config().max_batch_size, 8);
  EXPECT_EQ((*model)->config().default_model_filename, "model.engine");
  EXPECT_GT((*model)->load_seconds(), 0);
  EXPECT_TRUE(infer(*model).get().status.is_ok());
}

TEST_F(ModelRepositoryTest, FollowsTheVersionPolicy) {
  for (const char* version : {"1", "2", "3"}) folder_.write(std::string("m/") + version + "/model.engine", "double");
  folder_.write("m/config.pbtxt", "version_policy { specific { versions: [1, 3] } }");
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(index_text(), "m:1 READY\nm:3 READY\n");
  EXPECT_EQ((*repository_->find("m"))->version(), 3);
  EXPECT_EQ((*repository_->find("m", 1))->version(), 1);
  EXPECT_EQ(repository_->find("m", 2).status().message(), "Request for unknown model: 'm' version 2 is not found");
  EXPECT_EQ(repository_->find("n").status().message(), "Request for unknown model: 'n' is not found");
  EXPECT_EQ(repository_->find("n").status().code(), Code::kNotFound);
}

TEST_F(ModelRepositoryTest, SaysOfEachModelWhyItDidNotLoad) {
  folder_.write("good/1/model.engine", "double");
  folder_.write("corrupt/1/model.engine", "nonsense");
  folder_.write("empty/1/readme", "");
  folder_.write("noversion/readme", "");
  folder_.write("syntax/1/model.engine", "double");
  folder_.write("syntax/config.pbtxt", "max_batch_size: eight");
  const Status status = start();
  ASSERT_FALSE(status.is_ok());
  EXPECT_THAT(status.message(), HasSubstr("failed to load all models"));
  EXPECT_THAT(status.message(), HasSubstr("is not an engine"));
  EXPECT_FALSE(repository_->is_ready());
  const std::string index = index_text();
  EXPECT_THAT(index, HasSubstr("good:1 READY\n"));
  EXPECT_THAT(index, HasSubstr("corrupt:1 UNAVAILABLE (Internal: '"));
  EXPECT_THAT(index, HasSubstr("empty:1 UNAVAILABLE (Not found: "));
  EXPECT_THAT(index, HasSubstr("noversion:-1 UNAVAILABLE (Invalid argument: at least one version must be available"));
  EXPECT_THAT(index, HasSubstr("syntax:-1 UNAVAILABLE (Invalid argument: "));
  EXPECT_THAT(index, HasSubstr("config.pbtxt"));
  EXPECT_EQ(repository_->find("corrupt", 1).status().code(), Code::kUnavailable);
  EXPECT_EQ(repository_->find("corrupt").status().message(),
            "Request for unknown model: 'corrupt' has no available versions");
  EXPECT_TRUE(repository_->find("good").is_ok());
  repository_.reset();
  options_.strict_readiness = false;
  EXPECT_FALSE(start().is_ok());
  EXPECT_TRUE(repository_->is_ready());
}

TEST_F(ModelRepositoryTest, ReadsSeveralRepositoriesAndRefusesDuplicates) {
  TemporaryFolder other;
  folder_.write("a/1/model.engine", "double");
  folder_.write("both/1/model.engine", "double");
  other.write("b/1/model.engine", "double");
  other.write("both/1/model.engine", "double");
  options_.paths.push_back(other.path());
  EXPECT_FALSE(start().is_ok());
  EXPECT_EQ(
      index_text(),
      "a:1 READY\nb:1 READY\nboth:-1 UNAVAILABLE (Invalid argument: model appears in two or more repositories)\n");
  repository_.reset();
  options_.paths = {"/nonexistent/models"};
  EXPECT_THAT(start().message(), HasSubstr("'/nonexistent/models'"));
  EXPECT_FALSE(repository_->is_ready());
}

TEST_F(ModelRepositoryTest, RefusesControlWithoutExplicitMode) {
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(load("m").message(), "explicit model load / unload is not allowed if polling is enabled");
  EXPECT_EQ(unload("m").code(), Code::kUnavailable);
}

TEST_F(ModelRepositoryTest, LoadsAndUnloadsByRequest) {
  options_.control_mode = ControlMode::kExplicit;
  options_.load_at_start = {"a"};
  folder_.write("a/1/model.engine", "double");
  folder_.write("b/1/model.engine", "double");
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(index_text(), "a:1 READY\nb:-1 UNKNOWN\n");
  EXPECT_EQ(repository_->find("b").status().message(), "Request for unknown model: 'b' is not found");
  EXPECT_TRUE(load("b").is_ok());
  EXPECT_TRUE(infer(*repository_->find("b")).get().status.is_ok());
  EXPECT_TRUE(load("b", R"({"max_batch_size": 4})").is_ok());
  EXPECT_EQ((*repository_->find("b"))->config().max_batch_size, 4);
  device_->close_gate();
  auto last = infer(*repository_->find("b"));
  EXPECT_TRUE(unload("b").is_ok());
  EXPECT_EQ(index_text(), "a:1 READY\nb:1 UNLOADING\n");
  EXPECT_TRUE(repository_->is_ready()) << "what goes on request is no reason to send others away";
  device_->open_gate();
  EXPECT_TRUE(last.get().status.is_ok());
  EXPECT_TRUE(eventually([&] { return index_text() == "a:1 READY\nb:1 UNAVAILABLE (unloaded)\n"; })) << index_text();
  EXPECT_TRUE(repository_->is_ready());
  EXPECT_EQ(unload("nothing").code(), Code::kNotFound);
  EXPECT_THAT(load("nothing").message(), HasSubstr("failed to load 'nothing'"));
  EXPECT_THAT(load("../a").message(), HasSubstr("'../a' is no model name"));
}

TEST_F(ModelRepositoryTest, KeepsTheOldVersionWhenTheNewOneFails) {
  options_.control_mode = ControlMode::kExplicit;
  options_.load_at_start = {"*"};
  folder_.write("m/1/model.engine", "double");
  folder_.write("m/config.pbtxt", "version_policy { latest { num_versions: 1 } }");
  ASSERT_TRUE(start().is_ok());
  folder_.write("m/2/model.engine", "nonsense");
  const Status status = load("m");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("load failed for model 'm': version 2 is at UNAVAILABLE state: Internal: "));
  EXPECT_EQ((*repository_->find("m"))->version(), 1);
  EXPECT_FALSE(repository_->is_ready());
  folder_.write("m/2/model.engine", "double");
  EXPECT_TRUE(load("m").is_ok());
  EXPECT_EQ((*repository_->find("m"))->version(), 2);
  EXPECT_TRUE(eventually([&] { return index_text() == "m:1 UNAVAILABLE (unloaded)\nm:2 READY\n"; })) << index_text();
}

TEST_F(ModelRepositoryTest, SwapsWithoutLosingWhatTheOldOneHasAccepted) {
  options_.control_mode = ControlMode::kExplicit;
  options_.load_at_start = {"*"};
  folder_.write("m/1/model.engine", "double");
  ASSERT_TRUE(start().is_ok());
  device_->close_gate();
  std::vector<std::future<schedule::InferResponse>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(infer(*repository_->find("m")));
  ASSERT_TRUE(device_->wait_for_runs(1));
  EXPECT_TRUE(load("m").is_ok());  // while the old one is still busy
  for (int i = 0; i < 5; ++i) answers.push_back(infer(*repository_->find("m")));
  EXPECT_TRUE(unload("m").is_ok());
  EXPECT_EQ(index_text(), "m:1 UNLOADING\n");
  device_->open_gate();
  for (auto& answer : answers) EXPECT_TRUE(answer.get().status.is_ok());
  EXPECT_TRUE(eventually([&] { return index_text() == "m:1 UNAVAILABLE (unloaded)\n"; }));
}

TEST_F(ModelRepositoryTest, StopAnswersEverything) {
  folder_.write("m/1/model.engine", "double");
  folder_.write("m/config.pbtxt",
                "dynamic_batching { max_queue_delay_microseconds: 60000000 preferred_batch_size: 8 }");
  ASSERT_TRUE(start().is_ok());
  const ServedModelPtr model = *repository_->find("m");
  std::vector<std::future<schedule::InferResponse>> answers;
  for (int i = 0; i < 3; ++i) answers.push_back(infer(model));
  repository_->stop(10'000'000'000);
  for (auto& answer : answers) EXPECT_TRUE(answer.get().status.is_ok());
  EXPECT_EQ(infer(model).get().status.code(), Code::kUnavailable);
  EXPECT_FALSE(repository_->is_ready());
}

TEST_F(ModelRepositoryTest, BuildsFromOnnxOnceAndAgainWhenItChanges) {
  int builds = 0;
  options_.loader.engines.machine = "test machine";
  options_.loader.engines.build = [&](const std::string& onnx, const std::string& engine, const engines::KnownShapes&,
                                      const std::function<bool()>& keep_going) -> Status {
    EXPECT_TRUE(keep_going());
    EXPECT_THAT(onnx, HasSubstr("/m/1/model.onnx"));
    ++builds;
    std::ofstream(engine) << "double";
    return {};
  };
  folder_.write("m/1/model.onnx", "onnx");
  folder_.write("m/1/weights.bin", "w");
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ((*repository_->find("m"))->config().default_model_filename, "model.onnx");
  EXPECT_TRUE(infer(*repository_->find("m")).get().status.is_ok());
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(builds, 1);
  folder_.write("m/1/weights.bin", "v");
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(builds, 2);
  int engines = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/m/1")) {
    engines += entry.path().extension() == ".engine";
  }
  EXPECT_EQ(engines, 1) << "the outdated one is removed";
  TemporaryFolder cache;
  options_.loader.engines.folder = cache.path() + "/engines";
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(builds, 3);
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(builds, 3);
}

TEST_F(ModelRepositoryTest, BuildsFromOnnxForTheConfiguredShapes) {
  std::vector<std::string> shapes;
  options_.loader.engines.build = [&](const std::string&, const std::string& engine, const engines::KnownShapes& known,
                                      const std::function<bool()>&) -> Status {
    shapes.push_back(known.to_string());
    std::ofstream(engine) << "text";
    return {};
  };
  folder_.write("m/1/model.onnx", "onnx");
  folder_.write("m/config.pbtxt", R"(max_batch_size: 4 input { name: "ids" data_type: TYPE_INT64 dims: 16 })");
  ASSERT_TRUE(start().is_ok());
  folder_.write("m/config.pbtxt", R"(max_batch_size: 3 input { name: "ids" data_type: TYPE_INT64 dims: -1 })");
  ASSERT_TRUE(start().is_ok());
  ASSERT_TRUE(start().is_ok());
  folder_.write("m/config.pbtxt", "");
  ASSERT_TRUE(start().is_ok());
  EXPECT_THAT(shapes, ElementsAre("batch 4; ids -1x16", "batch 3; ids -1x-1", "batch 0"));
}

TEST_F(ModelRepositoryTest, SaysWhyAnOnnxFileCannotBeBuilt) {
  folder_.write("m/1/model.onnx", "onnx");
  EXPECT_THAT(start().message(), HasSubstr("started without the compiler"));
  options_.loader.engines.build = [](const std::string&, const std::string& engine, const engines::KnownShapes&,
                                     const std::function<bool()>&) {
    std::ofstream(engine) << "half";
    return unsupported("node 'n' (Foo): no such operator");
  };
  EXPECT_THAT(start().message(), HasSubstr("node 'n' (Foo): no such operator"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path() + "/m/1"), {}), 1)
      << "nothing is left behind";
}

TEST_F(ModelRepositoryTest, WarmsUpBeforeItServes) {
  folder_.write("m/1/model.engine", "double");
  folder_.write("m/warmup/row", std::string(16, '\0'));
  folder_.write("m/config.pbtxt", R"(
    model_warmup { name: "w" batch_size: 4 count: 2
                   inputs { key: "x" value { data_type: TYPE_FP32 dims: 4 random_data: true } } }
    model_warmup { name: "f" batch_size: 2
                   inputs { key: "x" value { data_type: TYPE_FP32 dims: 4 input_data_file: "row" } } })");
  ASSERT_TRUE(start().is_ok());
  EXPECT_THAT(device_->batches(), ElementsAre(4, 4, 2));
  folder_.write("m/warmup/row", "short");
  EXPECT_THAT(start().message(), HasSubstr("warmup 'f': '"));
  EXPECT_THAT(start().message(), HasSubstr("has 5 bytes, but input 'x' takes 16"));
}

TEST_F(ModelRepositoryTest, WhatALoadThrowsIsItsFailure) {
  folder_.write("m/1/model.onnx", "onnx");
  folder_.write("other/1/model.engine", "double");
  options_.loader.engines.build = [](const std::string&, const std::string&, const engines::KnownShapes&,
                                     const std::function<bool()>&) -> Status { throw std::bad_alloc(); };
  EXPECT_THAT(start().message(), HasSubstr("there is not enough memory to load version 1 of 'm'"));
  EXPECT_TRUE(repository_->find("other").is_ok());
}

TEST_F(ModelRepositoryTest, RefusesWarmupsWithoutMeasure) {
  folder_.write("m/1/model.engine", "text");
  folder_.write("m/config.pbtxt", R"(model_warmup { name: "w" batch_size: 1 inputs { key: "ids" value {
      data_type: TYPE_INT64 dims: 999999999999 zero_data: true } } inputs { key: "mask" value {
      data_type: TYPE_INT64 dims: 16 zero_data: true } } })");
  EXPECT_THAT(start().message(), HasSubstr("input 'ids' would take more than 1024 MiB"));
}

TEST_F(ModelRepositoryTest, TakesLoadsFromTheFirstMoment) {
  options_.control_mode = ControlMode::kExplicit;
  folder_.write("m/1/model.engine", "double");
  ModelRepository repository(options_);
  std::promise<Status> loaded;
  repository.load("m", {}, [&](const Status& status) { loaded.set_value(status); });
  EXPECT_TRUE(loaded.get_future().get().is_ok());
}

TEST_F(ModelRepositoryTest, StopEndsAWarmup) {
  folder_.write("m/1/model.engine", "double");
  folder_.write("m/config.pbtxt", R"(model_warmup { name: "w" batch_size: 1 count: 4000000000
      inputs { key: "x" value { data_type: TYPE_FP32 dims: 4 zero_data: true } } })");
  repository_ = std::make_unique<ModelRepository>(options_);
  repository_->start();
  ASSERT_TRUE(device_->wait_for_runs(1));
  repository_->stop(0);
  EXPECT_FALSE(repository_->find("m").is_ok());
}

TEST_F(ModelRepositoryTest, ANameWithoutAModelLeavesNoTrace) {
  options_.control_mode = ControlMode::kExplicit;
  options_.load_at_start = {"*"};
  folder_.write("m/1/model.engine", "double");
  ASSERT_TRUE(start().is_ok());
  for (const char* name : {"typo", "../m", "", "."}) {
    EXPECT_THAT(load(name).message(), HasSubstr(std::string("failed to load '") + name + "'"));
    EXPECT_EQ(unload(name).code(), Code::kNotFound);
  }
  EXPECT_TRUE(repository_->is_ready());
  EXPECT_EQ(index_text(), "m:1 READY\n");
  EXPECT_THAT(repository_->find("typo").status().message(), HasSubstr("unknown model: 'typo' is not found"));
}

TEST_F(ModelRepositoryTest, ReadsLabels) {
  folder_.write("m/1/model.engine", "scores");
  folder_.write("m/labels.txt", "cat\r\ndog\nfish\n");
  ASSERT_TRUE(start().is_ok());
  const ServedModelPtr model = *repository_->find("m");
  EXPECT_EQ(model->label("scores", 0), "cat");
  EXPECT_EQ(model->label("scores", 2), "fish");
  EXPECT_EQ(model->label("scores", 3), std::nullopt);
  EXPECT_EQ(model->label("other", 0), std::nullopt);
}

TEST_F(ModelRepositoryTest, RefusesShapesBeyondTheEnginesProfile) {
  folder_.write("m/1/model.engine", "text");
  ASSERT_TRUE(start().is_ok());
  const ServedModelPtr model = *repository_->find("m");
  const std::vector<int64_t> data(17, 1);
  schedule::InferRequest request;
  for (const char* name : {"ids", "mask"}) {
    request.inputs.push_back({name, DataType::kInt64, {1, 17}, std::as_bytes(std::span(data))});
  }
  EXPECT_THAT(model->prepare(request).message(),
              HasSubstr("unexpected shape for input 'ids' for model 'm', got [1,17]: dimension 1 must be in [1, 16]"));
}

TEST_F(ModelRepositoryTest, FilesMayComeWithALoadRequest) {
  folder_.write("m/1/model.engine", "double");
  options_.control_mode = ControlMode::kExplicit;
  ASSERT_TRUE(start().is_ok());
  ASSERT_TRUE(load("m").is_ok());
  EXPECT_EQ(load("m", "{}", {{"2/model.engine", "double"}, {"5/model.engine", "double"}}).to_string(), "OK");
  EXPECT_TRUE(eventually([&] { return index_text() == "m:1 UNAVAILABLE (unloaded)\nm:5 READY\n"; }));
  EXPECT_TRUE(infer(*repository_->find("m")).get().status.is_ok());
  // A model that is in no repository.
  EXPECT_EQ(load("sent", "{}", {{"1/model.engine", "double"}}).to_string(), "OK");
  EXPECT_TRUE(infer(*repository_->find("sent")).get().status.is_ok());
  // Without files, those in the repository serve again.
  ASSERT_TRUE(load("m").is_ok());
  EXPECT_EQ((*repository_->find("m"))->version(), 1);
}

TEST_F(ModelRepositoryTest, FilesThatCannotBeMeantChangeNothing) {
  folder_.write("m/1/model.engine", "double");
  options_.control_mode = ControlMode::kExplicit;
  ASSERT_TRUE(start().is_ok());
  ASSERT_TRUE(load("m").is_ok());
  auto refusal = [&](const std::string& path) { return std::string(load("m", "{}", {{path, "double"}}).message()); };
  EXPECT_THAT(load("m", std::nullopt, {{"1/model.engine", "x"}}).message(), HasSubstr("send 'config', too"));
  for (const char* path : {"../m/1/model.engine", "1/../../x", "/etc/x", "1//x", "1/.", "", "1/", "a\\b"}) {
    EXPECT_THAT(refusal(path), HasSubstr("give a path within the model's folder")) << path;
  }
  EXPECT_THAT(load("m", "{}", {{"1", "x"}, {"1/model.engine", "double"}}).message(), HasSubstr("cannot be written"));
  EXPECT_THAT(load("m", "{}", {{"1/model.engine", "nonsense"}}).message(), HasSubstr("version 1"));
  for (const char* name : {"../m", "\xff", "m\n", ".m"}) {
    EXPECT_THAT(load(name, "{}", {{"1/model.engine", "double"}}).message(), HasSubstr("is no model name")) << name;
  }
  EXPECT_EQ(index_text(), "m:1 READY\n");
  EXPECT_TRUE(infer(*repository_->find("m")).get().status.is_ok());
}

TEST_F(ModelRepositoryTest, MoreOrFewerInstancesReadNothingAgain) {
  folder_.write("m/1/model.engine", "double");
  folder_.write("m/config.pbtxt", "instance_group { count: 1 }");
  options_.control_mode = ControlMode::kExplicit;
  ASSERT_TRUE(start().is_ok());
  ASSERT_TRUE(load("m").is_ok());
  EXPECT_TRUE(infer(*repository_->find("m")).get().status.is_ok());
  EXPECT_EQ(device_->loads, 1);
  // Requests in hand are answered by the instances that have them.
  device_->close_gate();
  std::future<schedule::InferResponse> running = infer(*repository_->find("m"));
  ASSERT_TRUE(device_->wait_for_runs(2));
  std::future<schedule::InferResponse> waiting = infer(*repository_->find("m"));
  folder_.write("m/config.pbtxt", "instance_group { count: 3 }");
  ASSERT_TRUE(load("m").is_ok());
  EXPECT_EQ(device_->loads, 1);
  EXPECT_EQ((*repository_->find("m"))->config().instance_count(), 3);
  device_->open_gate();
  EXPECT_TRUE(running.get().status.is_ok());
  EXPECT_TRUE(waiting.get().status.is_ok());
  EXPECT_TRUE(infer(*repository_->find("m")).get().status.is_ok());
  EXPECT_EQ((*repository_->find("m"))->statistics().snapshot().success.count, 4u);
  EXPECT_TRUE(eventually([&] { return device_->live_contexts == 3; }));
  ASSERT_TRUE(load("m", R"({"instance_group":[{"count":2}]})").is_ok());
  EXPECT_EQ(device_->loads, 1);
  EXPECT_TRUE(eventually([&] { return device_->live_contexts == 2; }));
  // Anything else is a new beginning.
  ASSERT_TRUE(load("m", R"({"instance_group":[{"count":2}],"max_batch_size":4})").is_ok());
  EXPECT_EQ(device_->loads, 2);
  EXPECT_EQ((*repository_->find("m"))->statistics().snapshot().success.count, 0u);
  folder_.write("m/1/model.engine", "double\nagain");
  ASSERT_TRUE(load("m", R"({"instance_group":[{"count":1}],"max_batch_size":4})").is_ok());
  EXPECT_EQ(device_->loads, 3);
}

TEST_F(ModelRepositoryTest, FollowsItsFoldersInPollMode) {
  folder_.write("m/1/model.engine", "double");
  options_.control_mode = ControlMode::kPoll;
  options_.poll_interval_ms = options_.poll_settle_ms = 5;
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(load("m").message(), "explicit model load / unload is not allowed if polling is enabled");
  EXPECT_EQ(unload("m").code(), Code::kUnavailable);
  auto serves = [&](const std::string& text) { return eventually([&] { return index_text() == text; }); };
  folder_.write("n/1/model.engine", "double");
  EXPECT_TRUE(serves("m:1 READY\nn:1 READY\n")) << index_text();
  folder_.write("m/2/model.engine", "double");
  EXPECT_TRUE(serves("m:1 UNAVAILABLE (unloaded)\nm:2 READY\nn:1 READY\n")) << index_text();
  // A bad file leaves the old one in place, and a good one is taken when it comes.
  const int loaded = device_->loads;
  folder_.write("n/1/model.engine", "nonsense");
  EXPECT_TRUE(eventually([&] { return device_->loads > loaded; }));
  EXPECT_TRUE(infer(*repository_->find("n")).get().status.is_ok());
  folder_.write("n/2/model.engine", "double");
  EXPECT_TRUE(eventually([&] { return repository_->find("n", 2).is_ok(); }));
  folder_.remove("m");
  EXPECT_TRUE(eventually([&] { return !repository_->find("m").is_ok(); }));
}

TEST(SentFilesTest, AreRemovedWithTheLastUse) {
  std::string folder;
  {
    auto sent = SentFiles::write({{"1/a", "alpha"}, {"b", ""}});
    ASSERT_TRUE(sent.is_ok());
    folder = (*sent)->folder();
    std::ifstream file(folder + "/1/a");
    std::string text;
    file >> text;
    EXPECT_EQ(text, "alpha");
    EXPECT_TRUE(std::filesystem::exists(folder + "/b"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

}  // namespace
}  // namespace flywheel::repository
