// SPDX-License-Identifier: Apache-2.0
// What an ensemble's configuration may say, and what it is told when it may not.
#include "server/ensemble/graph.h"

#include <gmock/gmock.h>

#include "server/ensemble/ensemble_test_data.h"

namespace flywheel::ensemble {
namespace {

using ::testing::HasSubstr;

constexpr const char* kIo = R"(
max_batch_size: 4
input [{ name: "IN" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [4] }]
)";

std::string step(const std::string& model, const std::string& in, const std::string& out,
                 const std::string& input = "x", const std::string& output = "y") {
  return "step { model_name: \"" + model + "\" input_map { key: \"" + input + "\" value: \"" + in +
         "\" } output_map { key: \"" + output + "\" value: \"" + out + "\" } }";
}
std::string scheduling(const std::string& steps) { return kIo + ("ensemble_scheduling { " + steps + " }"); }

std::string error_of(const std::string& text) {
  const auto config = ensemble_config(text);
  return config.is_ok() ? "" : config.status().message();
}

std::shared_ptr<FakeModels> models() {
  auto made = std::make_shared<FakeModels>();
  made->add_map("double", [](float v) { return 2 * v; });
  made->add_map("increment", [](float v) { return v + 1; });
  return made;
}

std::string load_error_of(const std::string& text, const std::shared_ptr<FakeModels>& with = models()) {
  const auto made = blueprint(text, with);
  return made.is_ok() ? "" : made.status().message();
}

TEST(EnsembleConfig, StepsMustSayWhatTheyRunAndOnWhat) {
  EXPECT_EQ(error_of(scheduling(step("double", "IN", "OUT"))), "");
  EXPECT_EQ(error_of(scheduling("")), "must specify 'step' for ensemble 'e'");
  EXPECT_EQ(error_of(scheduling("step { }")), "must specify 'model_name' in step 0 of ensemble 'e'");
  EXPECT_EQ(error_of(scheduling("step { model_name: \"m\" }")), "must specify 'input_map' in step 0 of ensemble 'e'");
  EXPECT_EQ(error_of(scheduling("step { model_name: \"m\" input_map { key: \"x\" value: \"IN\" } }")),
            "must specify 'output_map' in step 0 of ensemble 'e'");
}

TEST(EnsembleConfig, WhatOnlyModelsHaveIsRefused) {
  const std::string steps = scheduling(step("double", "IN", "OUT"));
  EXPECT_EQ(error_of(steps + "instance_group [{ count: 2 }]"),
            "instance group should not be specified for ensemble 'e'");
  EXPECT_EQ(error_of(steps + "optimization { priority: PRIORITY_MAX }"),
            "optimization should not be specified for ensemble 'e'");
  EXPECT_EQ(error_of(steps + "model_warmup [{ name: \"w\" }]"), "model_warmup can not be specified for ensemble 'e'");
  EXPECT_EQ(error_of(kIo), "ensemble scheduling must be set for ensemble e whose platform is ensemble");
}

TEST(EnsembleConfig, TensorsMustBeConnected) {
  EXPECT_EQ(error_of(scheduling(step("double", "IN", "OUT") + step("double", "IN", "OUT"))),
            "ensemble tensor 'OUT' can appear in an output map only once for ensemble 'e' step 1");
  EXPECT_EQ(error_of(scheduling(step("double", "other", "OUT"))), "ensemble input 'IN' for ensemble e' is not used");
  EXPECT_EQ(error_of(scheduling(step("double", "IN", "other"))), "ensemble output 'OUT' for ensemble e' is not used");
  EXPECT_EQ(error_of(scheduling(step("double", "IN", "OUT") + step("double", "OUT", "spare"))),
            "ensemble tensor 'spare' is unused in ensemble 'e'");
  EXPECT_EQ(error_of(scheduling(step("double", "IN", "mid") + step("double", "mid", "end") +
                                step("double", "nowhere", "OUT"))),
            "output 'OUT' for ensemble 'e' is not written: at least one of its depending tensors, 'nowhere', is not "
            "connected");
}

TEST(EnsembleConfig, CyclesAreRefused) {
  EXPECT_THAT(error_of(scheduling("step { model_name: \"add\" input_map { key: \"a\" value: \"IN\" } input_map { key: "
                                  "\"b\" value: \"back\" } output_map { key: \"y\" value: \"OUT\" } }" +
                                  step("double", "OUT", "back"))),
              HasSubstr("output 'OUT' for ensemble 'e' is not written"));
}

TEST(EnsembleGraph, TensorsMustExistInTheModels) {
  EXPECT_EQ(load_error_of(scheduling(step("double", "IN", "OUT"))), "");
  EXPECT_EQ(load_error_of(scheduling(step("double", "IN", "OUT", "z"))),
            "in ensemble e, ensemble tensor IN is mapping to non-existing input z in model double");
  EXPECT_EQ(load_error_of(scheduling(step("double", "IN", "OUT", "x", "z"))),
            "in ensemble e, ensemble tensor OUT is mapped from non-existing output z in model double");
  EXPECT_EQ(load_error_of(scheduling(step("absent", "IN", "OUT"))),
            "ensemble 'e' depends on 'absent' which has no loaded version. Request for unknown model: 'absent' is not "
            "found");
}

TEST(EnsembleGraph, TypesShapesAndBatchesMustFit) {
  auto with = models();
  config::ModelConfig other;
  other.max_batch_size = 2;
  other.inputs = {tensor("x", {4}), tensor("w", {4})};
  other.outputs = {tensor("y", {4})};
  with->add("pair", other);
  EXPECT_EQ(
      load_error_of(scheduling(step("pair", "IN", "OUT")), with),
      "ensemble e allows maximum batch size 4, but it contains model pair which only allows maximum batch size to "
      "be 2");
  other.max_batch_size = 4;
  with->add("pair", other);
  EXPECT_EQ(load_error_of(scheduling(step("pair", "IN", "OUT")), with),
            "in ensemble e, input w in model pair is not mapped to any ensemble tensors");
  other.inputs[1].optional = true;
  with->add("pair", other);
  EXPECT_EQ(load_error_of(scheduling(step("pair", "IN", "OUT")), with), "");
  other.inputs = {tensor("x", {4}, config::DataType::kInt32)};
  with->add("pair", other);
  EXPECT_EQ(load_error_of(scheduling(step("pair", "IN", "OUT")), with),
            "in ensemble e, ensemble tensor IN: inconsistent data type: TYPE_FP32 is inferred from model e while "
            "TYPE_INT32 is inferred from model pair");
  other.inputs = {tensor("x", {5})};
  with->add("pair", other);
  EXPECT_EQ(load_error_of(scheduling(step("pair", "IN", "OUT")), with),
            "in ensemble e, ensemble tensor IN: inconsistent shape: [-1,4] is inferred from model e while [-1,5] is "
            "inferred from model pair");
}

TEST(EnsembleGraph, DecoupledStepsBeginStages) {
  auto with = models();
  config::ModelConfig repeat;
  repeat.max_batch_size = 8;
  repeat.inputs = {tensor("x", {4})};
  repeat.outputs = {tensor("y", {4})};
  repeat.decoupled = true;
  with->add("repeat", repeat);
  const auto made = blueprint(scheduling(step("repeat", "IN", "mid") + step("double", "mid", "OUT")), with);
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  EXPECT_TRUE((*made)->graph.decoupled());
  config::ModelConfig add = repeat;
  add.decoupled = false;
  add.inputs = {tensor("a", {4}), tensor("b", {4})};
  with->add("add", add);
  EXPECT_EQ(load_error_of(scheduling(step("repeat", "IN", "mid") +
                                     "step { model_name: \"add\" input_map { key: \"a\" value: \"IN\" } input_map { "
                                     "key: \"b\" value: \"mid\" } output_map { key: \"y\" value: \"OUT\" } }"),
                          with),
            "in ensemble e, step of model 'add' receives inputs originated from different decoupled models");
}

}  // namespace
}  // namespace flywheel::ensemble
