// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/graph_importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/ir/verify.h"
#include "compiler/onnx/import_list.h"
#include "compiler/onnx/node_context.h"
#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

constexpr size_t kMaxUnsupportedLines = 1000;

std::string domain_key(std::string_view domain) { return is_ai_onnx(domain) ? std::string() : std::string(domain); }

std::string describe(const onnx_pb::NodeProto& node, const std::string& source, int64_t version) {
  return fmt::format("node '{}' ({}, domain {}, opset {})", printable(source), printable(node.op_type()),
                     printable(domain_name(node.domain())), version);
}

Status check_names(const onnx_pb::NodeProto& node) {
  FW_RETURN_IF_ERROR(check_name(node.name(), "node"));
  const std::string what = fmt::format("node '{}':", printable(node.name()));
  FW_RETURN_IF_ERROR(check_name(node.op_type(), what + " op_type"));
  FW_RETURN_IF_ERROR(check_name(node.domain(), what + " domain"));
  if (node.op_type().empty()) return invalid_argument(fmt::format("{} it has no op_type", what));
  for (const auto& name : node.input()) FW_RETURN_IF_ERROR(check_name(name, what + " input"));
  for (const auto& name : node.output()) FW_RETURN_IF_ERROR(check_name(name, what + " output"));
  std::set<std::string_view> attributes;
  for (const auto& attribute : node.attribute()) {
    FW_RETURN_IF_ERROR(check_name(attribute.name(), what + " attribute"));
    if (!attributes.insert(attribute.name()).second) {
      return invalid_argument(fmt::format("{} attribute '{}' is given twice", what, printable(attribute.name())));
    }
  }
  return Status::ok();
}

std::string_view kind_of(const onnx_pb::TypeProto& type) {
  using onnx_pb::TypeProto;
  switch (type.value_case()) {
    case TypeProto::kSequenceType: return "a sequence";
    case TypeProto::kMapType: return "a map";
    case TypeProto::kOptionalType: return "optional";
    case TypeProto::kSparseTensorType: return "a sparse tensor";
    case TypeProto::kOpaqueType: return "opaque";
    default: return "without a type";
  }
}

// What exporters write for an extent without a name.
bool is_anonymous(const std::string& dim_param) {
  return dim_param.empty() || dim_param == "?" || dim_param == "-1" || dim_param == "None";
}

}  // namespace

GraphImporter::GraphImporter(std::shared_ptr<ModelStorage> storage, std::string folder, FileAccess access)
    : storage_(std::move(storage)), tensors_(storage_, std::move(folder), access) {}

int64_t GraphImporter::opset() const {
  const auto it = opsets_.find("");
  return it == opsets_.end() ? 0 : it->second;
}

Result<GraphImporter::Opsets> GraphImporter::read_opsets(
    const google::protobuf::RepeatedPtrField<onnx_pb::OperatorSetIdProto>& imports) const {
  Opsets opsets;
  for (const auto& import : imports) {
    FW_RETURN_IF_ERROR(check_name(import.domain(), "opset_import"));
    if (import.version() <= 0) {
      return invalid_argument(fmt::format("opset_import of domain '{}' has version {}",
                                          printable(domain_name(import.domain())), import.version()));
    }
    const auto [it, is_new] = opsets.emplace(domain_key(import.domain()), import.version());
    if (!is_new && it->second != import.version()) {
      return invalid_argument(fmt::format("domain '{}' is imported with versions {} and {}",
                                          printable(domain_name(import.domain())), it->second, import.version()));
    }
  }
  if (const auto it = opsets.find(""); it != opsets.end() && (it->second < kOldestOpset || it->second > kNewestOpset)) {
    return unsupported(fmt::format(
        "the model uses opset {} of ai.onnx; {} to {} are supported. Convert it (onnx.version_converter) or export it "
        "with one of these",
        it->second, kOldestOpset, kNewestOpset));
  }
  return opsets;
}

