// SPDX-License-Identifier: Apache-2.0
// to_nhwc: convolutions, pools and resizes get layout="NHWC", the nodes between them work on tensors stored
// channels-last, and what is left of layout changes are explicit Transposes: as few bytes as plan_layout() finds
// possible. Graph inputs and outputs keep their order. A value that is the channels-last form of %x is named "x.nhwc"
// (".moved" for another order that a reshape led to).
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/infer.h"
#include "compiler/passes/constant_eval.h"
#include "compiler/passes/layout_plan.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

class Mover {
 public:
  explicit Mover(Graph& graph) : graph_(graph), plan_(plan_layout(graph)) {}

  Status run() {
    for (Node* node : node_list(graph_)) {
      auto layout = plan_.nodes.find(node);
      if (layout == plan_.nodes.end()) continue;
      const std::string described = node->describe();  // it may be erased
      FW_RETURN_IF_ERROR(move(node, layout->second).with_context(described));
    }
    graph_.erase_dead();
    return Status::ok();
  }

 private:
  Status move(Node* node, NodeLayout layout) {
    const Perm in = plan_.perm_in[node];
    if (!layout.moved_in) {  // a Transpose out of channels-last: its operand is the moved form
      moved_[{node->output(), plan_.perm[node->output()]}] = node->input(0);
      return Status::ok();
    }
    if (node->op() == "Transpose" && !layout.moved_out) {
      FW_ASSIGN_OR_RETURN(Value * x, moved(node->input(0), in, node));
      return bypass_node(graph_, node, x);
    }
    std::vector<Value*> inputs = node->inputs();
    for (size_t i : layout_operands(*node)) {
      if (inputs[i]) {
        FW_ASSIGN_OR_RETURN(inputs[i], moved(inputs[i], in, node));
      }
    }
    FW_ASSIGN_OR_RETURN(Attributes attributes, moved_attributes(*node, in));
    FW_ASSIGN_OR_RETURN(Node * made, ops::add(graph_, node->op(), std::move(inputs), std::move(attributes), node,
                                              static_cast<int>(node->outputs().size()), node->sources));
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      Value* old = node->output(i);
      if (!layout.moved_out) {
        // What is left of a reduction's dims may stand in another order, all but one of them 1.
        FW_ASSIGN_OR_RETURN(Value * same, add_reshape(graph_, node, made->output(i), old->shape));
        FW_RETURN_IF_ERROR(replace_value(graph_, old, same));
        names_.emplace_back(same, old->name);
        continue;
      }
      const Perm perm = plan_.perm[old];
      FW_ASSIGN_OR_RETURN(Value * back, restored(made->output(i), perm, old->shape, node));
      moved_[{back, perm}] = made->output(i);
      plan_.perm[back] = perm;
      graph_.replace_uses(old, back);
      names_.emplace_back(back, old->name);
      names_.emplace_back(made->output(i), old->name + (perm == channels_last(perm.size()) ? ".nhwc" : ".moved"));
    }
    graph_.erase(node);
    for (const auto& [value, name] : names_) graph_.rename(value, name);
    names_.clear();
    return Status::ok();
  }

  // `value` stored in the order `perm`, made before `node` when it is not there yet.
  Result<Value*> moved(Value* value, const Perm& perm, Node* node) {
    if (auto it = moved_.find({value, perm}); it != moved_.end()) return it->second;
    const size_t missing = perm.size() - value->shape.size();
    if (value->is_constant()) {
      // Broadcasting aligns dims at the end, so the dims that are missing in front count as 1.
      Dims dims(missing, 1);
      dims.insert(dims.end(), value->constant->dims.begin(), value->constant->dims.end());
      if (element_count(dims) == 1) return value;
      Value* made = graph_.add_constant(value->name, permuted(reshaped(*value->constant, dims), perm));
      return moved_[{value, perm}] = made;
    }
    SymShape padded(missing, DimExpr(1));
    padded.insert(padded.end(), value->shape.begin(), value->shape.end());
    Value* made = nullptr;
    if (is_trivial(padded, perm)) {
      FW_ASSIGN_OR_RETURN(made, add_reshape(graph_, node, value, permuted_shape(padded, perm)));
    } else {
      FW_ASSIGN_OR_RETURN(Value * full, add_reshape(graph_, node, value, padded));
      FW_ASSIGN_OR_RETURN(made, add_transpose(graph_, node, full, perm));
    }
    if (made != value && made->producer()) made->producer()->sources.clear();  // no ONNX node asked for it
    return moved_[{value, perm}] = made;
  }

  Result<Value*> restored(Value* value, const Perm& perm, const SymShape& shape, Node* node) {
    Value* back = nullptr;
    if (is_trivial(shape, perm)) {
      // A node of its own even where the shapes are equal: it stands for the old value.
      FW_ASSIGN_OR_RETURN(back, add_before(graph_, node, "Reshape", {value}, {{"shape", shape}}));
    } else {
      FW_ASSIGN_OR_RETURN(back, add_transpose(graph_, node, value, inverse(perm)));
    }
    back->producer()->sources.clear();
    return back;
  }

  Result<Attributes> moved_attributes(const Node& node, const Perm& in) {
    Attributes attributes = node.attributes;
    const std::string& op = node.op();
    const Perm place = inverse(in);  // where an original dim is stored
    const size_t rank = in.size();
    auto move_axis = [&](std::string_view name, int64_t fallback) {
      attributes[std::string(name)] = place[normalized_axis(node.int_or(name, fallback), rank)];
    };
    if (is_spatial(node)) {
      attributes["layout"] = std::string("NHWC");
      if (op == "Resize") move_sizes(node, in, attributes);
    } else if (op == "Transpose") {
      Perm across;
      const Perm q = node.ints_or("perm", {});
      for (int64_t dim : plan_.perm[node.output()])
        across.push_back(place[static_cast<size_t>(q[static_cast<size_t>(dim)])]);
      attributes["perm"] = across;
    } else if (op == "Reshape" || op == "Expand") {
      const SymShape& shape = node.output()->shape;
      auto perm = plan_.perm.find(node.output());
      const bool out_moved = plan_.nodes.at(&node).moved_out;
      attributes.erase("allowzero");  // the shape is exact
      attributes["shape"] = out_moved ? permuted_shape(shape, perm->second) : shape;
    } else if (is_reduction(node)) {
      if (op.starts_with("Arg")) {
        move_axis("axis", 0);
      } else {
        std::vector<int64_t> axes;
        for (size_t axis : reduced_axes(node)) axes.push_back(place[axis]);
        std::sort(axes.begin(), axes.end());
        attributes["axes"] = axes;
      }
    } else if (op == "Slice") {
      attributes["axes"] = moved_axes(node, place);
    } else if (op == "Pad") {
      FW_RETURN_IF_ERROR(move_pads(node, in, attributes));
    } else if (op == "Softmax" || op == "LogSoftmax") {
      move_axis("axis", -1);
    } else if (op == "Concat" || op == "Split" || op == "Gather" || op == "CumSum") {
      move_axis("axis", 0);
    }
    return attributes;
  }

  static std::vector<int64_t> moved_axes(const Node& node, const Perm& place) {
    std::vector<int64_t> axes = node.ints_or("axes", {});
    std::optional<SymShape> starts = ops::dims_attribute(node, "starts");
    if (axes.empty() && starts) axes = identity_perm(starts->size());
    for (int64_t& axis : axes) axis = place[normalized_axis(axis, place.size())];
    return axes;
  }

  // A Resize's scales or sizes stand in the order of its operand's dims.
  static void move_sizes(const Node& node, const Perm& in, Attributes& attributes) {
    if (std::optional<SymShape> sizes = ops::dims_attribute(node, "sizes"); sizes && sizes->size() == in.size()) {
      attributes["sizes"] = permuted_shape(*sizes, in);
    }
    if (const auto* scales = node.find<std::vector<double>>("scales"); scales && scales->size() == in.size()) {
      std::vector<double> moved;
      for (int64_t dim : in) moved.push_back((*scales)[static_cast<size_t>(dim)]);
      attributes["scales"] = moved;
    }
  }

  // pads: all begins, then all ends.
  static Status move_pads(const Node& node, const Perm& in, Attributes& attributes) {
    const size_t rank = in.size();
    if (std::optional<SymShape> pads = ops::dims_attribute(node, "pads"); pads && pads->size() == 2 * rank) {
      SymShape moved = permuted_shape({pads->begin(), pads->begin() + static_cast<ptrdiff_t>(rank)}, in);
      SymShape ends = permuted_shape({pads->begin() + static_cast<ptrdiff_t>(rank), pads->end()}, in);
      moved.insert(moved.end(), ends.begin(), ends.end());
      attributes["pads"] = moved;
      return Status::ok();
    }
    return internal_error("a Pad without pads for every dim");
  }

  Graph& graph_;
  LayoutPlan plan_;
  std::map<std::pair<const Value*, Perm>, Value*> moved_;
  std::vector<std::pair<Value*, std::string>> names_;
};

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  const std::vector<Node*> nodes = node_list(graph);
  if (std::none_of(nodes.begin(), nodes.end(), [](const Node* node) { return is_spatial(*node); })) return false;
  FW_RETURN_IF_ERROR(Mover(graph).run());
  return true;
}

}  // namespace

const Pass kToNhwc{"to_nhwc", run, true};

}  // namespace flywheel::passes
