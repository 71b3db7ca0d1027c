// SPDX-License-Identifier: Apache-2.0
// Whole models: files, names, order, inputs and outputs, initializers, functions, branches, and every refusal that is
// not one operator's own.
#include "compiler/onnx/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "compiler/onnx/test_model.h"

namespace flywheel::onnx_import {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void expect_refused(const TestModel& model, Code code, const std::string& text, const std::string& folder = "") {
  const Status status = refusal(model, folder);
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(text));
}

TestModel relu_model() {
  TestModel model;
  model.input("x", {"batch", "3"}).output("y");
  model.node("Relu", {"x"}, {"y"});
  return model;
}

TEST(Import, SmallModel) {
  TestModel model = relu_model();
  model.model.set_producer_name("exporter");
  model.model.set_producer_version("2.1");
  const ImportedModel result = imported(model);
  EXPECT_EQ(operators(*result.graph), "Relu");
  EXPECT_EQ(output_type(*result.graph), "f32 [batch, 3]");
  EXPECT_THAT(result.graph->output_names(), ElementsAre("y"));
  EXPECT_EQ(result.graph->inputs()[0]->name, "x");
  EXPECT_THAT(only(*result.graph, "Relu").sources, ElementsAre("y"));
  EXPECT_EQ(result.producer, "exporter 2.1");
  EXPECT_EQ(result.opset, 17);
  EXPECT_EQ(result.node_count, 1);
  EXPECT_NE(result.hash, 0u);
}

TEST(Import, HashDependsOnTheBytes) {
  TestModel a = relu_model(), b = relu_model();
  b.model.set_doc_string("other");
  EXPECT_EQ(imported(a).hash, imported(relu_model()).hash);
  EXPECT_NE(imported(a).hash, imported(b).hash);
}

TEST(Import, NamelessNodesAreCalledAfterTheirPlace) {
  TestModel model = relu_model();
  model.model.mutable_graph()->mutable_node(0)->clear_name();
  EXPECT_THAT(only(*imported(model).graph, "Relu").sources, ElementsAre("Relu_0"));
}

TEST(Import, RefusesWhatIsNoModel) {
  const auto code_of = [](const std::string& bytes) {
    return import_bytes(std::as_bytes(std::span(bytes)), "").status();
  };
  EXPECT_THAT(code_of("").message(), HasSubstr("it is empty"));
  EXPECT_THAT(code_of("this is text and no protobuf").message(), HasSubstr("not an ONNX model"));
  const std::string whole = relu_model().bytes();
  for (size_t size = 0; size + 1 < whole.size(); ++size) {
    EXPECT_FALSE(import_bytes(std::as_bytes(std::span(whole).first(size)), "").is_ok()) << size;
  }
  TestModel no_graph;
  no_graph.model.clear_graph();
  expect_refused(no_graph, Code::kInvalidArgument, "it has no graph");
  TestModel no_version = relu_model();
  no_version.model.clear_ir_version();
  expect_refused(no_version, Code::kInvalidArgument, "it has no ir_version");
  EXPECT_EQ(import_file("/nonexistent/model.onnx").status().code(), Code::kNotFound);
}

TEST(Import, RefusesDeepNesting) {
  TestModel model = relu_model();
  onnx_pb::TypeProto* type = model.model.mutable_graph()->add_value_info()->mutable_type();
  for (int i = 0; i < 200; ++i) type = type->mutable_sequence_type()->mutable_elem_type();
  expect_refused(model, Code::kInvalidArgument, "its protobuf encoding is broken");
}

