// SPDX-License-Identifier: Apache-2.0
// Edits keep use lists, order and names right: checked with verify(), which recomputes them.
#include "compiler/ir/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "compiler/ir/element.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/ops/op.h"

namespace flywheel::ir {
namespace {

Value* add(Graph& graph, std::string_view op, std::vector<Value*> inputs, Node* before = nullptr) {
  Result<Node*> node = ops::add(graph, op, std::move(inputs), {}, before);
  EXPECT_TRUE(node.is_ok()) << node.status().to_string();
  return (*node)->output();
}

#define EXPECT_VALID(graph)                            \
  do {                                                 \
    Status status = verify(graph);                     \
    EXPECT_TRUE(status.is_ok()) << status.to_string(); \
  } while (0)

std::vector<std::string> ops_of(const Graph& graph) {
  std::vector<std::string> out;
  for (const auto& node : graph.nodes()) out.push_back(node->op());
  return out;
}

TEST(Graph, NamesAreUnique) {
  Graph graph;
  Value* x = graph.add_input("x", DType::kFloat32, {2});
  Value* y = graph.add_input("x", DType::kFloat32, {2});
  EXPECT_EQ(x->name, "x");
  EXPECT_EQ(y->name, "x_1");
  EXPECT_EQ(add(graph, "Relu", {x})->name, "Relu");
  EXPECT_EQ(add(graph, "Relu", {y})->name, "Relu_1");
  graph.rename(y, "Relu");
  EXPECT_EQ(y->name, "Relu_2");
  EXPECT_EQ(graph.find_value("x_1"), nullptr);
  EXPECT_EQ(graph.find_value("Relu_2"), y);
  EXPECT_VALID(graph);
}

TEST(Graph, UsesAreInNodeOrderWhereverNodesAreInserted) {
  Graph graph;
  Value* x = graph.add_input("x", DType::kFloat32, {2});
  Value* last = add(graph, "Add", {x, x});
  for (int i = 0; i < 200; ++i) add(graph, "Relu", {x}, last->producer());  // always at the same place: gaps run out
  ASSERT_EQ(x->uses().size(), 202u);
  EXPECT_EQ(x->uses()[201].node, last->producer());
  EXPECT_EQ(x->uses()[201].operand, 1);
  EXPECT_VALID(graph);
}

TEST(Graph, ReplaceUsesMovesOutputsToo) {
  Graph graph;
  Value* x = graph.add_input("x", DType::kFloat32, {2});
  Value *a = add(graph, "Relu", {x}), *b = add(graph, "Neg", {a}), *c = add(graph, "Abs", {x});
  graph.sort();
  graph.add_output(a, "out");
  EXPECT_TRUE(a->is_graph_output());
  EXPECT_EQ(a->single_user(), nullptr);
  graph.replace_uses(a, c);
  EXPECT_FALSE(a->is_graph_output());
  EXPECT_EQ(graph.outputs()[0], c);
  EXPECT_EQ(graph.output_names()[0], "out");
  EXPECT_EQ(b->producer()->input(0), c);
  EXPECT_EQ(verify(graph).code(), Code::kInternal);  // Neg now stands before what it uses
  graph.sort();
  EXPECT_VALID(graph);
  EXPECT_EQ(graph.erase_dead(), 2);
  EXPECT_EQ(ops_of(graph), std::vector<std::string>{"Abs"});
  EXPECT_VALID(graph);
}

TEST(Graph, OperandsCanBeRemovedAndAdded) {
  Graph graph;
  Value *x = graph.add_input("x", DType::kFloat32, {2}), *y = graph.add_input("y", DType::kFloat32, {2});
  Result<Node*> node = ops::add(graph, "Concat", {x, y, x}, {{"axis", int64_t{0}}});
  ASSERT_TRUE(node.is_ok());
  graph.remove_input(*node, 0);
  ASSERT_EQ(x->uses().size(), 1u);
  EXPECT_EQ(x->uses()[0].operand, 1);
  graph.set_input(*node, 3, y);
  EXPECT_EQ((*node)->inputs().size(), 4u);
  EXPECT_EQ((*node)->input(2), nullptr);
  graph.set_input(*node, 2, x);
  ASSERT_TRUE(ops::infer(**node).is_ok());
  EXPECT_VALID(graph);
}

TEST(Graph, DeadConstantsGo) {
  Graph graph;
  Value* x = graph.add_input("x", DType::kFloat32, {2});
  graph.add_constant("unused", ConstTensor::zeros(DType::kFloat32, {2}));
  Value* used = graph.add_constant("used", ConstTensor::zeros(DType::kFloat32, {2}));
  graph.add_output(add(graph, "Add", {x, used}), "y");
  EXPECT_EQ(graph.erase_dead(), 1);
  EXPECT_EQ(graph.find_value("unused"), nullptr);
  EXPECT_EQ(graph.values().size(), 3u);
  EXPECT_VALID(graph);
}

TEST(Graph, RandomEditsKeepInvariants) {
  std::mt19937 rng(3);
  for (int round = 0; round < 20; ++round) {
    Graph graph;
    for (const char* name : {"a", "b", "c"}) graph.add_input(name, DType::kFloat32, {DimExpr::symbol("n"), 4});
    for (int step = 0; step < 120; ++step) {
      std::vector<Value*> values = graph.values();
      auto any = [&] { return values[rng() % values.size()]; };
      std::vector<Node*> nodes;
      for (const auto& node : graph.nodes()) nodes.push_back(node.get());
      switch (rng() % 7) {
        case 0:
        case 1: add(graph, "Add", {any(), any()}); break;
        case 2: {  // somewhere in the middle, using inputs alone
          Node* before = nodes.empty() ? nullptr : nodes[rng() % nodes.size()];
          add(graph, "Mul", {graph.inputs()[rng() % 3], graph.inputs()[rng() % 3]}, before);
          break;
        }
        case 3:
          if (!nodes.empty()) graph.set_input(nodes[rng() % nodes.size()], rng() % 2, graph.inputs()[rng() % 3]);
          break;
        case 4: graph.replace_uses(any(), graph.inputs()[rng() % 3]); break;
        case 5: graph.add_output(any(), "o" + std::to_string(step)); break;
        default:
          for (Node* node : nodes) {
            if (node->output()->uses().empty() && !node->output()->is_graph_output()) {
              graph.erase(node);
              break;
            }
          }
      }
      if (step % 40 == 39) graph.erase_dead();
      if (step % 50 == 49) graph.sort();
      Status status = verify(graph);
      ASSERT_TRUE(status.is_ok()) << "step " << step << ": " << status.to_string();
    }
  }
}

TEST(Graph, SortIsStableAndKeepsWhatIsRight) {
  Graph graph;
  Value* x = graph.add_input("x", DType::kFloat32, {2});
  Value *a = add(graph, "Relu", {x}), *b = add(graph, "Neg", {x}), *c = add(graph, "Add", {a, b});
  graph.add_output(c, "y");
  graph.sort();
  EXPECT_EQ(ops_of(graph), (std::vector<std::string>{"Relu", "Neg", "Add"}));
  Value* late = add(graph, "Abs", {x});
  graph.set_input(a->producer(), 0, late);
  graph.sort();
  EXPECT_EQ(ops_of(graph), (std::vector<std::string>{"Neg", "Abs", "Relu", "Add"}));
  EXPECT_VALID(graph);
}

TEST(Graph, VerifyNamesWhatAPassBroke) {
  Graph graph;
  Value* x = graph.add_input("x", DType::kFloat32, {2, 3});
  Value* y = add(graph, "Relu", {x});
  y->producer()->sources = {"relu1"};
  graph.add_output(y, "y");
  y->shape = {2, 4};
  Status status = verify(graph);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_NE(status.message().find("Relu 'relu1' (%x)"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("f32[2, 4]"), std::string::npos) << status.message();
  EXPECT_EQ(y->shape, (SymShape{2, 4}));  // as it was
}

TEST(Graph, AssumptionsAreKeptOnce) {
  Graph graph;
  DimExpr n = DimExpr::symbol("n"), m = DimExpr::symbol("m");
  graph.assume(n, n);
  graph.assume(n, m);
  graph.assume(m, n);
  EXPECT_EQ(graph.assumptions().size(), 1u);
  graph.keep_assumptions(0);
  graph.assume(m, n);
  EXPECT_EQ(graph.assumptions().size(), 1u);
}

TEST(ConstTensor, ReadsElementsOfEveryType) {
  for (int i = 0; i < kDTypeCount; ++i) {
    DType dtype = static_cast<DType>(i);
    for (double value : {0.0, 1.0, 3.0, 100.0}) {
      std::vector<std::byte> bytes(dtype_size(dtype));
      store_element(dtype, value, bytes.data());
      ConstTensor tensor = ConstTensor::from<std::byte>(dtype, {}, bytes);
      double expected = dtype == DType::kBool ? (value != 0 ? 1 : 0) : value;
      EXPECT_EQ(tensor.as_double(0), expected) << dtype_name(dtype);
      EXPECT_EQ(tensor.as_int(0), static_cast<int64_t>(expected)) << dtype_name(dtype);
    }
  }
}

double half(double value) {
  std::vector<std::byte> bytes(2);
  store_element(DType::kFloat16, value, bytes.data());
  return ConstTensor::from<std::byte>(DType::kFloat16, {}, bytes).as_double(0);
}

TEST(ConstTensor, RoundsHalvesToNearestEven) {
  EXPECT_EQ(half(65504), 65504);
  EXPECT_EQ(half(65519), 65504);
  EXPECT_EQ(half(65520), INFINITY);
  EXPECT_EQ(half(-0x1p-24), -0x1p-24);
  EXPECT_EQ(half(0x1p-25), 0);
  EXPECT_EQ(half(0x1.8p-24), 0x1p-23);
  EXPECT_EQ(half(0x1.ffep-15), 0x1p-14);  // the largest subnormal rounds up into the normal range
  EXPECT_EQ(half(2049), 2048);
  EXPECT_EQ(half(2051), 2052);
  EXPECT_TRUE(std::isnan(half(NAN)));
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    uint16_t wanted = static_cast<uint16_t>(bits), got = 0;
    double value = ConstTensor::from<uint16_t>(DType::kFloat16, {}, std::span(&wanted, 1)).as_double(0);
    std::byte out[2];
    store_element(DType::kFloat16, value, out);
    std::memcpy(&got, out, 2);
    ASSERT_EQ(got, wanted);
  }
}

TEST(ConstTensor, SaturatesIntegers) {
  std::byte out[8];
  auto stored = [&](DType dtype, double value) {
    store_element(dtype, value, out);
    return ConstTensor::from<std::byte>(dtype, {}, std::span(out, dtype_size(dtype))).as_double(0);
  };
  EXPECT_EQ(stored(DType::kInt8, 300), 127);
  EXPECT_EQ(stored(DType::kInt8, -300), -128);
  EXPECT_EQ(stored(DType::kUInt8, -5), 0);
  EXPECT_EQ(stored(DType::kInt32, 1e30), 2147483647.0);
  EXPECT_EQ(stored(DType::kInt64, NAN), 0);
  EXPECT_EQ(stored(DType::kInt16, -2.9), -2);
}

TEST(Subgraph, UsesValuesOfItsParent) {
  auto graph = parse(R"(graph @outer {
    input %x: f32[2]
    %y: f32[2] = Relu(%x)
    output %y
  })");
  ASSERT_TRUE(graph.is_ok()) << graph.status().to_string();
  Value* y = (*graph)->find_value("y");
  auto body = std::make_shared<Graph>();
  body->parent = graph->get();
  Value* inner = add(*body, "Neg", {y});
  body->add_output(inner, "inner");
  body->add_output(y, "through");
  Value* x = (*graph)->find_value("x");
  ASSERT_EQ(y->uses().size(), 1u);
  (*graph)->replace_uses(y, x);
  EXPECT_EQ(inner->producer()->input(0), x);
  EXPECT_EQ(body->find_value("x"), x);
  body.reset();
  EXPECT_EQ(x->uses().size(), 1u);  // the Relu
  EXPECT_VALID(**graph);
}

}  // namespace
}  // namespace flywheel::ir
