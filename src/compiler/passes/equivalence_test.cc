// SPDX-License-Identifier: Apache-2.0
// Every case of every pass computes the same before and after: the input with only the passes that lowering relies on,
// with the pass in question before them, and with the whole pipeline, all on reference kernels and random data.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "compiler/lower/interpret.h"
#include "compiler/passes/constant_eval.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/text_cases.h"

namespace flywheel::passes {
namespace {

using Tensors = std::vector<ir::ConstTensor>;

int64_t extent_of(const std::string& symbol) {
  // Small, and unequal where a mix-up should show.
  static const std::map<std::string, int64_t> kExtents{{"n", 2}, {"b", 2}, {"s", 3}, {"t", 5}, {"h", 6},
                                                       {"w", 5}, {"l", 7}, {"m", 3}, {"k", 4}};
  auto known = kExtents.find(symbol);
  return known == kExtents.end() ? 3 : known->second;
}

Tensors random_inputs(const ir::Graph& graph) {
  std::mt19937 random(7);
  Tensors inputs;
  for (const ir::Value* input : graph.inputs()) {
    Dims dims;
    for (const DimExpr& dim : input->shape) {
      std::map<std::string, int64_t, std::less<>> symbols;
      for (const std::string& symbol : dim.symbols()) symbols[symbol] = extent_of(symbol);
      dims.push_back(dim.evaluate(symbols).value());
    }
    std::vector<double> values;
    for (int64_t i = 0; i < element_count(dims); ++i) {
      if (input->dtype == DType::kBool) {
        values.push_back(i % 3 == 0 ? 0 : 1);
      } else if (is_float(input->dtype)) {
        values.push_back(std::uniform_real_distribution<>(-1, 1)(random));
      } else {
        values.push_back(-static_cast<double>(random() % 2));  // 0 and -1: an index into any table
      }
    }
    inputs.push_back(from_doubles(input->dtype, dims, values).value());
  }
  return inputs;
}

std::vector<Pass> required_passes() {
  std::vector<Pass> passes;
  for (const Pass& pass : cpu_pipeline()) {
    if (pass.required) passes.push_back(pass);
  }
  return passes;
}

Result<Tensors> compute(const std::string& text, const std::vector<Pass>& passes) {
  std::unique_ptr<ir::Graph> graph = parse_graph(text);
  if (!graph) return internal_error("no graph");
  FW_ASSIGN_OR_RETURN(std::vector<PassTime> times, run_passes(*graph, passes, {}));
  return lower::interpret(*graph, random_inputs(*graph));
}

void expect_close(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].dtype, b[i].dtype);
    ASSERT_EQ(a[i].dims, b[i].dims);
    for (int64_t k = 0; k < a[i].elements(); ++k) {
      const double left = a[i].as_double(k), right = b[i].as_double(k);
      if (std::isnan(left) && std::isnan(right)) continue;
      if (left == right) continue;  // infinities, too
      ASSERT_NEAR(left, right, 2e-5 * std::max(1.0, std::abs(left))) << "output " << i << ", element " << k;
    }
  }
}

class EquivalenceTest : public testing::TestWithParam<std::string> {};

TEST_P(EquivalenceTest, PassesDoNotChangeResults) {
  const std::vector<Pass> required = required_passes();
  std::vector<Pass> with_pass{*find_pass(GetParam())};
  with_pass.insert(with_pass.end(), required.begin(), required.end());
  const std::vector<Pass> all(cpu_pipeline().begin(), cpu_pipeline().end());
  int computed = 0;
  for (const TextCase& one : text_cases(GetParam())) {
    SCOPED_TRACE(one.title);
    Result<Tensors> plain = compute(one.before, required);
    if (!plain.is_ok() && plain.status().code() == Code::kUnsupported) continue;  // no kernel for the case as it stands
    ASSERT_TRUE(plain.is_ok()) << plain.status().to_string();
    Result<Tensors> passed = compute(one.before, with_pass);
    ASSERT_TRUE(passed.is_ok()) << passed.status().to_string();
    expect_close(*plain, *passed);
    Result<Tensors> optimized = compute(one.before, all);
    ASSERT_TRUE(optimized.is_ok()) << optimized.status().to_string();
    expect_close(*plain, *optimized);
    ++computed;
  }
  EXPECT_GT(computed, 0);
}

std::vector<std::string> pass_names() {
  std::set<std::string> names;
  for (const Pass& pass : cpu_pipeline()) names.insert(std::string(pass.name));
  return {names.begin(), names.end()};
}

INSTANTIATE_TEST_SUITE_P(All, EquivalenceTest, testing::ValuesIn(pass_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace flywheel::passes