TEST(Import, Versions) {
  TestModel newer = relu_model();
  newer.model.set_ir_version(99);
  expect_refused(newer, Code::kUnsupported, "ir_version is 99; up to 14 are supported");
  for (int64_t opset : {6, 29}) {
    TestModel model(opset);
    model.input("x", {"1"}).output("y");
    model.node("Relu", {"x"}, {"y"});
    expect_refused(model, Code::kUnsupported,
                   "uses opset " + std::to_string(opset) + " of ai.onnx; 7 to 28 are supported");
  }
  for (int64_t opset : {7, 9, 28}) {
    TestModel model(opset);
    model.input("x", {"1"}).output("y");
    model.node("Relu", {"x"}, {"y"});
    EXPECT_EQ(imported(model).opset, opset);
  }
  TestModel twice = relu_model();
  auto* import = twice.model.add_opset_import();
  import->set_domain("ai.onnx");
  import->set_version(12);
  expect_refused(twice, Code::kInvalidArgument, "imported with versions 17 and 12");
  TestModel none = relu_model();
  none.model.clear_opset_import();
  expect_refused(none, Code::kUnsupported, "imports no opset of that domain");
}

TEST(Import, SortsNodes) {
  TestModel model;
  model.input("x", {"2"}).output("c");
  model.node("Exp", {"b"}, {"c"});
  model.node("Neg", {"a"}, {"b"});
  model.node("Relu", {"x"}, {"a"});
  EXPECT_EQ(operators(*imported(model).graph), "Relu Neg Exp");
}

TEST(Import, RefusesBrokenGraphs) {
  TestModel cycle;
  cycle.input("x", {"2"}).output("b");
  cycle.node("Add", {"x", "b"}, {"a"});
  cycle.node("Neg", {"a"}, {"b"});
  expect_refused(cycle, Code::kInvalidArgument,
                 "the graph has a cycle: node 'a' (Add) needs node 'b' (Neg) needs the first");

  TestModel missing;
  missing.input("x", {"2"}).output("a");
  missing.node("Add", {"x", "w"}, {"a"});
  expect_refused(missing, Code::kInvalidArgument,
                 "node 'a' (Add) reads 'w', which no input, initializer or node gives");

  TestModel twice = relu_model();
  twice.node("Neg", {"x"}, {"y"});
  expect_refused(twice, Code::kInvalidArgument, "gives 'y', which node 'y' (Relu) gives already");
  TestModel shadow;
  shadow.input("x", {"2"}).output("x");
  shadow.node("Neg", {"x"}, {"x"});
  expect_refused(shadow, Code::kInvalidArgument, "gives 'x', which an input or initializer gives already");

  TestModel no_output = relu_model();
  no_output.model.mutable_graph()->clear_output();
  expect_refused(no_output, Code::kInvalidArgument, "the graph has no outputs");
  TestModel unknown_output = relu_model();
  unknown_output.output("z");
  expect_refused(unknown_output, Code::kInvalidArgument, "output 'z' is given by no input, initializer or node");
  TestModel same_output = relu_model();
  same_output.output("y");
  expect_refused(same_output, Code::kInvalidArgument, "output 'y' is given twice");
  TestModel same_input = relu_model();
  same_input.input("x", {"1"});
  expect_refused(same_input, Code::kInvalidArgument, "input 'x' is given twice");
  TestModel wrong_type = relu_model();
  wrong_type.model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(kTypeInt64);
  expect_refused(wrong_type, Code::kInvalidArgument, "output 'y' is declared as INT64 but its value is f32");
  TestModel bad_name = relu_model();
  bad_name.model.mutable_graph()->mutable_node(0)->set_name("a\nb");
  expect_refused(bad_name, Code::kInvalidArgument, "'a?b' has a name with a control character at byte 1");
}

TEST(Import, OutputsMayBeInputsAndConstants) {
  TestModel model;
  model.input("x", {"2"}).floats("w", {1}, {3}).output("x").output("w").output("same");
  model.node("Identity", {"x"}, {"same"});
  const auto result = imported(model);
  EXPECT_EQ(operators(*result.graph), "");
  EXPECT_THAT(result.graph->output_names(), ElementsAre("x", "w", "same"));
  EXPECT_EQ(result.graph->outputs()[0], result.graph->outputs()[2]);
  EXPECT_TRUE(result.graph->outputs()[1]->is_constant());
}