Status GraphImporter::run() {
  const onnx_pb::ModelProto& model = storage_->model;
  const onnx_pb::GraphProto& graph = model.graph();
  FW_ASSIGN_OR_RETURN(opsets_, read_opsets(model.opset_import()));
  FW_RETURN_IF_ERROR(check_name(graph.name(), "graph"));
  if (!graph.name().empty()) graph_->name = graph.name();
  FW_RETURN_IF_ERROR(read_functions());

  Scope scope;
  scope.opsets = &opsets_;
  std::vector<const onnx_pb::NodeProto*> nodes;
  std::set<std::string, std::less<>> results;
  for (const auto& node : graph.node()) {
    nodes.push_back(&node);
    collect_reads(node, &scope.read);
  }
  for (const auto& output : graph.output()) results.insert(output.name());
  scope.read.insert(results.begin(), results.end());
  if (graph.output_size() == 0) return invalid_argument("the graph has no outputs");

  FW_RETURN_IF_ERROR(import_initializers(graph, scope));
  FW_RETURN_IF_ERROR(import_inputs(scope));
  FW_RETURN_IF_ERROR(import_nodes(nodes, results, scope));
  if (unsupported_count_ > 0) return unsupported_message();
  FW_RETURN_IF_ERROR(import_outputs(scope));
  graph_->erase_dead();
  return ir::verify(*graph_);
}

Status GraphImporter::import_inputs(Scope& scope) {
  std::set<std::string, std::less<>> seen;
  std::set<std::string> symbols;
  for (const auto& input : storage_->model.graph().input()) {
    for (const auto& dim : input.type().tensor_type().shape().dim()) symbols.insert(dim.dim_param());
  }
  for (const auto& input : storage_->model.graph().input()) {
    FW_RETURN_IF_ERROR(check_name(input.name(), "input"));
    const std::string shown = printable(input.name());
    if (input.name().empty()) return invalid_argument("an input of the graph has no name");
    if (!seen.insert(input.name()).second) return invalid_argument(fmt::format("input '{}' is given twice", shown));
    // Files before IR version 4 list every initializer among the inputs; later ones mean a default that a caller may
    // replace. Weights that change from run to run would rule out packing them, so both are constants here.
    if (scope.names.contains(input.name())) continue;
    if (!input.type().has_tensor_type()) {
      scope.names.emplace(input.name(), nullptr);
      add_unsupported(fmt::format("input '{}' is {}; only tensors are supported", shown, kind_of(input.type())));
      continue;
    }
    const auto& type = input.type().tensor_type();
    const auto dtype = to_dtype(type.elem_type());
    if (!dtype) {
      scope.names.emplace(input.name(), nullptr);
      add_unsupported(
          fmt::format("input '{}': element type {} is not supported", shown, tensor_type_name(type.elem_type())));
      continue;
    }
    auto shape = input_shape(input, symbols);
    if (shape.status().code() == Code::kUnsupported) {
      scope.names.emplace(input.name(), nullptr);
      add_unsupported(fmt::format("input '{}': {}", shown, shape.status().message()));
      continue;
    }
    if (!shape.is_ok()) return shape.status().with_context(fmt::format("input '{}'", shown));
    scope.names.emplace(input.name(), graph_->add_input(input.name(), *dtype, *std::move(shape)));
  }
  return Status::ok();
}

Result<SymShape> GraphImporter::input_shape(const onnx_pb::ValueInfoProto& input, std::set<std::string>& symbols) {
  const auto& type = input.type().tensor_type();
  if (!type.has_shape()) {
    return unsupported("it has no shape; give it one (its dims may be names) and export the model again");
  }
  if (type.shape().dim_size() > kMaxRank) {
    return unsupported(fmt::format("it has {} dims; at most {} are supported", type.shape().dim_size(), kMaxRank));
  }
  SymShape shape;
  Dims known;
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    const auto& dim = type.shape().dim(i);
    if (dim.has_dim_value() && dim.dim_value() != -1) {
      if (dim.dim_value() <= 0) {
        return invalid_argument(
            fmt::format("dim {} is {}; give it a positive extent, or a name if it varies", i, dim.dim_value()));
      }
      known.push_back(dim.dim_value());
      shape.emplace_back(dim.dim_value());
      continue;
    }
    FW_RETURN_IF_ERROR(check_name(dim.dim_param(), fmt::format("dim {}", i)));
    std::string name = dim.dim_param();
    if (is_anonymous(name)) {
      name = fmt::format("{}_dim_{}", input.name(), i);
      while (!symbols.insert(name).second) name += '_';
    }
    shape.push_back(DimExpr::symbol(name));
  }
  const auto count = checked_element_count(known);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, 8, &bytes)) {
    return invalid_argument(fmt::format("its dims {} are too large", dims_to_string(known)));
  }
  return shape;
}

