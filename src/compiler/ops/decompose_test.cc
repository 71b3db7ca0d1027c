// SPDX-License-Identifier: Apache-2.0
// Decompositions compute what the operator is defined to: a plain evaluator runs the nodes they give on small tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/ops/op.h"
#include "kernels/program_scalar.h"

namespace flywheel::ops {
namespace {

struct Tensor {
  Dims dims;
  std::vector<double> data;
};

Dims indices_of(int64_t flat, const Dims& dims) {
  Dims out(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    out[i] = flat % dims[i];
    flat /= dims[i];
  }
  return out;
}

// The element that broadcasts to `at`, whose rank may be larger.
double broadcast_at(const Tensor& t, const Dims& at) {
  int64_t flat = 0;
  for (size_t i = 0; i < t.dims.size(); ++i) {
    int64_t index = at[at.size() - t.dims.size() + i];
    flat = flat * t.dims[i] + (t.dims[i] == 1 ? 0 : index);
  }
  return t.data[static_cast<size_t>(flat)];
}

class Evaluator {
 public:
  std::map<const ir::Value*, Tensor> values;

  void run(const ir::Graph& graph) {
    for (const ir::Value* value : graph.values()) {
      if (!value->constant) continue;
      Tensor t{value->constant->dims, {}};
      for (int64_t i = 0; i < value->constant->elements(); ++i) t.data.push_back(value->constant->as_double(i));
      values[value] = std::move(t);
    }
    for (const auto& node : graph.nodes()) values[node->output()] = evaluate(*node);
  }

 private:
  Tensor evaluate(const ir::Node& node) {
    const ir::Value& out = *node.output();
    Tensor result;
    for (const DimExpr& dim : out.shape) result.dims.push_back(*dim.constant());
    auto in = [&](size_t i) -> const Tensor& { return values.at(node.input(i)); };
    for (int64_t flat = 0; flat < element_count(result.dims); ++flat) {
      Dims at = indices_of(flat, result.dims);
      double value = 0;
      const Op& op = *find_op(node.op());
      if (op.instruction) {
        kernels::Instruction code = *op.instruction(node);
        uint8_t n = static_cast<uint8_t>(node.inputs().size());
        code.a = 0;
        code.b = n > 1 ? 1 : 0;
        code.c = n > 2 ? 2 : 0;
        code.dst = n;
        kernels::Program program{DType::kFloat64, n, {code}, n};
        double operands[3] = {};
        for (size_t i = 0; i < n; ++i) operands[i] = broadcast_at(in(i), at);
        value = kernels::evaluate_scalar(program, operands);
        if (!is_float(out.dtype)) value = out.dtype == DType::kBool ? (value != 0 ? 1 : 0) : std::trunc(value);
      } else if (node.op() == "Reshape" || node.op() == "Identity") {
        value = in(0).data[static_cast<size_t>(flat)];
      } else if (node.op() == "Transpose") {
        auto perm = node.ints_or("perm", {});
        Dims from(at.size());
        for (size_t i = 0; i < perm.size(); ++i) from[static_cast<size_t>(perm[i])] = at[i];
        value = broadcast_at(in(0), from);
      } else if (node.op() == "Range") {
        value = static_cast<double>(flat);
      } else if (node.op() == "MatMul") {
        Dims a = at, b = at;
        int64_t k = in(0).dims.back();
        for (int64_t i = 0; i < k; ++i) {
          a.back() = i;
          b[b.size() - 2] = i;
          value += broadcast_at(in(0), a) * broadcast_at(in(1), b);
        }
      } else {
        value = reduce(node, at);
      }
      result.data.push_back(value);
    }
    return result;
  }