TEST(Import, InputDims) {
  TestModel model;
  model.input("x", {"batch", "", "-1", "4"}).input("z", {"batch", "?"}).output("y");
  model.node("Relu", {"x"}, {"y"});
  const auto result = imported(model);
  EXPECT_EQ(output_type(*result.graph), "f32 [batch, x_dim_1, x_dim_2, 4]");
  ASSERT_EQ(result.graph->inputs().size(), 2u);  // one that nothing reads stays: callers send it
  EXPECT_EQ(sym_shape_to_string(result.graph->inputs()[1]->shape), "[batch, z_dim_1]");

  TestModel clash;  // the name that would be made is taken
  clash.input("x", {"", "x_dim_0"}).output("y");
  clash.node("Relu", {"x"}, {"y"});
  EXPECT_EQ(output_type(*imported(clash).graph), "f32 [x_dim_0_, x_dim_0]");

  TestModel zero;
  zero.input("x", {"0", "4"}).output("y");
  zero.node("Relu", {"x"}, {"y"});
  expect_refused(zero, Code::kInvalidArgument,
                 "input 'x': dim 0 is 0; give it a positive extent, or a name if it varies");
  TestModel huge;
  huge.input("x", {"4611686018427387904", "4611686018427387904"}).output("y");
  huge.node("Relu", {"x"}, {"y"});
  expect_refused(huge, Code::kInvalidArgument, "too large");
}

TEST(Import, UnsupportedInputs) {
  TestModel model;
  model.input("x", {"2"}, kTypeString).output("y");
  model.input("no_shape", {"2"});
  model.model.mutable_graph()->mutable_input(1)->mutable_type()->mutable_tensor_type()->clear_shape();
  model.model.mutable_graph()->add_input()->set_name("list");
  model.model.mutable_graph()->mutable_input(2)->mutable_type()->mutable_sequence_type();
  model.input("deep", {"1", "1", "1", "1", "1", "1", "1", "1", "1"});
  model.node("Relu", {"x"}, {"y"});
  const Status status = refusal(model);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("4 things in the model"), HasSubstr("input 'x': element type STRING"),
                    HasSubstr("input 'no_shape': it has no shape; give it one"),
                    HasSubstr("input 'list' is a sequence"), HasSubstr("input 'deep': it has 9 dims")));
}

TEST(Import, InitializersThatAreInputs) {  // as files before IR version 4 have them
  TestModel model(9, 3);
  model.input("x", {"2"}).input("w", {"2"}).floats("w", {2}, {5, 6}).output("y");
  model.node("Add", {"x", "w"}, {"y"});
  const auto result = imported(model);
  ASSERT_EQ(result.graph->inputs().size(), 1u);
  const ir::Value* w = only(*result.graph, "Add").input(1);
  ASSERT_TRUE(w->is_constant());
  EXPECT_EQ(w->constant->as_double(1), 6);
}

TEST(Import, Initializers) {
  TestModel unused = relu_model();
  unused.tensor("unused", kTypeString, {1});  // nothing needs it
  EXPECT_EQ(operators(*imported(unused).graph), "Relu");

  TestModel wrong = relu_model();
  wrong.floats("w", {3}, {1}).output("w");
  expect_refused(wrong, Code::kInvalidArgument, "initializer 'w': its float_data has 1 values where its dims need 3");
  TestModel twice = relu_model();
  twice.floats("w", {1}, {1}).floats("w", {1}, {1});
  expect_refused(twice, Code::kInvalidArgument, "initializer 'w' is given twice");

  TestModel strange;
  strange.output("y").tensor("w", 17, {1});
  strange.node("Relu", {"w"}, {"y"});
  auto* sparse = strange.model.mutable_graph()->add_sparse_initializer();
  sparse->mutable_values()->set_name("s");
  strange.node("Neg", {"s"}, {"z"});
  strange.output("z");
  const Status status = refusal(strange);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("initializer 'w': its element type FLOAT8E4M3FN is not supported"),
                                      HasSubstr("initializer 's' is sparse; store it as a dense tensor")));
}