Status GraphImporter::import_initializers(const onnx_pb::GraphProto& graph, Scope& scope) {
  for (const auto& tensor : graph.initializer()) {
    FW_RETURN_IF_ERROR(check_name(tensor.name(), "initializer"));
    const std::string shown = printable(tensor.name());
    if (tensor.name().empty()) return invalid_argument("an initializer has no name");
    const auto [it, is_new] = scope.names.emplace(tensor.name(), nullptr);
    if (!is_new) return invalid_argument(fmt::format("initializer '{}' is given twice", shown));
    if (!scope.read.contains(tensor.name())) continue;  // nothing needs its data
    auto constant = tensors_.read(tensor);
    if (constant.is_ok()) {
      it->second = graph_->add_constant(tensor.name(), *std::move(constant));
    } else if (constant.status().code() == Code::kUnsupported) {
      add_unsupported(fmt::format("initializer '{}': {}", shown, constant.status().message()));
    } else {
      return constant.status().with_context(fmt::format("initializer '{}'", shown));
    }
  }
  for (const auto& tensor : graph.sparse_initializer()) {
    const std::string& name = tensor.values().name();
    FW_RETURN_IF_ERROR(check_name(name, "sparse initializer"));
    if (!scope.names.emplace(name, nullptr).second) {
      return invalid_argument(fmt::format("initializer '{}' is given twice", printable(name)));
    }
    if (scope.read.contains(name)) {
      add_unsupported(fmt::format("initializer '{}' is sparse; store it as a dense tensor", printable(name)));
    }
  }
  return Status::ok();
}

Status GraphImporter::import_outputs(const Scope& scope) {
  std::set<std::string, std::less<>> seen;
  for (const auto& output : storage_->model.graph().output()) {
    FW_RETURN_IF_ERROR(check_name(output.name(), "output"));
    const std::string shown = printable(output.name());
    if (!seen.insert(output.name()).second) return invalid_argument(fmt::format("output '{}' is given twice", shown));
    const auto it = scope.names.find(output.name());
    if (it == scope.names.end()) {
      return invalid_argument(fmt::format("output '{}' is given by no input, initializer or node", shown));
    }
    // The declared shape is only a note: models whose inputs were edited by hand carry stale ones. The type must be
    // true.
    const int64_t declared = output.type().tensor_type().elem_type();
    if (declared != kTypeUndefined && to_dtype(declared) != it->second->dtype) {
      return invalid_argument(fmt::format("output '{}' is declared as {} but its value is {}", shown,
                                          tensor_type_name(declared), dtype_name(it->second->dtype)));
    }
    graph_->add_output(it->second, output.name());
  }
  return Status::ok();
}

Status GraphImporter::import_nodes(NodeList nodes, const std::set<std::string, std::less<>>& results, Scope& scope) {
  std::vector<std::string> sources;
  for (size_t i = 0; i < nodes.size(); ++i) {
    FW_RETURN_IF_ERROR(check_names(*nodes[i]));
    const std::string own = nodes[i]->name().empty() ? fmt::format("{}_{}", nodes[i]->op_type(), i) : nodes[i]->name();
    sources.push_back(scope.prefix + own);
    collect_reads(*nodes[i], &scope.read);
  }
  scope.read.insert(results.begin(), results.end());
  const auto known = [&](std::string_view name) {
    if (scope.names.contains(name)) return Known::kHere;
    for (const Scope* outer = scope.outer; outer != nullptr; outer = outer->outer) {
      if (outer->names.contains(name)) return Known::kOuter;
    }
    return Known::kNo;
  };
  FW_ASSIGN_OR_RETURN(std::vector<int> order, order_nodes(nodes, sources, known));
  for (int i : order) {
    FW_ASSIGN_OR_RETURN(const onnx_pb::NodeProto* node, resolve_references(*nodes[i], scope));
    FW_RETURN_IF_ERROR(import_node(*node, sources[i], scope));
  }
  return Status::ok();
}

Status GraphImporter::import_node(const onnx_pb::NodeProto& node, const std::string& source, Scope& scope) {
  std::vector<ir::Value*> inputs;
  bool all_known = true;
  for (const auto& name : node.input()) {
    ir::Value* value = nullptr;
    if (!name.empty()) {
      const Scope* at = &scope;
      while (at != nullptr && !at->names.contains(name)) at = at->outer;
      if (at != nullptr) value = at->names.find(name)->second;
      all_known = all_known && value != nullptr;
    }
    inputs.push_back(value);
  }
  if (const onnx_pb::FunctionProto* function = find_function(node)) {
    return inline_function(*function, node, source, inputs, scope);
  }
  const auto opset = scope.opsets->find(domain_key(node.domain()));
  if (opset == scope.opsets->end()) {
    add_unsupported(node, source, 0, "the model imports no opset of that domain, and has no function of that name");
    forget_outputs(node, scope);
    return Status::ok();
  }
  const int64_t version = opset->second;
  if (is_ai_onnx(node.domain()) && node.op_type() == "If" && !inputs.empty() && all_known && inputs[0] != nullptr) {
    return inline_branch(node, source, version, inputs[0], scope);
  }
  if (find_import(node.domain(), node.op_type(), version) == nullptr) {
    add_unsupported(node, source, version, why_no_import(node.domain(), node.op_type()));
    forget_outputs(node, scope);
    return Status::ok();
  }
  if (!all_known) {  // an unsupported node feeds it: that one is listed
    forget_outputs(node, scope);
    return Status::ok();
  }
  while (!inputs.empty() && inputs.back() == nullptr) inputs.pop_back();
  return import_operator(node, source, version, std::move(inputs), scope);
}

