// SPDX-License-Identifier: Apache-2.0
// Small ONNX models made in memory, for the tests of this folder. Not part of the library.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/onnx/proto_names.h"
#include "onnx.pb.h"

namespace flywheel::onnx_import {

class TestModel {
 public:
  explicit TestModel(int64_t opset = 17, int64_t ir_version = 8);

  // Dims: numbers, or names. "" is a dim of which nothing is said.
  TestModel& input(const std::string& name, const std::vector<std::string>& dims, int32_t type = kTypeFloat);
  TestModel& output(const std::string& name, int32_t type = kTypeUndefined);
  TestModel& floats(const std::string& name, const std::vector<int64_t>& dims, const std::vector<float>& values);
  TestModel& ints(const std::string& name, const std::vector<int64_t>& dims, const std::vector<int64_t>& values);
  onnx_pb::TensorProto& tensor(const std::string& name, int32_t type, const std::vector<int64_t>& dims);
  // Named after its first output.
  onnx_pb::NodeProto& node(const std::string& op_type, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs, const std::string& domain = "");

  std::string bytes() const { return model.SerializeAsString(); }
  Result<ImportedModel> import(const std::string& folder = "") const;

  onnx_pb::ModelProto model;
};

// Attributes.
void set(onnx_pb::NodeProto& node, const std::string& name, int64_t value);
void set(onnx_pb::NodeProto& node, const std::string& name, int value);
void set(onnx_pb::NodeProto& node, const std::string& name, float value);
void set(onnx_pb::NodeProto& node, const std::string& name, const char* value);
void set(onnx_pb::NodeProto& node, const std::string& name, const std::vector<int64_t>& values);
void set(onnx_pb::NodeProto& node, const std::string& name, const std::vector<float>& values);
onnx_pb::AttributeProto& attribute(onnx_pb::NodeProto& node, const std::string& name, int32_t type);

// What an import gave. The test fails, naming the status, when it gave none.
ImportedModel imported(const TestModel& model, const std::string& folder = "");
// The code, and the message.
Status refusal(const TestModel& model, const std::string& folder = "");
// "Reshape Softmax Reshape": the graph's operators in order.
std::string operators(const ir::Graph& graph);
// The only node with that operator.
const ir::Node& only(const ir::Graph& graph, std::string_view op);
// "f32 [batch, 3]" of output i.
std::string output_type(const ir::Graph& graph, size_t i = 0);
// "[1, 2]": an attribute of integers or dims.
std::string list(const ir::Node& node, std::string_view attribute);

}  // namespace flywheel::onnx_import
