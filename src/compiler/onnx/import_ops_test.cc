// SPDX-License-Identifier: Apache-2.0
// Each operator's forms over the opsets: what node of ours, with which attributes, they become, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "compiler/onnx/test_model.h"

namespace flywheel::onnx_import {
namespace {

using testing::HasSubstr;

// One node over x and constants, giving y.
struct Case {
  explicit Case(const std::string& op_type, int64_t opset, const std::vector<std::string>& dims = {"n", "4", "6", "6"},
                int32_t type = kTypeFloat)
      : model(opset) {
    model.input("x", dims, type).output("y");
    node = &model.node(op_type, {"x"}, {"y"});
  }
  template <class T>
  Case& with(const std::string& name, const T& value) {
    set(*node, name, value);
    return *this;
  }
  Case& operand(const std::vector<int64_t>& values, bool scalar = false) {
    const std::string name = "operand" + std::to_string(node->input_size());
    model.ints(name, scalar ? std::vector<int64_t>{} : std::vector<int64_t>{static_cast<int64_t>(values.size())},
               values);
    node->add_input(name);
    return *this;
  }
  Case& operand(const std::vector<float>& values, bool scalar = false) {
    const std::string name = "operand" + std::to_string(node->input_size());
    model.floats(name, scalar ? std::vector<int64_t>{} : std::vector<int64_t>{static_cast<int64_t>(values.size())},
                 values);
    node->add_input(name);
    return *this;
  }
  Case& weights(const std::vector<int64_t>& dims) {
    const std::string name = "operand" + std::to_string(node->input_size());
    int64_t count = 1;
    for (int64_t dim : dims) count *= dim;
    model.floats(name, dims, std::vector<float>(static_cast<size_t>(count), 0.5f));
    node->add_input(name);
    return *this;
  }
  Case& absent() {
    node->add_input("");
    return *this;
  }
  Case& outputs(const std::vector<std::string>& names) {
    for (const auto& name : names) {
      node->add_output(name);
      model.output(name);
    }
    return *this;
  }

  std::string type() const { return output_type(*imported(model).graph); }
  std::string operators() const { return onnx_import::operators(*imported(model).graph); }
  std::string attribute(std::string_view name) const { return list(only(*graph(), node->op_type()), name); }
  std::string text(std::string_view name) const { return only(*graph(), node->op_type()).string_or(name, "none"); }
  int64_t integer(std::string_view name) const { return only(*graph(), node->op_type()).int_or(name, -99); }
  double number(std::string_view name) const { return only(*graph(), node->op_type()).float_or(name, -99); }
  std::string refused(Code code) const {
    const Status status = refusal(model);
    EXPECT_EQ(status.code(), code) << status.to_string();
    return status.message();
  }

  TestModel model;
  onnx_pb::NodeProto* node;