TEST(Import, ExternalDataBesideTheFile) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("import_test_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const float values[] = {7, 8};
  std::ofstream(folder / "w.bin", std::ios::binary).write(reinterpret_cast<const char*>(values), sizeof(values));
  TestModel model;
  model.input("x", {"2"}).output("y");
  auto& tensor = model.tensor("w", kTypeFloat, {2});
  tensor.set_data_location(1);
  auto* entry = tensor.add_external_data();
  entry->set_key("location");
  entry->set_value("w.bin");
  model.node("Add", {"x", "w"}, {"y"});
  std::ofstream(folder / "m.onnx", std::ios::binary) << model.bytes();

  auto result = import_file((folder / "m.onnx").string());
  ASSERT_TRUE(result.is_ok()) << result.status().to_string();
  EXPECT_EQ(only(*result->graph, "Add").input(1)->constant->as_double(1), 8);
  const uint64_t hash = result->hash;
  const float others[] = {7, 9};
  std::ofstream(folder / "w.bin", std::ios::binary).write(reinterpret_cast<const char*>(others), sizeof(others));
  EXPECT_NE(import_file((folder / "m.onnx").string()).value().hash, hash);
  // Touching what was mapped of a file that is shorter now would end the process.
  auto copied = import_file((folder / "m.onnx").string(), FileAccess::kCopy);
  ASSERT_TRUE(copied.is_ok()) << copied.status().to_string();
  fs::resize_file(folder / "w.bin", 0);
  EXPECT_EQ(only(*copied->graph, "Add").input(1)->constant->as_double(1), 9);
  expect_refused(model, Code::kInvalidArgument, "initializer 'w': its data is in the file 'w.bin'");
  fs::remove(folder / "w.bin");
  const Status missing = import_file((folder / "m.onnx").string()).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), AllOf(HasSubstr("m.onnx"), HasSubstr("'w.bin' cannot be found")));
  fs::remove_all(folder);
}

TEST(Import, ListsAllUnsupportedNodesAtOnce) {
  TestModel model;
  model.input("x", {"4", "4"}).output("y").output("z");
  model.node("NonZero", {"x"}, {"where"});
  model.node("Transpose", {"where"}, {"pairs"});  // supported: not listed, though nothing is known of its input
  model.node("Frobnicate", {"pairs"}, {"y"});
  model.node("StringNormalizer", {"x"}, {"z"}).clear_name();
  auto* import = model.model.add_opset_import();
  import->set_domain("com.example");
  import->set_version(2);
  model.node("Magic", {"x"}, {"m"}, "com.example");
  model.node("Magic", {"x"}, {"n"}, "com.other");
  const Status status = refusal(model);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_EQ(
      status.message(),
      "5 things in the model are not supported:\n"
      "  node 'where' (NonZero, domain ai.onnx, opset 17): the shape of its result depends on data, which is not "
      "supported\n"
      "  node 'y' (Frobnicate, domain ai.onnx, opset 17): the operator is not supported\n"
      "  node 'StringNormalizer_3' (StringNormalizer, domain ai.onnx, opset 17): strings are not supported\n"
      "  node 'm' (Magic, domain com.example, opset 2): operators of this domain are not supported, unless the model "
      "brings them as functions\n"
      "  node 'n' (Magic, domain com.other, opset 0): the model imports no opset of that domain, and has no function "
      "of "
      "that name\n"
      "Cut these nodes off the model (post-processing often can run in the client), or export it so that supported "
      "operators "
      "take their place.");
}

TEST(Import, RefusesUnknownAttributes) {
  TestModel model = relu_model();
  set(*model.model.mutable_graph()->mutable_node(0), "slope", 2);
  expect_refused(model, Code::kUnsupported,
                 "node 'y' (Relu, domain ai.onnx, opset 17): attribute 'slope' is not one of this operator's");
  TestModel twice;
  twice.input("x", {"2"}).output("y");
  auto& node = twice.node("LeakyRelu", {"x"}, {"y"});
  set(node, "alpha", 0.5f);
  set(node, "alpha", 0.5f);
  expect_refused(twice, Code::kInvalidArgument, "attribute 'alpha' is given twice");
  TestModel typed;
  typed.input("x", {"2"}).output("y");
  set(typed.node("LeakyRelu", {"x"}, {"y"}), "alpha", 1);
  expect_refused(typed, Code::kInvalidArgument, "attribute 'alpha' is INT; FLOAT is expected");
  TestModel required;
  required.input("x", {"2"}).output("y");
  required.node("Concat", {"x", "x"}, {"y"});
  expect_refused(required, Code::kInvalidArgument, "attribute 'axis' is missing");
}

