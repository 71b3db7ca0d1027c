// SPDX-License-Identifier: Apache-2.0
// Model-local functions and Ifs whose condition is known: their nodes are imported in place of the call, in a scope of
// their own. Both nest and a function may be called often, so what they grow to is bounded.
#include <fmt/format.h>

#include <utility>

#include "compiler/onnx/graph_importer.h"
#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

constexpr int kMaxDepth = 32;
constexpr int64_t kMaxInlinedNodes = 200'000;
constexpr uint64_t kMaxResolvedBytes = 256u << 20;

std::string function_key(std::string_view domain, std::string_view name, std::string_view overload) {
  return fmt::format("{}\n{}\n{}", domain, name, overload);
}

}  // namespace

Status GraphImporter::read_functions() {
  for (const auto& function : storage_->model.functions()) {
    FW_RETURN_IF_ERROR(check_name(function.name(), "function"));
    FW_RETURN_IF_ERROR(check_name(function.domain(), "domain of a function"));
    const std::string shown = printable(function.name());
    auto opsets = read_opsets(function.opset_import());
    if (!opsets.is_ok()) return opsets.status().with_context(fmt::format("function '{}'", shown));
    const bool is_new = functions_
                            .emplace(function_key(domain_name(function.domain()), function.name(), function.overload()),
                                     Function{&function, *std::move(opsets)})
                            .second;
    if (!is_new) return invalid_argument(fmt::format("function '{}' is given twice", shown));
  }
  return Status::ok();
}

const onnx_pb::FunctionProto* GraphImporter::find_function(const onnx_pb::NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  const auto it = functions_.find(function_key(domain_name(node.domain()), node.op_type(), node.overload()));
  return it == functions_.end() ? nullptr : it->second.proto;
}

Status GraphImporter::count_inlined(int nodes, int depth) {
  inlined_nodes_ += nodes;
  if (depth > kMaxDepth) {
    return invalid_argument(
        fmt::format("functions and branches nest deeper than {}: does a function call itself?", kMaxDepth));
  }
  if (inlined_nodes_ > kMaxInlinedNodes) {
    return unsupported(
        fmt::format("the functions of the model grow to more than {} nodes where they are called", kMaxInlinedNodes));
  }
  return Status::ok();
}

Result<const onnx_pb::NodeProto*> GraphImporter::resolve_references(const onnx_pb::NodeProto& node,
                                                                    const Scope& scope) {
  bool refers = false;
  for (const auto& attribute : node.attribute()) refers = refers || !attribute.ref_attr_name().empty();
  if (!refers) return &node;
  const std::string shown = printable(node.name());
  if (scope.arguments == nullptr) {
    return invalid_argument(fmt::format("node '{}' refers to an attribute of a function but is in none", shown));
  }
  resolved_bytes_ += node.ByteSizeLong();
  onnx_pb::NodeProto resolved = node;
  resolved.clear_attribute();
  for (const auto& attribute : node.attribute()) {
    const onnx_pb::AttributeProto* given = &attribute;
    if (!attribute.ref_attr_name().empty()) {
      const auto it = scope.arguments->find(attribute.ref_attr_name());
      if (it == scope.arguments->end()) continue;  // an optional attribute that the call leaves out
      given = it->second;
      resolved_bytes_ += given->ByteSizeLong();
    }
    if (resolved_bytes_ > kMaxResolvedBytes) {
      return unsupported("the attributes of the model's functions grow too large where they are called");
    }
    auto* copy = resolved.add_attribute();
    *copy = *given;
    copy->set_name(attribute.name());
  }
  storage_->resolved_nodes.push_back(std::move(resolved));
  return &storage_->resolved_nodes.back();
}

