// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/node_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/onnx/proto_names.h"
#include "compiler/ops/op.h"

namespace flywheel::onnx_import {
namespace {

// The type that the fields of an attribute show, for files of IR version 1 that do not say it.
int32_t shown_type(const onnx_pb::AttributeProto& attribute) {
  if (attribute.type() != kAttributeUndefined) return attribute.type();
  if (attribute.has_f()) return kAttributeFloat;
  if (attribute.has_i()) return kAttributeInt;
  if (attribute.has_s()) return kAttributeString;
  if (attribute.has_t()) return kAttributeTensor;
  if (attribute.floats_size() > 0) return kAttributeFloats;
  if (attribute.ints_size() > 0) return kAttributeInts;
  return kAttributeUndefined;
}

}  // namespace

NodeContext::NodeContext(Surroundings around, const onnx_pb::NodeProto& proto, int64_t opset, std::string source,
                         std::vector<ir::Value*> inputs, std::vector<bool> used)
    : around_(around),
      proto_(proto),
      opset_(opset),
      source_(std::move(source)),
      inputs_(std::move(inputs)),
      used_(std::move(used)),
      outputs_(used_.size()) {}

void NodeContext::fail(Status status) {
  if (error_.is_ok()) error_ = std::move(status);
}

bool NodeContext::has(std::string_view name) const {
  return std::any_of(proto_.attribute().begin(), proto_.attribute().end(),
                     [&](const auto& a) { return a.name() == name; });
}

const onnx_pb::AttributeProto* NodeContext::find(std::string_view name, int32_t type) {
  read_.emplace(name);
  for (const auto& attribute : proto_.attribute()) {
    if (attribute.name() != name) continue;
    const int32_t found = shown_type(attribute);
    if (found == type) return &attribute;
    // An empty list carries no sign of its type when the type is not said.
    if (found == kAttributeUndefined &&
        (type == kAttributeInts || type == kAttributeFloats || type == kAttributeStrings))
      return &attribute;
    fail(invalid_argument(fmt::format("attribute '{}' is {}; {} is expected", name, attribute_type_name(found),
                                      attribute_type_name(type))));
    return nullptr;
  }
  return nullptr;
}

int64_t NodeContext::get_int(std::string_view name, int64_t fallback) {
  const auto* attribute = find(name, kAttributeInt);
  return attribute != nullptr ? attribute->i() : fallback;
}

int64_t NodeContext::require_int(std::string_view name) {
  if (!has(name)) fail(invalid_argument(fmt::format("attribute '{}' is missing", name)));
  return get_int(name, 0);
}

bool NodeContext::get_bool(std::string_view name, bool fallback) {
  const int64_t value = get_int(name, fallback);
  if (value != 0 && value != 1)
    fail(invalid_argument(fmt::format("attribute '{}' is {}; 0 or 1 is expected", name, value)));
  return value != 0;
}

double NodeContext::get_float(std::string_view name, double fallback) {
  const auto* attribute = find(name, kAttributeFloat);
  return attribute != nullptr ? static_cast<double>(attribute->f()) : fallback;
}

std::string NodeContext::get_string(std::string_view name, std::string_view fallback) {
  const auto* attribute = find(name, kAttributeString);
  return attribute != nullptr ? attribute->s() : std::string(fallback);
}

std::optional<std::vector<int64_t>> NodeContext::get_ints(std::string_view name) {
  const auto* attribute = find(name, kAttributeInts);
  if (attribute == nullptr) return std::nullopt;
  return std::vector<int64_t>(attribute->ints().begin(), attribute->ints().end());
}

std::optional<std::vector<double>> NodeContext::get_floats(std::string_view name) {
  const auto* attribute = find(name, kAttributeFloats);
  if (attribute == nullptr) return std::nullopt;
  return std::vector<double>(attribute->floats().begin(), attribute->floats().end());
}

std::optional<std::vector<std::string>> NodeContext::get_strings(std::string_view name) {
  const auto* attribute = find(name, kAttributeStrings);
  if (attribute == nullptr) return std::nullopt;
  return std::vector<std::string>(attribute->strings().begin(), attribute->strings().end());
}

Result<ir::ConstTensor> NodeContext::get_tensor(std::string_view name) {
  const auto* attribute = find(name, kAttributeTensor);
  if (attribute == nullptr) return invalid_argument(fmt::format("attribute '{}' is not a tensor", name));
  auto tensor = around_.tensors.read(attribute->t());
  if (!tensor.is_ok()) return tensor.status().with_context(fmt::format("attribute '{}'", name));
  return tensor;
}

std::vector<std::string> NodeContext::unread_attributes() const {
  std::vector<std::string> unread;
  for (const auto& attribute : proto_.attribute()) {
    if (!read_.contains(attribute.name())) unread.push_back(attribute.name());
  }
  return unread;
}

Status NodeContext::unknown_operand(size_t i, std::string_view what) const {
  const ir::Value& value = *inputs_[i];
  std::string origin = "an input of the model";
  if (const ir::Node* producer = value.producer()) {
    const std::string name = producer->sources.empty() ? producer->op() : producer->sources.front();
    origin = fmt::format("computed from data by '{}' ({})", printable(name), producer->op());
  }
  return unsupported(fmt::format("its {} (input {}, '{}') must be known when the model is compiled, but is {}", what, i,
                                 printable(value.name), origin));
}

Result<SymShape> NodeContext::dims_operand(size_t i, std::string_view what) {
  ir::Value& value = *inputs_[i];
  if (value.dtype != DType::kInt64 && value.dtype != DType::kInt32) {
    return invalid_argument(fmt::format("its {} (input {}) is {}; i64 is expected", what, i, dtype_name(value.dtype)));
  }
  if (value.rank() > 1) {
    return invalid_argument(fmt::format("its {} (input {}) has {} dims; a list is expected", what, i, value.rank()));
  }
  if (auto elements = value.known_elements()) return SymShape(elements->begin(), elements->end());
  if (auto tensor = around_.folder.value(value)) {
    SymShape dims;
    for (int64_t k = 0; k < tensor->elements(); ++k) dims.emplace_back(tensor->as_int(k));
    return dims;
  }
  return unknown_operand(i, what);
}

Result<std::vector<int64_t>> NodeContext::ints_operand(size_t i, std::string_view what) {
  FW_ASSIGN_OR_RETURN(SymShape dims, dims_operand(i, what));
  std::vector<int64_t> values;
  for (const DimExpr& dim : dims) {
    const auto constant = dim.constant();
    if (!constant) {
      return unsupported(fmt::format("its {} (input {}) depends on the extent {}; it must be a plain number", what, i,
                                     dim.to_string()));
    }
    values.push_back(*constant);
  }
  return values;
}

Result<ir::ConstTensor> NodeContext::tensor_operand(size_t i, std::string_view what) {
  if (auto tensor = around_.folder.value(*inputs_[i])) return *std::move(tensor);
  return unknown_operand(i, what);
}

Result<std::vector<double>> NodeContext::floats_operand(size_t i, std::string_view what) {
  FW_ASSIGN_OR_RETURN(ir::ConstTensor tensor, tensor_operand(i, what));
  if (tensor.elements() > Folder::kMaxElements) {
    return invalid_argument(fmt::format("its {} (input {}) has {} values; at most {} are expected", what, i,
                                        tensor.elements(), Folder::kMaxElements));
  }
  std::vector<double> values;
  for (int64_t k = 0; k < tensor.elements(); ++k) values.push_back(tensor.as_double(k));
  return values;
}

Result<int64_t> NodeContext::normalized_axis(int64_t axis, int rank, std::string_view name, int extra) const {
  const int64_t end = rank + extra;
  if (axis < -end || axis >= end) {
    return invalid_argument(
        fmt::format("{} {} is outside [{}, {}) of an operand with {} dims", name, axis, -end, end, rank));
  }
  return axis < 0 ? axis + end : axis;
}

Result<ir::Node*> NodeContext::add_node(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes,
                                        std::vector<std::string> output_names) {
  if (ops::find_op(op) == nullptr) return unsupported(fmt::format("the compiler has no operator {}", op));
  const int count = static_cast<int>(output_names.size());
  ir::Node* node = around_.graph.add_node(op, std::move(inputs), count, nullptr, std::move(output_names));
  node->attributes = std::move(attributes);
  node->sources = {source_};
  FW_RETURN_IF_ERROR(ops::infer(*node));
  return node;
}

Result<ir::Value*> NodeContext::emit(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes) {
  FW_ASSIGN_OR_RETURN(ir::Node * node,
                      add_node(op, std::move(inputs), std::move(attributes), {fmt::format("{}/{}", source_, op)}));
  return node->output();
}

Result<std::vector<ir::Value*>> NodeContext::emit_all(std::string_view op, std::vector<ir::Value*> inputs,
                                                      Attributes attributes, int outputs) {
  std::vector<std::string> names;
  for (int i = 0; i < outputs; ++i) names.push_back(fmt::format("{}/{}_{}", source_, op, i));
  FW_ASSIGN_OR_RETURN(ir::Node * node, add_node(op, std::move(inputs), std::move(attributes), std::move(names)));
  return std::vector<ir::Value*>(node->outputs().begin(), node->outputs().end());
}

Status NodeContext::emit_outputs(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes,
                                 int outputs) {
  const size_t count = outputs < 0 ? used_.size() : static_cast<size_t>(outputs);
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    const bool named = i < static_cast<size_t>(proto_.output_size()) && !proto_.output(static_cast<int>(i)).empty();
    names.push_back(named ? proto_.output(static_cast<int>(i)) : fmt::format("{}/output_{}", source_, i));
  }
  FW_ASSIGN_OR_RETURN(ir::Node * node, add_node(op, std::move(inputs), std::move(attributes), std::move(names)));
  for (size_t i = 0; i < std::min(count, used_.size()); ++i) set_output(i, node->output(i));
  return Status::ok();
}