TEST(Import, CountsOperandsAndOutputs) {
  TestModel few;
  few.input("x", {"2"}).output("y");
  few.node("Add", {"x"}, {"y"});
  expect_refused(few, Code::kInvalidArgument, "it has 1 inputs, of which some may be absent; 2 are expected");
  TestModel absent;
  absent.input("x", {"2"}).output("y");
  absent.node("Add", {"", "x"}, {"y"});
  expect_refused(absent, Code::kInvalidArgument, "2 are expected");
  TestModel many;
  many.input("x", {"2"}).output("y");
  many.node("Relu", {"x"}, {"y", "z"});
  expect_refused(many, Code::kInvalidArgument, "it has 2 outputs; 1 to 1 are expected");
  TestModel used;
  used.input("x", {"2"}).output("y").output("mask");
  used.node("Dropout", {"x"}, {"y", "mask"});
  expect_refused(used, Code::kUnsupported, "its output 1 ('mask') is used, which is not supported");
}

TEST(Import, DataDependentParametersSayWhichOperand) {
  TestModel model;
  model.input("x", {"4", "6"}).input("shape", {"2"}, kTypeInt64).output("y").output("z");
  model.node("Reshape", {"x", "shape"}, {"y"});
  model.node("Cast", {"x"}, {"longs"});
  set(*model.model.mutable_graph()->mutable_node(1), "to", int64_t{kTypeInt64});
  model.ints("one", {1}, {0});
  model.node("Gather", {"longs", "one"}, {"row"});
  model.ints("flat", {1}, {6});
  model.node("Reshape", {"row", "flat"}, {"list"});
  model.node("Expand", {"x", "list"}, {"z"});
  const Status status = refusal(model);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr(
                "its shape (input 1, 'shape') must be known when the model is compiled, but is an input of the model"),
            HasSubstr(
                "its shape (input 1, 'list') must be known when the model is compiled, but is computed from data by "
                "'list' (Reshape)")));
}

// --- functions and branches
// ------------------------------------------------------------------------------------------------

TestModel function_model() {
  TestModel model;
  model.input("x", {"batch", "4"}).output("y");
  auto* import = model.model.add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  onnx_pb::FunctionProto& function = *model.model.add_functions();
  function.set_name("ScaledRelu");
  function.set_domain("local");
  function.add_input("a");
  function.add_input("shift");
  function.add_output("r");
  function.add_attribute("slope");
  auto* ops = function.add_opset_import();
  ops->set_domain("");
  ops->set_version(18);
  auto* relu = function.add_node();
  relu->set_op_type("LeakyRelu");
  relu->set_name("inner");
  relu->add_input("a");
  relu->add_output("t");
  auto& alpha = attribute(*relu, "alpha", kAttributeFloat);
  alpha.set_ref_attr_name("slope");
  auto* clip = function.add_node();
  clip->set_op_type("Clip");
  clip->add_input("t");
  clip->add_input("shift");
  clip->add_output("r");
  return model;
}

TEST(Import, InlinesFunctions) {
  TestModel model = function_model();
  set(model.node("ScaledRelu", {"x"}, {"m"}, "local"), "slope", 0.25f);
  model.floats("low", {}, {-1});
  model.node("ScaledRelu", {"m", "low"}, {"y"}, "local");
  const auto result = imported(model);
  EXPECT_EQ(operators(*result.graph), "LeakyRelu LeakyRelu Clip");  // a Clip without bounds does nothing
  const auto& first = *result.graph->nodes().front();
  EXPECT_EQ(first.float_or("alpha", 0), 0.25);
  EXPECT_THAT(first.sources, ElementsAre("m/inner"));
  EXPECT_NEAR((*std::next(result.graph->nodes().begin()))->float_or("alpha", 0), 0.01, 1e-9);  // left out: the default
  EXPECT_EQ(only(*result.graph, "Clip").float_or("min", 0), -1);
  EXPECT_EQ(result.node_count, 2);
}