 private:
  const ir::Graph* graph() const {
    kept_ = imported(model).graph;
    return kept_.get();
  }
  mutable std::unique_ptr<ir::Graph> kept_;
};

using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;

TEST(ImportReshape, ShapesAreWorkedOut) {
  EXPECT_EQ(Case("Reshape", 13).operand(Ints{0, -1}).attribute("shape"), "[n, 144]");
  EXPECT_EQ(Case("Reshape", 5 + 3).operand(Ints{-1, 36}).attribute("shape"), "[4*n, 36]");
  EXPECT_EQ(Case("Reshape", 14, {"2", "4"}).operand(Ints{8}).type(), "f32 [8]");
  EXPECT_THAT(Case("Reshape", 14).operand(Ints{0, -1, -1}).refused(Code::kInvalidArgument),
              HasSubstr("two dims of -1"));
  EXPECT_THAT(Case("Reshape", 14).operand(Ints{1, 1, 1, 1, 0}).refused(Code::kInvalidArgument),
              HasSubstr("copies dim 4 of an input with 4"));
  EXPECT_THAT(Case("Reshape", 14).with("allowzero", 1).operand(Ints{0, -1}).refused(Code::kInvalidArgument),
              HasSubstr("a dim of 0"));
  EXPECT_THAT(Case("Reshape", 14, {"7"}).operand(Ints{2, -1}).refused(Code::kInvalidArgument),
              HasSubstr("7 elements cannot be reshaped"));
  EXPECT_THAT(Case("Reshape", 14).operand(Ints{-2}).refused(Code::kInvalidArgument),
              HasSubstr("dim 0 of its shape is -2"));
  EXPECT_THAT(Case("Reshape", 14).operand(Floats{1}).refused(Code::kInvalidArgument),
              HasSubstr("is f32; i64 is expected"));
  EXPECT_THAT(Case("Reshape", 13).with("allowzero", 1).operand(Ints{-1}).refused(Code::kUnsupported),
              HasSubstr("attribute 'allowzero'"));
}

TEST(ImportReshape, FlattenIsAReshape) {
  EXPECT_EQ(Case("Flatten", 9).operators(), "Reshape");
  EXPECT_EQ(Case("Flatten", 9).type(), "f32 [n, 144]");
  EXPECT_EQ(Case("Flatten", 13).with("axis", 0).type(), "f32 [1, 144*n]");
  EXPECT_EQ(Case("Flatten", 13).with("axis", 4).type(), "f32 [144*n, 1]");
  EXPECT_EQ(Case("Flatten", 13).with("axis", -1).type(), "f32 [24*n, 6]");
  EXPECT_THAT(Case("Flatten", 13).with("axis", 5).refused(Code::kInvalidArgument),
              HasSubstr("axis 5 is outside [-4, 4)"));
}

TEST(ImportReshape, SqueezeAndUnsqueezeTakeAxesEitherWay) {
  EXPECT_EQ(Case("Squeeze", 11, {"n", "1", "5", "1"}).with("axes", Ints{-1, 1}).attribute("axes"), "[1, 3]");
  EXPECT_EQ(Case("Squeeze", 13, {"n", "1", "5", "1"}).operand(Ints{-1, 1}).type(), "f32 [n, 5]");
  EXPECT_EQ(Case("Squeeze", 13, {"2", "1", "5", "1"}).type(), "f32 [2, 5]");
  EXPECT_THAT(Case("Squeeze", 13, {"n", "1"}).refused(Code::kUnsupported), HasSubstr("whether dim 0"));
  EXPECT_EQ(Case("Unsqueeze", 11, {"n", "5"}).with("axes", Ints{0, -1}).type(), "f32 [1, n, 5, 1]");
  EXPECT_EQ(Case("Unsqueeze", 13, {"n", "5"}).operand(Ints{3, 1}).attribute("axes"), "[1, 3]");
  EXPECT_THAT(Case("Unsqueeze", 13, {"n"}).operand(Ints{0, 0}).refused(Code::kInvalidArgument),
              HasSubstr("given twice"));
  EXPECT_THAT(Case("Unsqueeze", 11, {"n"}).refused(Code::kInvalidArgument), HasSubstr("no axes"));
  EXPECT_THAT(Case("Unsqueeze", 13, {"n"}).operand(Ints{0}).with("axes", Ints{0}).refused(Code::kUnsupported),
              HasSubstr("attribute 'axes'"));
}

TEST(ImportShapes, ArithmeticOnExtentsBecomesAShape) {
  TestModel model;  // as exporters write y = x.view(x.size(0), 2, -1)
  model.input("x", {"batch", "seq", "8"}).output("y");
  model.node("Shape", {"x"}, {"s"});
  model.ints("zero", {}, {0}).ints("one", {}, {1}).ints("axis", {1}, {0}).ints("rest", {1}, {-1}).ints("two", {}, {2});
  model.node("Gather", {"s", "zero"}, {"b"});
  model.node("Gather", {"s", "one"}, {"q"});
  model.node("Mul", {"q", "two"}, {"q2"});
  model.node("Unsqueeze", {"b", "axis"}, {"b1"});
  model.node("Unsqueeze", {"q2", "axis"}, {"q1"});
  set(model.node("Concat", {"b1", "q1", "rest"}, {"shape"}), "axis", 0);
  model.node("Reshape", {"x", "shape"}, {"y"});
  const auto result = imported(model);
  EXPECT_EQ(operators(*result.graph), "Reshape");
  EXPECT_EQ(output_type(*result.graph), "f32 [batch, 2*seq, 4]");
}

TEST(ImportShapes, ArithmeticInFloatingPointIsEvaluated) {
  TestModel model(11);  // as exporters write interpolate(scale_factor=2) of a fixed image
  model.input("x", {"n", "3", "8", "10"}).output("y");
  model.node("Shape", {"x"}, {"s"});
  model.ints("start", {1}, {2})
      .ints("end", {1}, {4})
      .floats("two", {}, {2})
      .floats("none", {0}, {})
      .ints("begin", {1}, {0});
  model.node("Slice", {"s", "start", "end"}, {"hw"});
  set(model.node("Cast", {"hw"}, {"f"}), "to", int64_t{kTypeFloat});
  model.node("Mul", {"f", "two"}, {"scaled"});
  model.node("Floor", {"scaled"}, {"whole"});
  set(model.node("Cast", {"whole"}, {"sizes"}), "to", int64_t{kTypeInt64});
  model.node("Slice", {"s", "begin", "start"}, {"nc"});
  set(model.node("Concat", {"nc", "sizes"}, {"all"}), "axis", 0);
  model.node("Resize", {"x", "none", "none", "all"}, {"y"});
  EXPECT_EQ(output_type(*imported(model).graph), "f32 [n, 3, 16, 20]");
}

TEST(ImportShapes, PadsThatAreReversedByNodes) {
  TestModel model;  // as exporters write pad(x, (1, 2)): pads from the last dim on, as [begin, end] pairs
  model.input("x", {"n", "5"}).output("y");
  model.ints("last", {2}, {1, 2}).ints("two", {1}, {2}).ints("pair", {2}, {-1, 2}).ints("flat", {1}, {-1});
  model.ints("from", {1}, {-1}).ints("to", {1}, {INT64_MIN}).ints("axis", {1}, {0}).ints("back", {1}, {-1});
  model.node("ConstantOfShape", {"two"}, {"fill"});
  set(model.node("Cast", {"fill"}, {"zeros"}), "to", int64_t{kTypeInt64});
  set(model.node("Concat", {"last", "zeros"}, {"all"}), "axis", 0);
  model.node("Reshape", {"all", "pair"}, {"pairs"});
  model.node("Slice", {"pairs", "from", "to", "axis", "back"}, {"reversed"});
  set(model.node("Transpose", {"reversed"}, {"columns"}), "perm", Ints{1, 0});
  model.node("Reshape", {"columns", "flat"}, {"pads"});
  model.node("Pad", {"x", "pads"}, {"y"});
  const auto result = imported(model);
  EXPECT_EQ(list(only(*result.graph, "Pad"), "pads"), "[0, 1, 0, 2]");
  EXPECT_EQ(output_type(*result.graph), "f32 [n, 8]");
}

TEST(ImportShapes, ShapeAndConstants) {
  EXPECT_EQ(Case("Shape", 13).type(), "i64 [4]");
  EXPECT_EQ(Case("Shape", 15).with("start", 1).with("end", -1).type(), "i64 [2]");
  EXPECT_EQ(Case("Shape", 15).with("start", 3).with("end", 1).type(), "i64 [0]");
  EXPECT_EQ(Case("Size", 13).type(), "i64 []");

  TestModel model;
  model.input("n", {"batch", "2"}).output("a").output("b").output("c").output("d").output("e");
  set(model.node("Constant", {}, {"a"}), "value_float", 2.5f);
  set(model.node("Constant", {}, {"b"}), "value_ints", Ints{1, 2});
  set(model.node("Constant", {}, {"c"}), "value_floats", Floats{1, 2, 3});
  set(model.node("Constant", {}, {"d"}), "value_int", 7);
  auto& value = *attribute(model.node("Constant", {}, {"e"}), "value", kAttributeTensor).mutable_t();
  value.set_data_type(kTypeDouble);
  value.add_double_data(0.125);
  const auto result = imported(model);
  EXPECT_EQ(operators(*result.graph), "");
  EXPECT_EQ(output_type(*result.graph, 0), "f32 []");
  EXPECT_EQ(output_type(*result.graph, 1), "i64 [2]");
  EXPECT_EQ(output_type(*result.graph, 2), "f32 [3]");
  EXPECT_EQ(result.graph->outputs()[3]->constant->as_int(0), 7);
  EXPECT_EQ(result.graph->outputs()[4]->constant->as_double(0), 0.125);

  TestModel text;
  text.output("a");
  set(text.node("Constant", {}, {"a"}), "value_string", "hello");
  EXPECT_EQ(refusal(text).code(), Code::kUnsupported);
  TestModel none;
  none.output("a");
  none.node("Constant", {}, {"a"});
  EXPECT_THAT(refusal(none).message(), HasSubstr("it has 0 values; one is expected"));
}

TEST(ImportShapes, ConstantOfShapeAndRange) {
  TestModel model;
  model.input("x", {"batch", "seq"}).output("y").output("r").output("d");
  model.node("Shape", {"x"}, {"s"});
  auto& value = *attribute(model.node("ConstantOfShape", {"s"}, {"y"}), "value", kAttributeTensor).mutable_t();
  value.set_data_type(kTypeInt64);
  value.add_dims(1);
  value.add_int64_data(3);
  model.ints("zero", {}, {0}).ints("one", {}, {1}).ints("minus", {}, {-2});
  model.node("Gather", {"s", "one"}, {"q"});
  model.node("Range", {"zero", "q", "one"}, {"r"});
  model.node("Range", {"q", "zero", "minus"}, {"d"});
  const auto result = imported(model);
  EXPECT_EQ(output_type(*result.graph, 0), "i64 [batch, seq]");
  EXPECT_EQ(output_type(*result.graph, 1), "i64 [seq]");
  EXPECT_EQ(output_type(*result.graph, 2), "i64 [floor((seq + 1) / 2)]");

  TestModel floats;
  floats.floats("a", {}, {0.5f}).floats("b", {}, {3}).floats("c", {}, {0.75f}).output("y");
  floats.node("Range", {"a", "b", "c"}, {"y"});
  EXPECT_EQ(output_type(*imported(floats).graph), "f32 [4]");
  TestModel endless;
  endless.ints("a", {}, {0}).ints("b", {}, {3}).ints("c", {}, {0}).output("y");
  endless.node("Range", {"a", "b", "c"}, {"y"});
  EXPECT_THAT(refusal(endless).message(), HasSubstr("its delta is 0"));
}

TEST(ImportSlice, AttributesAndOperands) {
  EXPECT_EQ(
      Case("Slice", 9).with("starts", Ints{1, 0}).with("ends", Ints{3, INT64_MAX}).with("axes", Ints{-1, 1}).type(),
      "f32 [n, 4, 6, 2]");
  EXPECT_EQ(Case("Slice", 9).with("starts", Ints{0}).with("ends", Ints{1}).attribute("axes"), "[0]");
  Case operands("Slice", 13);
  operands.operand(Ints{5}).operand(Ints{INT64_MIN}).operand(Ints{3}).operand(Ints{-2});
  EXPECT_EQ(operands.type(), "f32 [n, 4, 6, 3]");
  EXPECT_EQ(operands.attribute("steps"), "[-2]");
  EXPECT_THAT(Case("Slice", 13).operand(Ints{0}).operand(Ints{1, 2}).refused(Code::kInvalidArgument),
              HasSubstr("1 starts, 2 ends"));
  EXPECT_THAT(Case("Slice", 13)
                  .operand(Ints{0})
                  .operand(Ints{1})
                  .operand(Ints{0})
                  .operand(Ints{0})
                  .refused(Code::kInvalidArgument),
              HasSubstr("a step is 0"));
  EXPECT_THAT(
      Case("Slice", 13).operand(Ints{0, 0}).operand(Ints{1, 1}).operand(Ints{1, -3}).refused(Code::kInvalidArgument),
      HasSubstr("axis 1 is given twice"));
}

TEST(ImportSplit, Parts) {
  EXPECT_EQ(Case("Split", 11).with("axis", 1).with("split", Ints{1, 3}).outputs({"z"}).attribute("split"), "[1, 3]");
  EXPECT_EQ(Case("Split", 13).with("axis", 1).operand(Ints{1, 3}).outputs({"z"}).type(), "f32 [n, 1, 6, 6]");
  EXPECT_EQ(Case("Split", 13).with("axis", -1).outputs({"z", "w"}).attribute("split"), "[2, 2, 2]");
  EXPECT_EQ(Case("Split", 18, {"n", "7"}).with("axis", 1).with("num_outputs", 3).outputs({"z", "w"}).attribute("split"),
            "[3, 3, 1]");
  EXPECT_THAT(Case("Split", 13, {"n", "7"}).with("axis", 1).outputs({"z"}).refused(Code::kInvalidArgument),
              HasSubstr("7 cannot be split into 2 equal parts"));
  EXPECT_THAT(Case("Split", 13).with("axis", 1).operand(Ints{1, 3}).refused(Code::kInvalidArgument),
              HasSubstr("2 parts but 1 outputs"));
  EXPECT_THAT(Case("Split", 18).with("num_outputs", 3).outputs({"z"}).refused(Code::kInvalidArgument),
              HasSubstr("'num_outputs' is 3"));
}

TEST(ImportMove, TransposeConcatExpandTile) {
  EXPECT_EQ(Case("Transpose", 13).attribute("perm"), "[3, 2, 1, 0]");
  EXPECT_THAT(Case("Transpose", 13).with("perm", Ints{0, 0, 1, 2}).refused(Code::kInvalidArgument),
              HasSubstr("not a permutation"));
  EXPECT_THAT(Case("Transpose", 13).with("perm", Ints{0}).refused(Code::kInvalidArgument), HasSubstr("1 axes"));
  Case concat("Concat", 13);
  concat.node->add_input("x");
  EXPECT_EQ(concat.with("axis", -3).integer("axis"), 1);
  EXPECT_EQ(Case("Expand", 13, {"n", "1"}).operand(Ints{1, 1, 5}).type(), "f32 [1, n, 5]");
  EXPECT_EQ(Case("Tile", 13, {"n", "2"}).operand(Ints{3, 2}).type(), "f32 [3*n, 4]");
}

TEST(ImportMove, DepthAndSpace) {
  EXPECT_EQ(Case("DepthToSpace", 13).with("blocksize", 2).operators(), "Reshape Transpose Reshape");
  EXPECT_EQ(Case("DepthToSpace", 13).with("blocksize", 2).type(), "f32 [n, 1, 12, 12]");
  EXPECT_EQ(Case("SpaceToDepth", 13).with("blocksize", 2).type(), "f32 [n, 16, 3, 3]");
  EXPECT_THAT(Case("SpaceToDepth", 13).with("blocksize", 4).refused(Code::kInvalidArgument),
              HasSubstr("does not divide"));
}

TEST(ImportPad, ThreeForms) {
  EXPECT_EQ(Case("Pad", 10, {"n", "4"}).with("pads", Ints{0, 1, 0, 2}).with("value", 1.5f).number("value"), 1.5);
  EXPECT_EQ(Case("Pad", 11, {"n", "4"}).operand(Ints{0, 1, 0, 2}).operand(Floats{2}, true).type(), "f32 [n, 7]");
  EXPECT_EQ(Case("Pad", 18, {"n", "4"}).operand(Ints{1, 2}).absent().operand(Ints{-1}).attribute("pads"),
            "[0, 1, 0, 2]");
  EXPECT_EQ(Case("Pad", 13, {"n", "4"}).with("mode", "reflect").operand(Ints{0, -1, 0, 2}).text("mode"), "reflect");
  EXPECT_EQ(Case("Pad", 13, {"n", "4"}).operand(Ints{0, 0, 0, 0}).operators(), "");
  // Beyond what a double holds.
  Case integers("Pad", 13, {"n", "4"}, kTypeInt64);
  EXPECT_EQ(integers.operand(Ints{0, 1, 0, 2}).operand(Ints{9007199254740993}, true).integer("value"),
            9007199254740993);
  EXPECT_THAT(Case("Pad", 13, {"n", "4"}).operand(Ints{0, 0}).refused(Code::kInvalidArgument),
              HasSubstr("2 pads; two for each of 2 axes"));
  EXPECT_THAT(
      Case("Pad", 13, {"n", "4"}).with("mode", "mirror").operand(Ints{0, 0, 0, 1}).refused(Code::kInvalidArgument),
      HasSubstr("'mirror'"));
}

TEST(ImportClip, BoundsAsAttributesAndOperands) {
  EXPECT_EQ(Case("Clip", 10).with("min", 0.0f).with("max", 6.0f).number("max"), 6);
  EXPECT_EQ(Case("Clip", 10).operators(), "");
  EXPECT_EQ(Case("Clip", 13).operand(Floats{0}, true).operand(Floats{6}, true).number("max"), 6);
  EXPECT_EQ(Case("Clip", 13).absent().operand(Floats{6}, true).number("min"), -99);
  Case computed("Clip", 13);
  computed.model.input("low", {});
  computed.node->add_input("low");
  EXPECT_EQ(computed.operand(Floats{6}, true).operators(), "Max Min");
  EXPECT_THAT(Case("Clip", 13).operand(Ints{0}, true).refused(Code::kInvalidArgument), HasSubstr("another type"));
}

TEST(ImportDropout, IsNothingAtInference) {
  EXPECT_EQ(Case("Dropout", 10).with("ratio", 0.1f).operators(), "");
  Case off("Dropout", 13);
  off.operand(Floats{0.5f}, true).model.tensor("off", kTypeBool, {}).add_int32_data(0);
  off.node->add_input("off");
  EXPECT_EQ(off.operators(), "");
  Case on("Dropout", 13);
  on.operand(Floats{0.5f}, true).model.tensor("on", kTypeBool, {}).add_int32_data(1);
  on.node->add_input("on");
  EXPECT_THAT(on.refused(Code::kUnsupported), HasSubstr("training_mode is set"));
}

TEST(ImportSoftmax, FlattensBeforeOpset13) {
  EXPECT_EQ(Case("Softmax", 13).integer("axis"), 3);
  EXPECT_EQ(Case("Softmax", 13).with("axis", 1).operators(), "Softmax");
  EXPECT_EQ(Case("Softmax", 11, {"n", "10"}).operators(), "Softmax");
  EXPECT_EQ(Case("Softmax", 11, {"n", "10", "1", "1"}).integer("axis"), 1);
  EXPECT_EQ(Case("Softmax", 11).operators(), "Reshape Softmax Reshape");
  EXPECT_EQ(Case("Softmax", 11).type(), "f32 [n, 4, 6, 6]");
  EXPECT_EQ(Case("LogSoftmax", 9).with("axis", 3).operators(), "LogSoftmax");
  EXPECT_EQ(Case("Hardmax", 13).type(), "f32 [n, 4, 6, 6]");
}

TEST(ImportReduce, AxesAsAttributesAndOperands) {
  EXPECT_EQ(Case("ReduceMean", 13).with("axes", Ints{-1, 2}).attribute("axes"), "[2, 3]");
  EXPECT_EQ(Case("ReduceMean", 18).operand(Ints{-1}).with("keepdims", 0).type(), "f32 [n, 4, 6]");
  EXPECT_EQ(Case("ReduceSum", 11).with("axes", Ints{1}).attribute("axes"), "[1]");
  EXPECT_EQ(Case("ReduceSum", 13).operand(Ints{1}).attribute("axes"), "[1]");
  EXPECT_EQ(Case("ReduceMax", 13).with("keepdims", 0).type(), "f32 []");
  EXPECT_EQ(Case("ReduceSum", 13).with("noop_with_empty_axes", 1).operators(), "");
  EXPECT_THAT(Case("ReduceL2", 18).with("noop_with_empty_axes", 1).refused(Code::kUnsupported),
              HasSubstr("noop_with_empty_axes"));
  EXPECT_THAT(Case("ReduceSum", 13).operand(Ints{4}).refused(Code::kInvalidArgument),
              HasSubstr("4 is outside [-4, 4)"));
  EXPECT_THAT(Case("ReduceMean", 18).operand(Ints{1}).with("axes", Ints{1}).refused(Code::kUnsupported),
              HasSubstr("attribute 'axes'"));
  EXPECT_EQ(Case("ArgMax", 13).with("axis", -1).with("keepdims", 0).type(), "i64 [n, 4, 6]");
}

TEST(ImportConv, PadsAreExplicit) {
  EXPECT_EQ(Case("Conv", 11).weights({8, 4, 3, 3}).attribute("pads"), "[0, 0, 0, 0]");
  EXPECT_EQ(Case("Conv", 11).weights({8, 4, 3, 3}).attribute("kernel_shape"), "[3, 3]");
  EXPECT_EQ(Case("Conv", 11)
                .with("auto_pad", "SAME_UPPER")
                .with("strides", Ints{2, 2})
                .weights({8, 4, 3, 3})
                .attribute("pads"),
            "[0, 0, 1, 1]");
  EXPECT_EQ(Case("Conv", 11)
                .with("auto_pad", "SAME_LOWER")
                .with("strides", Ints{2, 2})
                .weights({8, 4, 3, 3})
                .attribute("pads"),
            "[1, 1, 0, 0]");
  EXPECT_EQ(Case("Conv", 11).with("auto_pad", "VALID").weights({8, 4, 3, 3}).type(), "f32 [n, 8, 4, 4]");
  EXPECT_EQ(Case("Conv", 11, {"n", "4", "h", "w"}).with("auto_pad", "SAME_UPPER").weights({8, 4, 3, 3}).type(),
            "f32 [n, 8, h, w]");
  EXPECT_EQ(Case("Conv", 11, {"n", "4", "h", "w"})
                .with("auto_pad", "SAME_UPPER")
                .with("strides", Ints{2, 2})
                .weights({8, 4, 3, 3})
                .text("auto_pad"),
            "SAME_UPPER");
  EXPECT_THAT(Case("Conv", 11).with("kernel_shape", Ints{5, 5}).weights({8, 4, 3, 3}).refused(Code::kInvalidArgument),
              HasSubstr("'kernel_shape' is [5, 5] but the weights have [3, 3]"));
  EXPECT_THAT(Case("Conv", 11).with("strides", Ints{0, 1}).weights({8, 4, 3, 3}).refused(Code::kInvalidArgument),
              HasSubstr("'strides' holds 0"));
  EXPECT_THAT(Case("Conv", 11).with("pads", Ints{1, 1}).weights({8, 4, 3, 3}).refused(Code::kInvalidArgument),
              HasSubstr("'pads' has 2 values; 4"));
  EXPECT_THAT(Case("Conv", 11).with("auto_pad", "SOME").weights({8, 4, 3, 3}).refused(Code::kInvalidArgument),
              HasSubstr("'auto_pad' is 'SOME'"));
  EXPECT_EQ(refusal(Case("Conv", 11).weights({8, 5, 3, 3}).model).code(), Code::kInvalidArgument);
}

TEST(ImportConv, TransposedPadsFollowFromTheOutput) {
  EXPECT_EQ(
      Case("ConvTranspose", 11).with("strides", Ints{2, 2}).with("auto_pad", "SAME_UPPER").weights({4, 8, 3, 3}).type(),
      "f32 [n, 8, 12, 12]");
  EXPECT_EQ(Case("ConvTranspose", 11)
                .with("strides", Ints{2, 2})
                .with("auto_pad", "SAME_LOWER")
                .weights({4, 8, 3, 3})
                .attribute("pads"),
            "[1, 1, 0, 0]");
  EXPECT_EQ(Case("ConvTranspose", 11, {"n", "4", "h", "w"})
                .with("strides", Ints{4, 4})
                .with("auto_pad", "SAME_UPPER")
                .weights({4, 8, 3, 3})
                .type(),
            "f32 [n, 8, 4*h, 4*w]");
  EXPECT_EQ(Case("ConvTranspose", 11)
                .with("strides", Ints{2, 2})
                .with("output_shape", Ints{12, 11})
                .weights({4, 8, 3, 3})
                .type(),
            "f32 [n, 8, 12, 11]");
  EXPECT_EQ(Case("ConvTranspose", 11)
                .with("strides", Ints{2, 2})
                .with("output_padding", Ints{1, 1})
                .weights({4, 8, 3, 3})
                .type(),
            "f32 [n, 8, 14, 14]");
  EXPECT_THAT(Case("ConvTranspose", 11, {"n", "4", "h", "6"})
                  .with("output_shape", Ints{12, 12})
                  .weights({4, 8, 3, 3})
                  .refused(Code::kUnsupported),
              HasSubstr("varying extent"));
}

TEST(ImportPool, AttributesByOpset) {
  EXPECT_EQ(Case("MaxPool", 8).with("kernel_shape", Ints{3, 3}).with("storage_order", 1).type(), "f32 [n, 4, 4, 4]");
  EXPECT_EQ(
      Case("MaxPool", 12).with("kernel_shape", Ints{2, 2}).with("strides", Ints{4, 4}).with("ceil_mode", 1).type(),
      "f32 [n, 4, 2, 2]");
  EXPECT_EQ(Case("MaxPool", 12).with("kernel_shape", Ints{2, 2}).with("dilations", Ints{2, 2}).type(),
            "f32 [n, 4, 4, 4]");
  EXPECT_THAT(
      Case("MaxPool", 8).with("kernel_shape", Ints{2, 2}).with("dilations", Ints{2, 2}).refused(Code::kUnsupported),
      HasSubstr("'dilations'"));
  EXPECT_THAT(Case("MaxPool", 12).refused(Code::kInvalidArgument), HasSubstr("'kernel_shape' is missing"));
  EXPECT_THAT(Case("MaxPool", 12).with("kernel_shape", Ints{2, 2}).outputs({"indices"}).refused(Code::kUnsupported),
              HasSubstr("output 1 ('indices')"));
  EXPECT_EQ(Case("AveragePool", 11)
                .with("kernel_shape", Ints{3, 3})
                .with("pads", Ints{1, 1, 1, 1})
                .with("count_include_pad", 1)
                .integer("count_include_pad"),
            1);
  EXPECT_EQ(Case("GlobalAveragePool", 9).type(), "f32 [n, 4, 1, 1]");
  EXPECT_EQ(Case("GlobalMaxPool", 9).type(), "f32 [n, 4, 1, 1]");
}

TEST(ImportNormalization, InferenceForms) {
  const auto batch_norm = [](int64_t opset) {
    Case c("BatchNormalization", opset);
    c.weights({4}).weights({4}).weights({4}).weights({4});
    return c;
  };
  EXPECT_EQ(batch_norm(9).with("momentum", 0.9f).type(), "f32 [n, 4, 6, 6]");
  EXPECT_FLOAT_EQ(batch_norm(15).with("epsilon", 1e-3f).number("epsilon"), 1e-3f);
  EXPECT_THAT(batch_norm(15).with("training_mode", 1).refused(Code::kUnsupported), HasSubstr("'training_mode' is set"));
  EXPECT_THAT(batch_norm(7).with("spatial", 0).refused(Code::kUnsupported), HasSubstr("'spatial' is 0"));
  EXPECT_THAT(batch_norm(9).with("spatial", 1).refused(Code::kUnsupported), HasSubstr("attribute 'spatial'"));
  EXPECT_EQ(Case("LayerNormalization", 17, {"n", "8"}).weights({8}).weights({8}).integer("axis"), 1);
  EXPECT_EQ(Case("InstanceNormalization", 9).weights({4}).weights({4}).type(), "f32 [n, 4, 6, 6]");
  EXPECT_EQ(Case("GroupNormalization", 18).with("num_groups", 2).weights({2}).weights({2}).type(), "f32 [n, 4, 6, 6]");
  EXPECT_EQ(Case("GroupNormalization", 21).with("num_groups", 2).weights({4}).weights({4}).operators(),
            "GroupNormalization");
  EXPECT_EQ(Case("LRN", 13).with("size", 3).type(), "f32 [n, 4, 6, 6]");
  EXPECT_EQ(Case("LpNormalization", 9).with("axis", 1).type(), "f32 [n, 4, 6, 6]");
  EXPECT_EQ(Case("MeanVarianceNormalization", 13).type(), "f32 [n, 4, 6, 6]");
}

TEST(ImportResize, EveryOpset) {
  EXPECT_EQ(Case("Upsample", 7).with("scales", Floats{1, 1, 2, 2}).operators(), "Resize");
  EXPECT_EQ(Case("Upsample", 9).operand(Floats{1, 1, 2, 2}).type(), "f32 [n, 4, 12, 12]");
  EXPECT_EQ(Case("Resize", 10).operand(Floats{1, 1, 2, 2}).text("coordinate_transformation_mode"), "asymmetric");
  EXPECT_EQ(Case("Resize", 10).operand(Floats{1, 1, 2, 2}).text("nearest_mode"), "floor");
  Case by_scales("Resize", 11);
  by_scales.with("mode", "linear")
      .with("coordinate_transformation_mode", "align_corners")
      .operand(Floats{})
      .operand(Floats{1, 1, 2, 2});
  EXPECT_EQ(by_scales.text("coordinate_transformation_mode"), "align_corners");
  EXPECT_EQ(by_scales.type(), "f32 [n, 4, 12, 12]");
  EXPECT_EQ(Case("Resize", 13).absent().absent().operand(Ints{1, 4, 9, 9}).attribute("sizes"), "[1, 4, 9, 9]");
  EXPECT_EQ(Case("Resize", 18).with("axes", Ints{-1}).absent().absent().operand(Ints{9}).type(), "f32 [n, 4, 6, 9]");
  EXPECT_EQ(Case("Resize", 18).with("axes", Ints{2, 3}).absent().operand(Floats{2, 3}).type(), "f32 [n, 4, 12, 18]");
  EXPECT_EQ(Case("Resize", 18)
                .with("axes", Ints{2, 3})
                .with("keep_aspect_ratio_policy", "not_larger")
                .absent()
                .absent()
                .operand(Ints{12, 9})
                .type(),
            "f32 [n, 4, 9, 9]");
  EXPECT_THAT(Case("Resize", 13)
                  .with("coordinate_transformation_mode", "tf_crop_and_resize")
                  .absent()
                  .operand(Floats{1, 1, 2, 2})
                  .refused(Code::kUnsupported),
              HasSubstr("'tf_crop_and_resize', which is not supported"));
  EXPECT_THAT(Case("Resize", 18).with("antialias", 1).absent().operand(Floats{1, 1, 2, 2}).refused(Code::kUnsupported),
              HasSubstr("'antialias'"));
  EXPECT_THAT(Case("Resize", 13).absent().refused(Code::kInvalidArgument), HasSubstr("either scales or sizes"));
  EXPECT_THAT(Case("Resize", 13).absent().operand(Floats{1, 1, -2, 2}).refused(Code::kInvalidArgument),
              HasSubstr("a scale is -2"));
}

TEST(ImportCast, TypesAndIdentity) {
  EXPECT_EQ(Case("Cast", 13).with("to", int64_t{kTypeInt64}).type(), "i64 [n, 4, 6, 6]");
  EXPECT_EQ(Case("Cast", 13).with("to", int64_t{kTypeFloat}).operators(), "");
  EXPECT_THAT(Case("Cast", 13).with("to", int64_t{kTypeString}).refused(Code::kUnsupported),
              HasSubstr("a cast to STRING"));
  EXPECT_THAT(Case("Cast", 19).with("to", int64_t{17}).refused(Code::kUnsupported),
              HasSubstr("a cast to FLOAT8E4M3FN"));
  EXPECT_EQ(Case("CastLike", 15).operand(Ints{1}).type(), "i64 [n, 4, 6, 6]");
}

TEST(ImportElementwise, ManyOperandsBecomePairs) {
  Case sum("Sum", 13, {"n", "2"});
  sum.operand(Floats{1, 2}).operand(Floats{3, 4});
  EXPECT_EQ(sum.operators(), "Add Add");
  EXPECT_EQ(Case("Max", 13).operators(), "");
  EXPECT_EQ(Case("Mean", 13, {"2"}).operand(Floats{1, 2}).operators(), "Add Mul");
  EXPECT_EQ(Case("Pow", 13, {"2"}).operand(Ints{2}, true).operators(), "Pow");
  EXPECT_THAT(Case("Mod", 13, {"2"}).operand(Floats{2}).refused(Code::kInvalidArgument), HasSubstr("fmod=1"));
  EXPECT_EQ(Case("Selu", 7).operators(), "Elu Mul");
  EXPECT_EQ(Case("Celu", 12).with("alpha", 2.0f).operators(), "Div Elu Mul");
  EXPECT_EQ(Case("ThresholdedRelu", 10).operators(), "Greater Where");
  EXPECT_EQ(Case("Shrink", 9).type(), "f32 [n, 4, 6, 6]");
  EXPECT_EQ(Case("Swish", 24).operators(), "Sigmoid Mul");
  EXPECT_EQ(Case("Gelu", 20).with("approximate", "tanh").text("approximate"), "tanh");
  EXPECT_THAT(Case("Gelu", 17).refused(Code::kUnsupported), HasSubstr("this operator exists from opset 20 on"));
  EXPECT_EQ(Case("IsInf", 20).with("detect_negative", 0).operators(), "Equal");
  EXPECT_EQ(Case("Trilu", 14).operand(Ints{1}, true).type(), "f32 [n, 4, 6, 6]");
  EXPECT_EQ(Case("EyeLike", 9, {"n", "3"}).with("dtype", int64_t{kTypeInt32}).type(), "i32 [n, 3]");
  EXPECT_EQ(Case("OneHot", 11, {"n"}, kTypeInt64).operand(Ints{5}, true).operand(Floats{0, 1}).type(), "f32 [n, 5]");
}

TEST(ImportProduct, GemmKeepsItsForm) {
  Case gemm("Gemm", 13, {"n", "4"});
  gemm.weights({8, 4}).weights({8}).with("transB", 1).with("alpha", 0.5f);
  EXPECT_EQ(gemm.type(), "f32 [n, 8]");
  EXPECT_EQ(gemm.number("alpha"), 0.5);
  EXPECT_EQ(gemm.integer("transB"), 1);
  EXPECT_EQ(Case("MatMul", 13, {"n", "4"}).weights({4, 8}).type(), "f32 [n, 8]");
}

}  // namespace
}  // namespace flywheel::onnx_import
