// SPDX-License-Identifier: Apache-2.0
// Inference against brute force, and against nonsense: random operands and attributes are refused or typed, never more.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "compiler/ir/verify.h"
#include "compiler/ops/op.h"
#include "compiler/ops/slice.h"

namespace flywheel::ops {
namespace {

// What Python's range(n)[start:end:step] gives.
std::vector<int64_t> python_slice(int64_t n, int64_t start, int64_t end, int64_t step) {
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  auto bound = [&](int64_t b) { return std::clamp(b < 0 ? b + n : b, low, high); };
  std::vector<int64_t> out;
  for (int64_t i = bound(start); step > 0 ? i < bound(end) : i > bound(end); i += step) out.push_back(i);
  return out;
}

TEST(Slice, AgreesWithPythonForEveryExtent) {
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  for (int64_t step : {1, 2, 3, -1, -2, -3}) {
    for (int64_t start : {-kFar, int64_t{-9}, int64_t{-3}, int64_t{-1}, int64_t{0}, int64_t{2}, int64_t{5}, kFar}) {
      for (int64_t end : {-kFar, int64_t{-4}, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{6}, kFar}) {
        ir::Graph graph;
        ir::Value* x = graph.add_input("x", DType::kFloat32, {DimExpr::symbol("n")});
        auto node = add(graph, "Slice", {x},
                        {{"starts", SymShape{start}}, {"ends", SymShape{end}}, {"steps", std::vector<int64_t>{step}}});
        ASSERT_TRUE(node.is_ok()) << node.status().to_string();
        auto ranges = slice_ranges(**node);
        ASSERT_TRUE(ranges.is_ok());
        EXPECT_TRUE(graph.assumptions().empty());
        for (int64_t n = 0; n < 9; ++n) {
          std::vector<int64_t> expected =
              python_slice(n, std::clamp<int64_t>(start, -100, 100), std::clamp<int64_t>(end, -100, 100), step);
          std::map<std::string, int64_t, std::less<>> env{{"n", n}};
          EXPECT_EQ(*(*node)->output()->shape[0].evaluate(env), static_cast<int64_t>(expected.size()))
              << "range(" << n << ")[" << start << ":" << end << ":" << step
              << "]: " << (*node)->output()->shape[0].to_string();
          if (!expected.empty()) {
            EXPECT_EQ(*ranges->at(0).start.evaluate(env), expected[0])
                << n << " " << start << " " << end << " " << step;
          }
        }
      }
    }
  }
}

TEST(Pool, CeilModeAgreesWithItsDefinition) {
  for (int64_t kernel : {1, 2, 3, 5}) {
    for (int64_t stride : {1, 2, 3}) {
      for (int64_t pad = 0; pad < kernel; ++pad) {
        ir::Graph graph;
        ir::Value* x = graph.add_input("x", DType::kFloat32, {1, 1, DimExpr::symbol("n")});
        auto node = add(graph, "MaxPool", {x},
                        {{"kernel_shape", std::vector<int64_t>{kernel}},
                         {"strides", std::vector<int64_t>{stride}},
                         {"pads", std::vector<int64_t>{pad, pad}},
                         {"ceil_mode", int64_t{1}}});
        ASSERT_TRUE(node.is_ok()) << node.status().to_string();
        for (int64_t n = kernel; n < 16; ++n) {
          int64_t out = (n + 2 * pad - kernel + stride - 1) / stride + 1;
          if ((out - 1) * stride >= n + pad) --out;
          EXPECT_EQ(*(*node)->output()->shape[2].evaluate({{"n", n}}), out)
              << kernel << " " << stride << " " << pad << " " << n;
        }
      }
    }
  }
}

class Nonsense {
 public:
  explicit Nonsense(unsigned seed) : rng_(seed) {}

  size_t below(size_t n) { return rng_() % n; }

  int64_t integer() {
    constexpr int64_t kOdd[] = {0,
                                1,
                                2,
                                3,
                                -1,
                                -2,
                                7,
                                64,
                                1 << 20,
                                std::numeric_limits<int32_t>::max(),
                                int64_t{1} << 40,
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()};
    return below(3) != 0 ? static_cast<int64_t>(below(5)) : kOdd[below(std::size(kOdd))];
  }

  DimExpr dim() {
    DimExpr n = DimExpr::symbol("n"), m = DimExpr::symbol("m");
    switch (below(10)) {
      case 0: return n;
      case 1: return m;
      case 2: return n * DimExpr(integer());
      case 3: return DimExpr::floor_div(n + integer(), 2);
      case 4: return n - 3;
      default: return DimExpr(std::max<int64_t>(integer(), 0));
    }
  }