  double reduce(const ir::Node& node, const Dims& at) {
    const Tensor& x = values.at(node.input(0));
    std::vector<int64_t> axes =
        node.op() == "ArgMax" ? std::vector<int64_t>{node.int_or("axis", 0)} : node.ints_or("axes", {});
    for (int64_t& a : axes) a += a < 0 ? static_cast<int64_t>(x.dims.size()) : 0;
    std::vector<double> taken;
    for (int64_t flat = 0; flat < element_count(x.dims); ++flat) {
      Dims from = indices_of(flat, x.dims), kept;
      for (size_t i = 0; i < from.size(); ++i) {
        bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
        if (!reduced) kept.push_back(from[i]);
        if (reduced && node.int_or("keepdims", 1) != 0) kept.push_back(0);
      }
      if (kept == at) taken.push_back(x.data[static_cast<size_t>(flat)]);
    }
    double sum = 0, absolute = 0, squares = 0, largest = -INFINITY, place = 0;
    for (size_t i = 0; i < taken.size(); ++i) {
      sum += taken[i];
      absolute += std::abs(taken[i]);
      squares += taken[i] * taken[i];
      if (taken[i] > largest) place = static_cast<double>(i);
      largest = std::max(largest, taken[i]);
    }
    if (node.op() == "ReduceSum") return sum;
    if (node.op() == "ReduceMean") return sum / static_cast<double>(taken.size());
    if (node.op() == "ReduceMax") return largest;
    if (node.op() == "ReduceL1") return absolute;
    if (node.op() == "ReduceL2") return std::sqrt(squares);
    if (node.op() == "ArgMax") return place;
    ADD_FAILURE() << "the evaluator has no " << node.op();
    return 0;
  }
};

Tensor random_tensor(const SymShape& shape, std::mt19937& rng) {
  Tensor t;
  for (const DimExpr& dim : shape) t.dims.push_back(*dim.constant());
  std::normal_distribution<double> normal(0.3, 1.5);
  for (int64_t i = 0; i < element_count(t.dims); ++i) t.data.push_back(normal(rng));
  return t;
}

using Expected = std::function<double(const std::vector<Tensor>& inputs, const Dims& at)>;

// Parses, decomposes the one node %y, evaluates on random inputs and compares with `expected` at every place.
void expect_values(const std::string& body, const Expected& expected, double tolerance = 1e-6) {
  auto parsed = ir::parse("graph @g {" + body + " output %y }");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  ir::Graph& graph = **parsed;
  ir::Node* node = graph.find_value("y")->producer();
  node->sources = {"origin"};
  SymShape shape = node->output()->shape;
  DType dtype = node->output()->dtype;
  const Op* op = find_op(node->op());
  ASSERT_NE(op->decompose, nullptr);
  Status status = op->decompose(graph, node);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  ASSERT_TRUE(ir::verify(graph).is_ok()) << ir::verify(graph).to_string();
  graph.erase_dead();
  EXPECT_EQ(graph.outputs()[0]->name, "y");
  EXPECT_EQ(graph.outputs()[0]->shape, shape);
  EXPECT_EQ(graph.outputs()[0]->dtype, dtype);
  for (const auto& made : graph.nodes())
    EXPECT_EQ(made->sources, std::vector<std::string>{"origin"}) << made->describe();
  std::mt19937 rng(5);
  Evaluator evaluator;
  std::vector<Tensor> inputs;
  for (const ir::Value* input : graph.inputs()) {
    Tensor t = random_tensor(input->shape, rng);
    if (!is_float(input->dtype)) {
      for (double& v : t.data) v = std::trunc(v * 20);
    }
    if (input->name == "var" || input->name == "scale") {
      for (double& v : t.data) v = std::abs(v) + 0.1;
    }
    inputs.push_back(t);
    evaluator.values[input] = t;
  }
  evaluator.run(graph);
  const Tensor& y = evaluator.values.at(graph.outputs()[0]);
  for (int64_t i = 0; i < element_count(y.dims); ++i) {
    Dims at = indices_of(i, y.dims);
    double value = expected(inputs, at);
    ASSERT_NEAR(y.data[static_cast<size_t>(i)], value, tolerance * (1 + std::abs(value)))
        << body << " at " << dims_to_string(at);
  }
}

double at3(const Tensor& t, int64_t i, int64_t j, int64_t k) { return broadcast_at(t, {i, j, k}); }

// Mean and variance of x over [first, last) of the flat data.
std::pair<double, double> moments(const Tensor& t, int64_t first, int64_t last) {
  double mean = 0, variance = 0;
  for (int64_t i = first; i < last; ++i) mean += t.data[static_cast<size_t>(i)] / static_cast<double>(last - first);
  for (int64_t i = first; i < last; ++i) {
    variance += std::pow(t.data[static_cast<size_t>(i)] - mean, 2) / static_cast<double>(last - first);
  }
  return {mean, variance};
}

TEST(Decompose, Normalizations) {
  expect_values(
      "input %x: f32[2, 3, 4] input %g: f32[3] input %b: f32[3] input %mean: f32[3] input %var: f32[3] "
      "%y = BatchNormalization(%x, %g, %b, %mean, %var) {epsilon: 0.01}",
      [](const std::vector<Tensor>& in, const Dims& at) {
        size_t c = static_cast<size_t>(at[1]);
        return (broadcast_at(in[0], at) - in[3].data[c]) / std::sqrt(in[4].data[c] + 0.01) * in[1].data[c] +
               in[2].data[c];
      });
  expect_values("input %x: f32[2, 3, 5] input %g: f32[3] input %b: f32[3] %y = InstanceNormalization(%x, %g, %b)",
                [](const std::vector<Tensor>& in, const Dims& at) {
                  int64_t row = at[0] * 3 + at[1];
                  auto [mean, variance] = moments(in[0], row * 5, row * 5 + 5);
                  size_t c = static_cast<size_t>(at[1]);
                  return (broadcast_at(in[0], at) - mean) / std::sqrt(variance + 1e-5) * in[1].data[c] + in[2].data[c];
                });
  expect_values(
      "input %x: f32[2, 4, 3] input %g: f32[4] input %b: f32[4] %y = GroupNormalization(%x, %g, %b) {num_groups: 2}",
      [](const std::vector<Tensor>& in, const Dims& at) {
        int64_t group = at[0] * 2 + at[1] / 2;
        auto [mean, variance] = moments(in[0], group * 6, group * 6 + 6);
        size_t c = static_cast<size_t>(at[1]);
        return (broadcast_at(in[0], at) - mean) / std::sqrt(variance + 1e-5) * in[1].data[c] + in[2].data[c];
      });
  for (int p : {1, 2}) {
    expect_values("input %x: f32[3, 4] %y = LpNormalization(%x) {p: " + std::to_string(p) + "}",
                  [p](const std::vector<Tensor>& in, const Dims& at) {
                    double norm = 0;
                    for (int64_t i = 0; i < 4; ++i) norm += std::pow(std::abs(broadcast_at(in[0], {at[0], i})), p);
                    return broadcast_at(in[0], at) / std::pow(norm, 1.0 / p);
                  });
  }
  expect_values("const %x: f32[2, 2] = splat(0) %y = LpNormalization(%x)",
                [](const auto&, const Dims&) { return 0.0; });
  expect_values("input %x: f32[2, 6] %y = MeanVarianceNormalization(%x) {axes: [1]}",
                [](const std::vector<Tensor>& in, const Dims& at) {
                  auto [mean, variance] = moments(in[0], at[0] * 6, at[0] * 6 + 6);
                  return (broadcast_at(in[0], at) - mean) / (std::sqrt(variance) + 1e-9);
                });
}

TEST(Decompose, PoolsAndHardmax) {
  expect_values("input %x: f32[2, 3, 4] %y = GlobalAveragePool(%x)", [](const std::vector<Tensor>& in, const Dims& at) {
    int64_t row = at[0] * 3 + at[1];
    return moments(in[0], row * 4, row * 4 + 4).first;
  });
  expect_values("input %x: f32[2, 3, 4] %y = GlobalMaxPool(%x)", [](const std::vector<Tensor>& in, const Dims& at) {
    double best = -INFINITY;
    for (int64_t i = 0; i < 4; ++i) best = std::max(best, at3(in[0], at[0], at[1], i));
    return best;
  });
  expect_values("input %x: f32[2, 3, 4] %y = Hardmax(%x) {axis: 1}", [](const std::vector<Tensor>& in, const Dims& at) {
    int64_t best = 0;
    for (int64_t i = 1; i < 3; ++i) best = at3(in[0], at[0], i, at[2]) > at3(in[0], at[0], best, at[2]) ? i : best;
    return best == at[1] ? 1.0 : 0.0;
  });
}

TEST(Decompose, Quantization) {
  expect_values(
      "input %x: f32[2, 3] input %scale: f32[3] const %z: u8[3] = [0, 128, 255] %y = QuantizeLinear(%x, %scale, %z)",
      [](const std::vector<Tensor>& in, const Dims& at) {
        size_t c = static_cast<size_t>(at[1]);
        double zero = c == 0 ? 0 : c == 1 ? 128 : 255;
        return std::clamp(std::nearbyint(broadcast_at(in[0], at) / in[1].data[c]) + zero, 0.0, 255.0);
      });
  expect_values("input %x: f32[2, 3] const %s: f32[] = [0.01] %y = QuantizeLinear(%x, %s) {dtype: \"i8\"}",
                [](const std::vector<Tensor>& in, const Dims& at) {
                  return std::clamp(std::nearbyint(broadcast_at(in[0], at) / 0.01F), -128.0, 127.0);
                });
  expect_values(
      "input %x: i8[2, 3] input %scale: f32[2] const %z: i8[2] = [3, -4] %y = DequantizeLinear(%x, %scale, %z) {axis: "
      "0}",
      [](const std::vector<Tensor>& in, const Dims& at) {
        return (broadcast_at(in[0], at) - (at[0] == 0 ? 3 : -4)) * in[1].data[static_cast<size_t>(at[0])];
      });
}

TEST(Decompose, Einsum) {
  struct Case {
    const char* equation;
    const char* operands;
    Expected expected;
  };
  auto two = [](const std::vector<Tensor>& in, Dims a, Dims b) {
    return broadcast_at(in[0], a) * broadcast_at(in[1], b);
  };
  const Case cases[] = {
      {"ij,jk->ik", "f32[2, 3] f32[3, 4]",
       [=](const auto& in, const Dims& at) {
         double sum = 0;
         for (int64_t j = 0; j < 3; ++j) sum += two(in, {at[0], j}, {j, at[1]});
         return sum;
       }},
      {"ji,jk", "f32[3, 2] f32[3, 4]",  // the result is ik
       [=](const auto& in, const Dims& at) {
         double sum = 0;
         for (int64_t j = 0; j < 3; ++j) sum += two(in, {j, at[0]}, {j, at[1]});
         return sum;
       }},
      {"bhid, bhjd -> bhij", "f32[2, 2, 3, 4] f32[2, 2, 5, 4]",
       [=](const auto& in, const Dims& at) {
         double sum = 0;
         for (int64_t d = 0; d < 4; ++d) sum += two(in, {at[0], at[1], at[2], d}, {at[0], at[1], at[3], d});
         return sum;
       }},
      {"bid,bjd->ijb", "f32[2, 3, 4] f32[2, 5, 4]",
       [=](const auto& in, const Dims& at) {
         double sum = 0;
         for (int64_t d = 0; d < 4; ++d) sum += two(in, {at[2], at[0], d}, {at[2], at[1], d});
         return sum;
       }},
      {"i,j->ij", "f32[2] f32[3]", [=](const auto& in, const Dims& at) { return two(in, {at[0]}, {at[1]}); }},
      {"ij->ji", "f32[2, 3]",
       [](const auto& in, const Dims& at) {
         return broadcast_at(in[0], {at[1], at[0]});
       }},
      {"ijk->j", "f32[2, 3, 4]",
       [](const auto& in, const Dims& at) {
         double sum = 0;
         for (int64_t i = 0; i < 2; ++i)
           for (int64_t k = 0; k < 4; ++k) sum += at3(in[0], i, at[0], k);
         return sum;
       }},
      {"...ij,...jk->...ik", "f32[2, 1, 2, 3] f32[5, 3, 4]",
       [=](const auto& in, const Dims& at) {
         double sum = 0;
         for (int64_t j = 0; j < 3; ++j) sum += two(in, {at[0], at[1], at[2], j}, {at[1], j, at[3]});
         return sum;
       }},
      {"ik,jk,k->ij", "f32[2, 3] f32[4, 3] f32[3]",
       [=](const auto& in, const Dims& at) {
         double sum = 0;
         for (int64_t k = 0; k < 3; ++k) sum += two(in, {at[0], k}, {at[1], k}) * in[2].data[static_cast<size_t>(k)];
         return sum;
       }},
      {"ij,ij->", "f32[2, 3] f32[2, 3]",
       [=](const auto& in, const Dims&) {
         double sum = 0;
         for (int64_t i = 0; i < 2; ++i)
           for (int64_t j = 0; j < 3; ++j) sum += two(in, {i, j}, {i, j});
         return sum;
       }},
  };
  for (const Case& c : cases) {
    std::string body, arguments, operands(c.operands);
    int count = 0;
    for (size_t start = 0; start < operands.size();) {
      size_t end = std::min(operands.find("] ", start), operands.size() - 1) + 1;
      std::string name = "%x" + std::to_string(count++);
      body += "input " + name + ": " + operands.substr(start, end - start) + " ";
      arguments += (arguments.empty() ? "" : ", ") + name;
      start = end + 1;
    }
    expect_values(body + "%y = Einsum(" + arguments + ") {equation: \"" + c.equation + "\"}", c.expected);
  }
}

TEST(Decompose, EinsumRefusesWhatItCannot) {
  for (const char* body : {
           "input %x: f32[2, 3] %y = Einsum(%x) {equation: \"ijk->i\"}",
           "input %x: f32[2, 3] %y = Einsum(%x) {equation: \"ij->ijk\"}",
           "input %x: f32[2, 3] %y = Einsum(%x) {equation: \"ij->ii\"}",
           "input %x: f32[2, 3] %y = Einsum(%x) {equation: \"ij,jk->ik\"}",
           "input %x: f32[2, 3] %y = Einsum(%x, %x) {equation: \"ij,jk->ik\"}",
           "input %x: f32[2, 3] %y = Einsum(%x) {equation: \"i?->i\"}",
           "input %x: f32[2, 3] %y = Einsum(%x)",
       }) {
    auto graph = ir::parse(std::string("graph @g {") + body + "}");
    EXPECT_EQ(graph.status().code(), Code::kInvalidArgument) << body;
  }
  auto graph = ir::parse("graph @g { input %x: f32[3, 3] %y = Einsum(%x) {equation: \"ii->i\"} output %y }");
  ASSERT_TRUE(graph.is_ok()) << graph.status().to_string();
  ir::Node* node = (*graph)->find_value("y")->producer();
  EXPECT_EQ(find_op("Einsum")->decompose(**graph, node).code(), Code::kUnsupported);
  EXPECT_TRUE(ir::verify(**graph).is_ok());
}

TEST(Decompose, KeepsSymbolicShapes) {
  for (const char* body : {
           "input %x: f32[n, 8, h, w] input %g: f32[8] %y = InstanceNormalization(%x, %g, %g)",
           "input %x: f32[n, 8, h, w] input %g: f32[8] %y = GroupNormalization(%x, %g, %g) {num_groups: 4}",
           "input %x: f32[n, s] %y = Hardmax(%x)",
           "input %x: f32[b, h, s, d] input %z: f32[b, h, t, d] %y = Einsum(%x, %z) {equation: \"bhsd,bhtd->bhst\"}",
       }) {
    auto graph = ir::parse(std::string("graph @g {") + body + " output %y }");
    ASSERT_TRUE(graph.is_ok()) << graph.status().to_string();
    ir::Node* node = (*graph)->find_value("y")->producer();
    SymShape shape = node->output()->shape;
    Status status = find_op(node->op())->decompose(**graph, node);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ((*graph)->outputs()[0]->shape, shape);
    EXPECT_TRUE((*graph)->assumptions().empty());
    EXPECT_TRUE(ir::verify(**graph).is_ok());
  }
}

}  // namespace
}  // namespace flywheel::ops
