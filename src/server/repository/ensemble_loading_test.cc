// SPDX-License-Identifier: Apache-2.0
// Ensembles in a repository: loaded after their steps' models, found by name at each request, stopped before them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "base/temporary_folder_test_data.h"
#include "server/backend/engine/fake_engine.h"
#include "server/repository/load_order.h"
#include "server/repository/model_repository.h"

namespace flywheel::repository {
namespace {

using config::DataType;
using testing::ElementsAre;
using testing::HasSubstr;

std::string ensemble_text(const std::vector<std::string>& steps) {
  std::string text = R"(platform: "ensemble" max_batch_size: 4
input [{ name: "IN" data_type: TYPE_FP32 dims: [4] }] output [{ name: "OUT" data_type: TYPE_FP32 dims: [4] }]
ensemble_scheduling {)";
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string in = i == 0 ? "IN" : "t" + std::to_string(i);
    const std::string out = i + 1 == steps.size() ? "OUT" : "t" + std::to_string(i + 1);
    const bool nested = steps[i].starts_with("e");
    text += " step { model_name: \"" + steps[i] + "\" input_map { key: \"" + (nested ? "IN" : "x") + "\" value: \"" +
            in + "\" } output_map { key: \"" + (nested ? "OUT" : "y") + "\" value: \"" + out + "\" } }";
  }
  return text + "}";
}

class EnsembleLoading : public testing::Test {
 protected:
  EnsembleLoading() {
    options_.paths = {folder_.path()};
    options_.loader.engines.load = engines::fake_loader(device_);
    options_.cores = 2;
    options_.load_threads = 1;  // nothing may wait for a thread
  }
  ~EnsembleLoading() override {
    device_->open_gate();
    repository_.reset();
    EXPECT_EQ(device_->live_contexts, 0);
  }
  Status start() {
    repository_ = std::make_unique<ModelRepository>(options_);
    repository_->start();
    return repository_->wait_until_started();
  }
  void write_ensemble(const std::string& name, const std::vector<std::string>& steps) {
    folder_.write(name + "/config.pbtxt", ensemble_text(steps));
    folder_.write(name + "/1/.keep", "");
  }
  Status load(const std::string& name) {
    std::promise<Status> done;
    repository_->load(name, {}, [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
  Status unload(const std::string& name, bool with_steps = false) {
    std::promise<Status> done;
    repository_->unload(
        name, [&](Status status) { done.set_value(std::move(status)); }, with_steps);
    return done.get_future().get();
  }
  std::future<schedule::InferResponse> infer(const std::string& name) {
    static const std::vector<float> kInput = {1, 2, 3, 4};
    auto request = std::make_shared<schedule::InferRequest>();
    request->inputs.push_back({"IN", DataType::kFp32, {1, 4}, std::as_bytes(std::span(kInput))});
    auto promise = std::make_shared<std::promise<schedule::InferResponse>>();
    const auto model = repository_->find(name);
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    EXPECT_TRUE((*model)->prepare(*request).is_ok());
    request->on_response = [promise, model = *model](schedule::InferRequest&, schedule::InferResponse response) {
      promise->set_value(std::move(response));
    };
    (*model)->infer(std::move(request));
    return promise->get_future();
  }
  std::vector<float> values_from(const std::string& name) {
    const schedule::InferResponse response = infer(name).get();
    EXPECT_TRUE(response.status.is_ok()) << response.status.message();
    std::vector<float> values(4);
    if (!response.outputs.empty()) std::memcpy(values.data(), response.outputs[0].bytes.data(), 16);
    return values;
  }

  TemporaryFolder folder_;
  std::shared_ptr<engines::FakeDevice> device_ = std::make_shared<engines::FakeDevice>();
  RepositoryOptions options_;
  std::unique_ptr<ModelRepository> repository_;
};

TEST_F(EnsembleLoading, LoadsAfterItsModelsWhateverTheNames) {
  write_ensemble("e1", {"m", "m"});
  write_ensemble("e0", {"e1", "m"});
  folder_.write("m/1/model.engine", "double");
  const Status status = start();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_TRUE(repository_->is_ready());
  EXPECT_THAT(values_from("e1"), ElementsAre(4, 8, 12, 16));
  EXPECT_THAT(values_from("e0"), ElementsAre(8, 16, 24, 32));
  const auto statistics = (*repository_->find("m"))->statistics().snapshot();
  EXPECT_EQ(statistics.success.count, 5u);
  EXPECT_EQ((*repository_->find("e0"))->statistics().snapshot().success.count, 1u);
}

TEST_F(EnsembleLoading, SaysWhichModelIsMissingOrFailed) {
  write_ensemble("e1", {"absent"});
  write_ensemble("e2", {"bad"});
  folder_.write("bad/1/model.engine", "nonsense");
  EXPECT_FALSE(start().is_ok());
  const auto index = repository_->index(false);
  std::map<std::string, std::string> reasons;
  for (const IndexRow& row : index) reasons[row.name] = row.reason;
  EXPECT_THAT(reasons["e1"], HasSubstr("ensemble e1 contains models that are not available or ambiguous: absent"));
  EXPECT_THAT(reasons["e2"],
              HasSubstr("ensemble 'e2' depends on 'bad' which has no loaded version. Model 'bad' loading "
                        "failed with error: version 1 is at UNAVAILABLE state: "));
}

TEST_F(EnsembleLoading, CirclesFailAndHangNothing) {
  write_ensemble("e1", {"e2"});
  write_ensemble("e2", {"e1"});
  write_ensemble("e3", {"e1"});
  folder_.write("m/1/model.engine", "double");
  const Status status = start();
  EXPECT_THAT(status.message(), HasSubstr("circular dependency between ensembles: e1 -> ... -> e2 -> e1"));
  EXPECT_TRUE(repository_->find("m").is_ok());
}

TEST_F(EnsembleLoading, LoadingAnEnsembleLoadsItsModels) {
  options_.control_mode = ControlMode::kExplicit;
  write_ensemble("e1", {"m"});
  folder_.write("m/1/model.engine", "double");
  ASSERT_TRUE(start().is_ok());
  const Status status = load("e1");
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_THAT(values_from("e1"), ElementsAre(2, 4, 6, 8));
  EXPECT_TRUE(unload("e1", true).is_ok());
  EXPECT_FALSE(repository_->find("m").is_ok());
}

TEST_F(EnsembleLoading, FindsItsModelsAnewForEachRequest) {
  options_.control_mode = ControlMode::kExplicit;
  options_.load_at_start = {"e1"};
  write_ensemble("e1", {"m"});
  folder_.write("m/1/model.engine", "double");
  ASSERT_TRUE(start().is_ok());
  ASSERT_TRUE(load("m").is_ok());
  EXPECT_THAT(values_from("e1"), ElementsAre(2, 4, 6, 8));
  ASSERT_TRUE(unload("m").is_ok());
  const schedule::InferResponse response = infer("e1").get();
  EXPECT_THAT(response.status.message(),
              HasSubstr("in ensemble 'e1', Request for unknown model: 'm' has no available versions"));
}

TEST_F(EnsembleLoading, StoppingLetsEnsemblesFinishTheirSteps) {
  write_ensemble("e1", {"m", "m", "m"});
  folder_.write("m/1/model.engine", "double");
  ASSERT_TRUE(start().is_ok());
  device_->close_gate();
  auto response = infer("e1");
  ASSERT_TRUE(device_->wait_for_runs(1));
  std::thread stopper([&] { repository_->stop(20'000'000'000); });
  while (repository_->is_ready()) std::this_thread::yield();
  device_->open_gate();
  stopper.join();
  const schedule::InferResponse given = response.get();
  EXPECT_TRUE(given.status.is_ok()) << given.status.message();
}

TEST(LoadOrder, WaitsForWhatIsInTheSet) {
  LoadOrder order({"a", "b", "c"}, [](const std::string& model) -> std::vector<std::string> {
    if (model == "a") return {"b", "c", "elsewhere"};
    return {};
  });
  EXPECT_THAT(order.first(), ElementsAre("b", "c"));
  EXPECT_THAT(order.after("b"), ElementsAre());
  EXPECT_THAT(order.after("c"), ElementsAre("a"));
}

}  // namespace
}  // namespace flywheel::repository