TEST(Import, RefusesFunctionsThatCallThemselves) {
  TestModel model = function_model();
  model.node("ScaledRelu", {"x"}, {"y"}, "local");
  auto& function = *model.model.mutable_functions(0);
  auto* ops = function.add_opset_import();
  ops->set_domain("local");
  ops->set_version(1);
  function.mutable_node(0)->set_op_type("ScaledRelu");
  function.mutable_node(0)->set_domain("local");
  function.mutable_node(0)->clear_attribute();
  expect_refused(model, Code::kInvalidArgument, "deeper than 32: does a function call itself?");
}

TEST(Import, BoundsWhatFunctionsGrowTo) {
  TestModel model;
  model.input("x", {"2"}).output("y");
  for (int level = 0; level < 30; ++level) {  // each calls the one below twice
    auto& function = *model.model.add_functions();
    function.set_name("f" + std::to_string(level));
    function.set_domain("local");
    function.add_input("a");
    function.add_output("c");
    auto* ops = function.add_opset_import();
    ops->set_domain("");
    ops->set_version(17);
    for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "c")}) {
      auto* node = function.add_node();
      node->set_op_type(level == 0 ? "Relu" : "f" + std::to_string(level - 1));
      if (level > 0) node->set_domain("local");
      node->add_input(from);
      node->add_output(to);
    }
  }
  model.node("f29", {"x"}, {"y"}, "local");
  expect_refused(model, Code::kUnsupported, "grow to more than");
}

TEST(Import, FunctionsReportWhatTheyCannotDo) {
  TestModel model = function_model();
  model.node("ScaledRelu", {"x"}, {"y"}, "local");
  model.model.mutable_functions(0)->mutable_node(1)->set_op_type("NonZero");
  expect_refused(model, Code::kUnsupported, "node 'y/NonZero_1' (NonZero, domain ai.onnx, opset 18)");
  TestModel unknown = function_model();
  set(unknown.node("ScaledRelu", {"x"}, {"y"}, "local"), "other", 1);
  expect_refused(unknown, Code::kUnsupported, "attribute 'other' is not one of the function's");
}

TestModel branching(const std::string& condition) {
  TestModel model;
  model.input("x", {"2", "3"}).input("flag", {}, kTypeBool).output("y");
  auto& decided = model.tensor("yes", kTypeBool, {});
  decided.add_int32_data(1);
  auto& node = model.node("If", {condition}, {"y"});
  for (const auto& [name, op] : {std::pair("then_branch", "Relu"), std::pair("else_branch", "Exp")}) {
    auto& graph = *attribute(node, name, kAttributeGraph).mutable_g();
    auto* inner = graph.add_node();
    inner->set_op_type(op);
    inner->add_input("x");  // from around it
    inner->add_output("r");
    graph.add_output()->set_name("r");
  }
  return model;
}

TEST(Import, DecidedBranches) {
  EXPECT_EQ(operators(*imported(branching("yes")).graph), "Relu");
  expect_refused(branching("flag"), Code::kUnsupported, "its condition depends on data; control flow is not supported");
  // A condition on a fixed extent.
  TestModel model = branching("is_two");
  model.node("Shape", {"x"}, {"shape"});
  model.ints("zero", {}, {0}).ints("two", {}, {2});
  model.node("Gather", {"shape", "zero"}, {"extent"});
  model.node("Equal", {"extent", "two"}, {"is_two"});
  EXPECT_EQ(operators(*imported(model).graph), "Relu");
}

}  // namespace
}  // namespace flywheel::onnx_import