Status GraphImporter::inline_function(const onnx_pb::FunctionProto& function, const onnx_pb::NodeProto& call,
                                      const std::string& source, const std::vector<ir::Value*>& inputs, Scope& scope) {
  FW_RETURN_IF_ERROR(count_inlined(function.node_size(), scope.depth + 1));
  const std::string shown =
      fmt::format("node '{}', a call of the function '{}'", printable(source), printable(function.name()));
  if (call.input_size() > function.input_size() || call.output_size() > function.output_size()) {
    return invalid_argument(fmt::format("{}, has {} inputs and {} outputs; at most {} and {} are expected", shown,
                                        call.input_size(), call.output_size(), function.input_size(),
                                        function.output_size()));
  }

  Arguments arguments;
  for (const auto& attribute : function.attribute_proto()) arguments[attribute.name()] = &attribute;
  std::set<std::string_view> declared(function.attribute().begin(), function.attribute().end());
  for (const auto& attribute : function.attribute_proto()) declared.insert(attribute.name());
  for (const auto& attribute : call.attribute()) {
    if (!declared.contains(attribute.name())) {
      return unsupported(
          fmt::format("{}: attribute '{}' is not one of the function's", shown, printable(attribute.name())));
    }
    arguments[attribute.name()] = &attribute;
  }

  Scope body;
  body.opsets = &functions_.find(function_key(domain_name(function.domain()), function.name(), function.overload()))
                     ->second.opsets;
  body.arguments = &arguments;
  body.prefix = source + "/";
  body.depth = scope.depth + 1;
  FW_RETURN_IF_ERROR(check_name(body.prefix, "function call"));
  std::vector<const onnx_pb::NodeProto*> nodes;
  std::set<std::string, std::less<>> results;
  for (const auto& node : function.node()) nodes.push_back(&node);
  for (int i = 0; i < call.output_size(); ++i) results.insert(function.output(i));
  std::set<std::string_view> absent;
  for (int i = 0; i < function.input_size(); ++i) {
    const bool given = i < call.input_size() && !call.input(i).empty();
    if (!given) {
      absent.insert(function.input(i));
    } else if (!body.names.emplace(function.input(i), inputs[i]).second) {
      return invalid_argument(
          fmt::format("function '{}' has two inputs '{}'", printable(function.name()), printable(function.input(i))));
    }
  }
  // An operand that the call leaves out is left out where the body reads it.
  if (!absent.empty()) {
    for (auto& node : nodes) {
      bool reads_absent = false;
      for (const auto& name : node->input()) reads_absent = reads_absent || absent.contains(name);
      if (!reads_absent) continue;
      resolved_bytes_ += node->ByteSizeLong();
      if (resolved_bytes_ > kMaxResolvedBytes) return unsupported(fmt::format("{}, grows too large", shown));
      onnx_pb::NodeProto& copy = storage_->resolved_nodes.emplace_back(*node);
      for (auto& name : *copy.mutable_input()) {
        if (absent.contains(name)) name.clear();
      }
      node = &copy;
    }
  }
  if (Status status = import_nodes(nodes, results, body); !status.is_ok()) return status.with_context(shown);
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    const auto it = body.names.find(function.output(i));
    if (it == body.names.end()) {
      return invalid_argument(
          fmt::format("{}: nothing gives the function's output '{}'", shown, printable(function.output(i))));
    }
    scope.names.insert_or_assign(call.output(i), it->second);
  }
  return Status::ok();
}

Status GraphImporter::inline_branch(const onnx_pb::NodeProto& node, const std::string& source, int64_t version,
                                    ir::Value* condition, Scope& scope) {
  const auto decided = folder_.value(*condition);
  if (!decided || decided->elements() != 1) {
    add_unsupported(
        node, source, version,
        decided ? "its condition must be one value" : "its condition depends on data; control flow is not supported");
    forget_outputs(node, scope);
    return Status::ok();
  }
  const std::string_view wanted = decided->as_double(0) != 0 ? "then_branch" : "else_branch";
  const onnx_pb::GraphProto* graph = nullptr;
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == wanted && attribute.has_g()) graph = &attribute.g();
  }
  const std::string shown = fmt::format("node '{}' (If)", printable(source));
  if (graph == nullptr) return invalid_argument(fmt::format("{}: attribute '{}' is missing", shown, wanted));
  if (graph->output_size() != node.output_size() || graph->input_size() != 0) {
    return invalid_argument(fmt::format("{}: its {} has {} inputs and {} outputs; 0 and {} are expected", shown, wanted,
                                        graph->input_size(), graph->output_size(), node.output_size()));
  }
  FW_RETURN_IF_ERROR(count_inlined(graph->node_size(), scope.depth + 1));

  Scope branch;
  branch.outer = &scope;
  branch.opsets = scope.opsets;
  branch.arguments = scope.arguments;
  branch.prefix = source + "/";
  branch.depth = scope.depth + 1;
  FW_RETURN_IF_ERROR(check_name(branch.prefix, "branch"));
  std::vector<const onnx_pb::NodeProto*> nodes;
  std::set<std::string, std::less<>> results;
  for (const auto& inner : graph->node()) {
    nodes.push_back(&inner);
    collect_reads(inner, &branch.read);
  }
  for (const auto& output : graph->output()) results.insert(output.name());
  branch.read.insert(results.begin(), results.end());
  if (Status status = import_initializers(*graph, branch); !status.is_ok()) return status.with_context(shown);
  if (Status status = import_nodes(nodes, results, branch); !status.is_ok()) return status.with_context(shown);
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const Scope* at = &branch;
    while (at != nullptr && !at->names.contains(graph->output(i).name())) at = at->outer;
    if (at == nullptr) {
      return invalid_argument(fmt::format("{}: nothing gives the output '{}' of its {}", shown,
                                          printable(graph->output(i).name()), wanted));
    }
    scope.names.insert_or_assign(node.output(i), at->names.find(graph->output(i).name())->second);
  }
  return Status::ok();
}

}  // namespace flywheel::onnx_import