  SymShape shape(size_t max_rank) {
    SymShape out(below(max_rank + 1));
    for (DimExpr& d : out) d = dim();
    return out;
  }

  std::vector<int64_t> integers() {
    std::vector<int64_t> out(below(6));
    for (int64_t& i : out) i = integer();
    return out;
  }

  ir::Attribute attribute() {
    constexpr const char* kTexts[] = {"NHWC", "SAME_UPPER",   "tanh", "edge",           "f16",
                                      "",     "bij,bjk->bik", "->",   "a...b,b...->..."};
    switch (below(12)) {
      case 0: return std::string(kTexts[below(std::size(kTexts))]);
      case 1: return std::vector<double>(below(5), 2.0);
      case 2: return 0.5;
      case 3: return shape(5);
      case 4: return ir::ConstTensor::zeros(DType::kInt64, Dims(below(2), 1));
      case 5: {
        kernels::Program program;
        program.inputs = static_cast<uint8_t>(1 + below(3));
        return program;
      }
      case 6:
      case 7:
      case 8: return integers();
      default: return integer();
    }
  }

 private:
  std::mt19937 rng_;
};

TEST(Infer, NonsenseIsRefusedOrTyped) {
  Nonsense nonsense(11);
  int typed = 0, decomposed = 0;
  for (const Op* op : all_ops()) {
    for (int round = 0; round < 400; ++round) {
      ir::Graph graph;
      std::vector<ir::Value*> inputs;
      size_t most = op->max_inputs < 0 ? 4 : static_cast<size_t>(op->max_inputs);
      size_t count = static_cast<size_t>(op->min_inputs) +
                     nonsense.below(most - std::min(most, static_cast<size_t>(op->min_inputs)) + 1);
      DType dtype = nonsense.below(2) != 0 ? DType::kFloat32 : static_cast<DType>(nonsense.below(kDTypeCount));
      SymShape shared = nonsense.shape(5);
      for (size_t i = 0; i < count; ++i) {
        bool own = nonsense.below(3) == 0;
        DType type = own ? static_cast<DType>(nonsense.below(kDTypeCount)) : dtype;
        if (nonsense.below(4) == 0) {
          inputs.push_back(graph.add_constant("c", ir::ConstTensor::zeros(type, Dims(nonsense.below(3), 3))));
        } else {
          inputs.push_back(graph.add_input("x", type, own ? nonsense.shape(6) : shared));
        }
      }
      ir::Node* node = graph.add_node(op->name, inputs, op->min_outputs + static_cast<int>(nonsense.below(2)));
      for (std::string_view name : op->attributes) {
        if (nonsense.below(3) != 0) node->attributes.emplace(name, nonsense.attribute());
      }
      // Mostly the right types, so that inference gets to see the values.
      for (const char* name : {"axis", "group", "num_groups", "blocksize", "k", "p", "to"}) {
        if (auto it = node->attributes.find(name); it != node->attributes.end()) it->second = nonsense.integer();
      }
      for (const char* name :
           {"axes", "perm", "pads", "strides", "dilations", "kernel_shape", "starts", "ends", "steps"}) {
        if (auto it = node->attributes.find(name); it != node->attributes.end()) it->second = nonsense.integers();
      }
      Status status = infer(*node);
      if (!status.is_ok()) {
        EXPECT_TRUE(status.code() == Code::kInvalidArgument || status.code() == Code::kUnsupported)
            << status.to_string();
        EXPECT_GT(status.message().size(), op->name.size());
        continue;
      }
      ++typed;
      Status valid = ir::verify(graph);
      ASSERT_TRUE(valid.is_ok()) << valid.to_string();
      for (ir::Value* output : node->outputs()) graph.add_output(output, output->name);
      if (!op->decompose) continue;
      std::vector<SymShape> shapes;
      for (const ir::Value* output : graph.outputs()) shapes.push_back(output->shape);
      if (op->decompose(graph, node).is_ok()) {
        ++decomposed;
        for (size_t i = 0; i < shapes.size(); ++i) EXPECT_EQ(graph.outputs()[i]->shape, shapes[i]) << op->name;
      }
      valid = ir::verify(graph);
      ASSERT_TRUE(valid.is_ok()) << valid.to_string();
    }
  }
  EXPECT_GT(typed, 3000);
  EXPECT_GT(decomposed, 100);
}

}  // namespace
}  // namespace flywheel::ops
