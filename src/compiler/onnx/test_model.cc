// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/test_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <span>

namespace flywheel::onnx_import {

TestModel::TestModel(int64_t opset, int64_t ir_version) {
  model.set_ir_version(ir_version);
  auto* import = model.add_opset_import();
  import->set_domain("");
  import->set_version(opset);
  model.mutable_graph()->set_name("test");
}

TestModel& TestModel::input(const std::string& name, const std::vector<std::string>& dims, int32_t type) {
  auto* input = model.mutable_graph()->add_input();
  input->set_name(name);
  auto* tensor = input->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape();
  for (const auto& dim : dims) {
    auto* to = tensor->mutable_shape()->add_dim();
    if (!dim.empty() && (std::isdigit(static_cast<unsigned char>(dim[0])) || dim[0] == '-')) {
      to->set_dim_value(std::stoll(dim));
    } else if (!dim.empty()) {
      to->set_dim_param(dim);
    }
  }
  return *this;
}

TestModel& TestModel::output(const std::string& name, int32_t type) {
  auto* output = model.mutable_graph()->add_output();
  output->set_name(name);
  if (type != kTypeUndefined) output->mutable_type()->mutable_tensor_type()->set_elem_type(type);
  return *this;
}

onnx_pb::TensorProto& TestModel::tensor(const std::string& name, int32_t type, const std::vector<int64_t>& dims) {
  auto* tensor = model.mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(type);
  for (int64_t dim : dims) tensor->add_dims(dim);
  return *tensor;
}

TestModel& TestModel::floats(const std::string& name, const std::vector<int64_t>& dims,
                             const std::vector<float>& values) {
  auto& to = tensor(name, kTypeFloat, dims);
  for (float value : values) to.add_float_data(value);
  return *this;
}

TestModel& TestModel::ints(const std::string& name, const std::vector<int64_t>& dims,
                           const std::vector<int64_t>& values) {
  auto& to = tensor(name, kTypeInt64, dims);
  for (int64_t value : values) to.add_int64_data(value);
  return *this;
}

onnx_pb::NodeProto& TestModel::node(const std::string& op_type, const std::vector<std::string>& inputs,
                                    const std::vector<std::string>& outputs, const std::string& domain) {
  auto* node = model.mutable_graph()->add_node();
  node->set_op_type(op_type);
  node->set_domain(domain);
  node->set_name(outputs.empty() ? "" : outputs[0]);
  for (const auto& name : inputs) node->add_input(name);
  for (const auto& name : outputs) node->add_output(name);
  return *node;
}

Result<ImportedModel> TestModel::import(const std::string& folder) const {
  const std::string text = bytes();
  return import_bytes(std::as_bytes(std::span(text)), folder);
}

onnx_pb::AttributeProto& attribute(onnx_pb::NodeProto& node, const std::string& name, int32_t type) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(type);
  return *attribute;
}

void set(onnx_pb::NodeProto& node, const std::string& name, int64_t value) {
  attribute(node, name, kAttributeInt).set_i(value);
}
void set(onnx_pb::NodeProto& node, const std::string& name, int value) { set(node, name, static_cast<int64_t>(value)); }
void set(onnx_pb::NodeProto& node, const std::string& name, float value) {
  attribute(node, name, kAttributeFloat).set_f(value);
}
void set(onnx_pb::NodeProto& node, const std::string& name, const char* value) {
  attribute(node, name, kAttributeString).set_s(value);
}
void set(onnx_pb::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
  auto& to = attribute(node, name, kAttributeInts);
  for (int64_t value : values) to.add_ints(value);
}
void set(onnx_pb::NodeProto& node, const std::string& name, const std::vector<float>& values) {
  auto& to = attribute(node, name, kAttributeFloats);
  for (float value : values) to.add_floats(value);
}

ImportedModel imported(const TestModel& model, const std::string& folder) {
  auto result = model.import(folder);
  if (result.is_ok()) return *std::move(result);
  ADD_FAILURE() << result.status().to_string();
  return {std::make_unique<ir::Graph>()};
}

Status refusal(const TestModel& model, const std::string& folder) {
  auto result = model.import(folder);
  EXPECT_FALSE(result.is_ok());
  return result.status();
}

std::string operators(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) names.push_back(node->op());
  return fmt::format("{}", fmt::join(names, " "));
}

const ir::Node& only(const ir::Graph& graph, std::string_view op) {
  static const ir::Node* const kNone = [] {
    static ir::Graph graph;
    return graph.add_node("None", {}, 0);
  }();
  const ir::Node* found = nullptr;
  for (const auto& node : graph.nodes()) {
    if (node->op() != op) continue;
    EXPECT_EQ(found, nullptr) << op;
    found = node.get();
  }
  if (found != nullptr) return *found;
  ADD_FAILURE() << "no " << op << " in: " << operators(graph);
  return *kNone;
}

std::string output_type(const ir::Graph& graph, size_t i) {
  if (i >= graph.outputs().size()) return "none";
  const ir::Value& value = *graph.outputs()[i];
  return fmt::format("{} {}", dtype_name(value.dtype), sym_shape_to_string(value.shape));
}

std::string list(const ir::Node& node, std::string_view attribute) {
  if (const auto* ints = node.find<std::vector<int64_t>>(attribute)) return fmt::format("[{}]", fmt::join(*ints, ", "));
  if (const auto* dims = node.find<SymShape>(attribute)) return sym_shape_to_string(*dims);
  return "none";
}

}  // namespace flywheel::onnx_import