Status GraphImporter::import_operator(const onnx_pb::NodeProto& node, const std::string& source, int64_t version,
                                      std::vector<ir::Value*> inputs, Scope& scope) {
  const ImportRow& row = *find_import(node.domain(), node.op_type(), version);
  const auto wrong = [&](const Status& status) { return status.with_context(describe(node, source, version)); };
  const int count = static_cast<int>(inputs.size());
  if (count < row.min_inputs || (row.max_inputs >= 0 && count > row.max_inputs) ||
      std::find(inputs.begin(), inputs.begin() + std::min(count, row.min_inputs), nullptr) !=
          inputs.begin() + std::min(count, row.min_inputs)) {
    const std::string expected = row.max_inputs < 0 ? fmt::format("at least {}", row.min_inputs)
                                 : row.max_inputs == row.min_inputs
                                     ? fmt::format("{}", row.min_inputs)
                                     : fmt::format("{} to {}", row.min_inputs, row.max_inputs);
    return wrong(invalid_argument(
        fmt::format("it has {} inputs, of which some may be absent; {} are expected", count, expected)));
  }
  if (node.output_size() == 0 || (row.max_outputs >= 0 && node.output_size() > row.max_outputs)) {
    return wrong(
        invalid_argument(fmt::format("it has {} outputs; {} are expected", node.output_size(),
                                     row.max_outputs < 0 ? "one or more" : fmt::format("1 to {}", row.max_outputs))));
  }

  std::vector<bool> used;
  for (const auto& name : node.output()) used.push_back(!name.empty() && scope.read.contains(name));
  NodeContext context({*graph_, tensors_, folder_}, node, version, source, std::move(inputs), used);
  Status status = row.import(context);
  if (!context.error().is_ok()) status = context.error();
  if (status.is_ok()) {
    if (const auto unread = context.unread_attributes(); !unread.empty()) {
      status = unsupported(fmt::format("attribute '{}' is not one of this operator's", printable(unread.front())));
    }
  }
  for (int i = 0; status.is_ok() && i < node.output_size(); ++i) {
    if (used[i] && context.output(i) == nullptr) {
      status = unsupported(
          fmt::format("its output {} ('{}') is used, which is not supported", i, printable(node.output(i))));
    }
  }
  if (!status.is_ok()) {
    if (status.code() != Code::kUnsupported) return wrong(status);
    add_unsupported(node, source, version, status.message());
    forget_outputs(node, scope);
    return Status::ok();
  }
  for (int i = 0; i < node.output_size(); ++i) {
    if (!node.output(i).empty()) scope.names.insert_or_assign(node.output(i), context.output(i));
  }
  return Status::ok();
}

void GraphImporter::forget_outputs(const onnx_pb::NodeProto& node, Scope& scope) {
  for (const auto& name : node.output()) {
    if (!name.empty()) scope.names.emplace(name, nullptr);
  }
}

void GraphImporter::add_unsupported(std::string line) {
  ++unsupported_count_;
  if (unsupported_.size() < kMaxUnsupportedLines) unsupported_.push_back(std::move(line));
}

void GraphImporter::add_unsupported(const onnx_pb::NodeProto& node, const std::string& source, int64_t version,
                                    std::string_view why) {
  add_unsupported(fmt::format("{}: {}", describe(node, source, version), why));
}

Status GraphImporter::unsupported_message() const {
  std::string text = unsupported_count_ == 1
                         ? "one thing in the model is not supported:"
                         : fmt::format("{} things in the model are not supported:", unsupported_count_);
  for (const auto& line : unsupported_) text += "\n  " + line;
  if (unsupported_count_ > unsupported_.size())
    text += fmt::format("\n  and {} more", unsupported_count_ - unsupported_.size());
  text +=
      "\nCut these nodes off the model (post-processing often can run in the client), or export it so that supported "
      "operators "
      "take their place.";
  return unsupported(std::move(text));
}

}  // namespace flywheel::onnx_import
