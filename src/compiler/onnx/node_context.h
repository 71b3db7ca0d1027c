// SPDX-License-Identifier: Apache-2.0
// What an import function sees of its ONNX node: operands as values of our graph, attributes, and the means to add our
// nodes. The importer makes one for each node and drops it when the function returns. Not thread-safe.
//
// An import function reads every attribute that its operator has at that opset (an attribute that nobody read is
// refused as unknown), adds nodes, sets the outputs, and returns kUnsupported for what we cannot do (collected with all
// other such nodes) or kInvalidArgument for what ONNX does not allow (ends the import). The importer adds the node's
// name to messages.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/onnx/fold.h"
#include "compiler/onnx/tensor_data.h"
#include "onnx.pb.h"

namespace flywheel::onnx_import {

using Attributes = std::map<std::string, ir::Attribute, std::less<>>;

class NodeContext {
 public:
  struct Surroundings {
    ir::Graph& graph;
    TensorReader& tensors;
    Folder& folder;
  };
  // `inputs` has null for absent operands and no trailing nulls. `used` tells for each output whether anything reads
  // it.
  NodeContext(Surroundings around, const onnx_pb::NodeProto& proto, int64_t opset, std::string source,
              std::vector<ir::Value*> inputs, std::vector<bool> used);

  const std::string& op_type() const { return proto_.op_type(); }
  int64_t opset() const { return opset_; }

  // Operands. input(i) is null when it is absent.
  size_t input_count() const { return inputs_.size(); }
  ir::Value* input(size_t i) const { return i < inputs_.size() ? inputs_[i] : nullptr; }
  const std::vector<ir::Value*>& inputs() const { return inputs_; }
  size_t output_count() const { return used_.size(); }
  bool output_used(size_t i) const { return i < used_.size() && used_[i]; }

  // Attributes. A wrong type or a missing required one is remembered as error(), and the fallback is given meanwhile.
  bool has(std::string_view name) const;
  int64_t get_int(std::string_view name, int64_t fallback);
  int64_t require_int(std::string_view name);
  bool get_bool(std::string_view name, bool fallback);  // 0 or 1
  double get_float(std::string_view name, double fallback);
  std::string get_string(std::string_view name, std::string_view fallback);
  std::optional<std::vector<int64_t>> get_ints(std::string_view name);
  std::optional<std::vector<double>> get_floats(std::string_view name);
  std::optional<std::vector<std::string>> get_strings(std::string_view name);
  Result<ir::ConstTensor> get_tensor(std::string_view name);  // REQUIRES: has(name)
  // Read, but without effect at inference (momentum, seed, ...).
  void ignore(std::string_view name) { read_.insert(std::string(name)); }
  const Status& error() const { return error_; }
  std::vector<std::string> unread_attributes() const;

  // Operands that must be known when the model is compiled. `what` names the parameter in messages ("axes").
  // kUnsupported when data decides it. REQUIRES: input(i) is present.
  Result<SymShape> dims_operand(size_t i, std::string_view what);               // may depend on the inputs' dims
  Result<std::vector<int64_t>> ints_operand(size_t i, std::string_view what);   // plain integers
  Result<std::vector<double>> floats_operand(size_t i, std::string_view what);  // plain numbers of any type
  Result<ir::ConstTensor> tensor_operand(size_t i, std::string_view what);
  // The value when constants alone determine it and it is small.
  std::optional<ir::ConstTensor> known(const ir::Value& value) { return around_.folder.value(value); }

  // An axis attribute in [-rank, rank) as [0, rank); `extra` widens the range at its end (1: an axis to insert at).
  Result<int64_t> normalized_axis(int64_t axis, int rank, std::string_view name = "axis", int extra = 0) const;

  // Adds a node of ours, types it and gives its (first) output.
  Result<ir::Value*> emit(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes = {});
  // The same for a node of several outputs.
  Result<std::vector<ir::Value*>> emit_all(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes,
                                           int outputs);
  // The same for the node that computes this ONNX node's outputs: they get the model's names. `outputs`: how many our
  // operator has; -1: as many as the ONNX node.
  Status emit_outputs(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes = {}, int outputs = 1);
  // One of the ONNX node's outputs alone, under its name.
  Status emit_output(size_t i, std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes);
  void set_output(size_t i, ir::Value* value);
  ir::Value* output(size_t i) const { return i < outputs_.size() ? outputs_[i] : nullptr; }

  Result<ir::Value*> cast(ir::Value* value, DType dtype);  // the same value when it has that type
  // 0, 1, 2, ... along the axis of a tensor of that shape, as i64 that broadcasts to it.
  Result<ir::Value*> positions(const SymShape& shape, int64_t axis);

  // Constants. A scalar has rank 0.
  ir::Value* constant(ir::ConstTensor tensor);
  void set_constant_output(ir::ConstTensor tensor);  // output 0, under its name
  ir::Value* scalar(DType dtype, double value);

 private:
  const onnx_pb::AttributeProto* find(std::string_view name, int32_t type);
  Result<ir::Node*> add_node(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes,
                             std::vector<std::string> output_names);
  Status unknown_operand(size_t i, std::string_view what) const;
  void fail(Status status);

  Surroundings around_;
  const onnx_pb::NodeProto& proto_;
  int64_t opset_;
  std::string source_;  // how the node is called in `sources` and messages
  std::vector<ir::Value*> inputs_;
  std::vector<bool> used_;
  std::vector<ir::Value*> outputs_;
  std::set<std::string, std::less<>> read_;
  Status error_;
};

}  // namespace flywheel::onnx_import