Status NodeContext::emit_output(size_t i, std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes) {
  FW_ASSIGN_OR_RETURN(ir::Node * node,
                      add_node(op, std::move(inputs), std::move(attributes), {proto_.output(static_cast<int>(i))}));
  set_output(i, node->output());
  return Status::ok();
}

void NodeContext::set_output(size_t i, ir::Value* value) {
  if (i < outputs_.size()) outputs_[i] = value;
}

Result<ir::Value*> NodeContext::cast(ir::Value* value, DType dtype) {
  if (value->dtype == dtype) return value;
  return emit("Cast", {value}, {{"to", static_cast<int64_t>(dtype)}});
}

Result<ir::Value*> NodeContext::positions(const SymShape& shape, int64_t axis) {
  FW_ASSIGN_OR_RETURN(
      ir::Value * range,
      emit("Range", {}, {{"start", SymShape{0}}, {"step", SymShape{1}}, {"count", SymShape{shape[axis]}}}));
  SymShape along(shape.size() - static_cast<size_t>(axis), DimExpr(1));
  along[0] = shape[axis];
  if (along.size() == 1) return range;
  return emit("Reshape", {range}, {{"shape", std::move(along)}});
}

ir::Value* NodeContext::constant(ir::ConstTensor tensor) {
  return around_.graph.add_constant(source_ + "/constant", std::move(tensor));
}

void NodeContext::set_constant_output(ir::ConstTensor tensor) {
  set_output(0, around_.graph.add_constant(proto_.output(0).empty() ? source_ : proto_.output(0), std::move(tensor)));
}

ir::Value* NodeContext::scalar(DType dtype, double value) { return constant(make_tensor(dtype, {}, {value})); }

}  // namespace flywheel::onnx_import
