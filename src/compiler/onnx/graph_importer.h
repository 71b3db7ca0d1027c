// SPDX-License-Identifier: Apache-2.0
// Walks a parsed model: inputs, initializers, nodes in topological order (functions and decided Ifs inlined), outputs.
// Checks names and single assignment, hands each node to its import function and collects what is unsupported.
// import.cc makes one for each model. Not thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/onnx/fold.h"
#include "compiler/onnx/node_order.h"
#include "compiler/onnx/tensor_data.h"
#include "onnx.pb.h"

namespace flywheel::onnx_import {

// The parsed file, and nodes made from it whose tensors the graph may point into.
struct ModelStorage {
  onnx_pb::ModelProto model;
  std::deque<onnx_pb::NodeProto> resolved_nodes;  // of functions, with the call's attributes filled in
};

class GraphImporter {
 public:
  GraphImporter(std::shared_ptr<ModelStorage> storage, std::string folder, FileAccess access);
  // The whole model. After success take_graph().
  Status run();
  std::unique_ptr<ir::Graph> take_graph() { return std::move(graph_); }
  int64_t opset() const;
  uint64_t external_hash() const { return tensors_.external_hash(); }

 private:
  using Opsets = std::map<std::string, int64_t, std::less<>>;  // by domain; "" is ai.onnx
  using Arguments = std::map<std::string, const onnx_pb::AttributeProto*, std::less<>>;
  // The names of one graph, function body or branch.
  struct Scope {
    // Null: the producer is unsupported, so nothing is known of the value.
    std::map<std::string, ir::Value*, std::less<>> names;
    const Scope* outer = nullptr;  // of a branch
    const Opsets* opsets = nullptr;
    const Arguments* arguments = nullptr;  // inside a function: the attributes of its call
    std::string prefix;                    // "call/" inside a function
    std::set<std::string, std::less<>> read;
    int depth = 0;  // of functions and branches
  };

  // graph_importer.cc
  Result<Opsets> read_opsets(const google::protobuf::RepeatedPtrField<onnx_pb::OperatorSetIdProto>& imports) const;
  Status import_inputs(Scope& scope);
  Result<SymShape> input_shape(const onnx_pb::ValueInfoProto& input, std::set<std::string>& symbols);
  Status import_initializers(const onnx_pb::GraphProto& graph, Scope& scope);
  Status import_outputs(const Scope& scope);
  Status import_nodes(NodeList nodes, const std::set<std::string, std::less<>>& results, Scope& scope);
  Status import_node(const onnx_pb::NodeProto& node, const std::string& source, Scope& scope);
  Status import_operator(const onnx_pb::NodeProto& node, const std::string& source, int64_t version,
                         std::vector<ir::Value*> inputs, Scope& scope);
  void add_unsupported(std::string line);
  void add_unsupported(const onnx_pb::NodeProto& node, const std::string& source, int64_t version,
                       std::string_view why);
  static void forget_outputs(const onnx_pb::NodeProto& node, Scope& scope);
  Status unsupported_message() const;

  // inline.cc
  Status read_functions();
  const onnx_pb::FunctionProto* find_function(const onnx_pb::NodeProto& node) const;
  Status inline_function(const onnx_pb::FunctionProto& function, const onnx_pb::NodeProto& call,
                         const std::string& source, const std::vector<ir::Value*>& inputs, Scope& scope);
  Status inline_branch(const onnx_pb::NodeProto& node, const std::string& source, int64_t version, ir::Value* condition,
                       Scope& scope);
  Status count_inlined(int nodes, int depth);
  // The node with references to the call's attributes replaced; the same node where it has none.
  Result<const onnx_pb::NodeProto*> resolve_references(const onnx_pb::NodeProto& node, const Scope& scope);

  struct Function {
    const onnx_pb::FunctionProto* proto;
    Opsets opsets;
  };
  std::shared_ptr<ModelStorage> storage_;
  TensorReader tensors_;
  Folder folder_;
  std::unique_ptr<ir::Graph> graph_ = std::make_unique<ir::Graph>();
  Opsets opsets_;
  std::map<std::string, Function, std::less<>> functions_;  // by domain, name and overload
  std::vector<std::string> unsupported_;                    // the first lines
  size_t unsupported_count_ = 0;
  int64_t inlined_nodes_ = 0;
  uint64_t resolved_bytes_ = 0;
};

}  // namespace flywheel::onnx_import
