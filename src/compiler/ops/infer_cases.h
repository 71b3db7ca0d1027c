// SPDX-License-Identifier: Apache-2.0
// Tables of inference tests: a graph in text whose last node is looked at. Only tests of ops/ use it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"

namespace flywheel::ops {

struct InferCase {
  const char* body;          // "input %x: f32[n] %y = Relu(%x)"
  const char* expected;      // "f32[n]", for several outputs "f32[n] f32[1]"; known elements follow: "i64[2] = [n, 3]"
  const char* assumed = "";  // "n == m; a == b"
};

inline std::string describe_last_node(const ir::Graph& graph) {
  std::string out;
  for (const ir::Value* value : graph.nodes().back()->outputs()) {
    if (!out.empty()) out += " ";
    out += std::string(dtype_name(value->dtype)) + sym_shape_to_string(value->shape);
    if (value->elements) out += " = " + sym_shape_to_string(*value->elements);
  }
  return out;
}

inline void expect_inferred(const InferCase& c) {
  auto graph = ir::parse(std::string("graph @g {\n") + c.body + "\n}");
  ASSERT_TRUE(graph.is_ok()) << c.body << "\n" << graph.status().to_string();
  EXPECT_EQ(describe_last_node(**graph), c.expected) << c.body;
  std::string assumed;
  for (const auto& [a, b] : (*graph)->assumptions()) {
    if (!assumed.empty()) assumed += "; ";
    assumed += a.to_string() + " == " + b.to_string();
  }
  EXPECT_EQ(assumed, c.assumed) << c.body;
  Status status = ir::verify(**graph);
  EXPECT_TRUE(status.is_ok()) << c.body << "\n" << status.to_string();
}

struct WrongCase {
  const char* body;
  const char* message;  // a part of it
  Code code = Code::kInvalidArgument;
};

inline void expect_refused(const WrongCase& c) {
  auto graph = ir::parse(std::string("graph @g {\n") + c.body + "\n}");
  ASSERT_FALSE(graph.is_ok()) << c.body << "\ngave " << describe_last_node(**graph);
  EXPECT_NE(graph.status().message().find(c.message), std::string::npos) << c.body << "\n" << graph.status().message();
  EXPECT_EQ(graph.status().code(), c.code) << c.body << "\n" << graph.status().message();
}

}  // namespace flywheel::ops
