// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/assign_views.h"

#include <algorithm>
#include <string_view>

#include "compiler/ops/op.h"
#include "compiler/ops/slice.h"

namespace flywheel::lower {
namespace {

bool is_one_of(std::string_view op, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), op) != list.end();
}

bool is_reshape(const ir::Node& node) {
  return is_one_of(node.op(), {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"});
}

bool is_pointwise(const ir::Node& node) {
  if (node.op() == "Pointwise") return true;
  const ops::Op* op = ops::find_op(node.op());
  return op != nullptr && op->instruction != nullptr && op->instruction(node).has_value();
}

// Whether the kernels of `node` can read operand `operand` through `view`.
bool reads_view(const ir::Node& node, size_t operand, const View& view);

bool is_view_op(const ir::Node& node) {
  return is_reshape(node) || is_one_of(node.op(), {"Transpose", "Expand", "Slice", "Split"});
}

bool all_uses_read(const ir::Value& value, const View& view) {
  if (value.is_graph_output()) return false;  // the output array is contiguous: decided by placement
  return std::all_of(value.uses().begin(), value.uses().end(), [&](const ir::Value::Use& use) {
    return reads_view(*use.node, static_cast<size_t>(use.operand), view);
  });
}

bool reads_view(const ir::Node& node, size_t operand, const View& view) {
  const std::string& op = node.op();
  if (is_pointwise(node) || is_one_of(op, {"Concat", "Pad", "Tile"})) return true;
  if (is_view_op(node)) {
    // A view of a view works if what it becomes can be read; otherwise the inner one is copied, which reads anything.
    if (!is_reshape(node)) return true;
    std::optional<View> derived = derived_view(node, 0, view);
    return derived &&
           (node.output()->is_graph_output() ? derived->is_contiguous() : all_uses_read(*node.output(), *derived));
  }
  if (op == "MatMul") return operand < 2 || view.innermost_unit();
  if (op == "Attention") return operand >= 3 || view.innermost_unit();
  if (is_one_of(op, {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize"})) return view.innermost_unit();
  if (op == "Gemm") return view.innermost_unit() && collapse_leading(view, 2).has_value();
  if (op.rfind("Reduce", 0) == 0 || is_one_of(op, {"ArgMax", "ArgMin"})) return true;
  if (op == "Gather") return operand == 0 ? view.innermost_unit() : view.is_contiguous();
  return view.is_contiguous();
}

// Whether the kernels of `node` can write their output through `view`.
bool writes_view(const ir::Node& node, const View& view) {
  const std::string& op = node.op();
  if (is_pointwise(node) || is_one_of(op, {"Pad", "Tile"})) return true;
  if (is_one_of(op, {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize", "MatMul", "Attention", "Gather"})) {
    return view.innermost_unit();
  }
  if (op == "Gemm") return view.innermost_unit() && collapse_leading(view, 2).has_value();
  return view.is_contiguous() && !is_view_op(node) && op != "Concat";
}

class Assigner {
 public:
  explicit Assigner(const ir::Graph& graph) : graph_(graph) {}

  ViewAssignment run() {
    place_inputs();
    place_backward();
    place_forward();
    return std::move(out_);
  }

 private:
  Storage* new_storage(engine::Space space, const ir::Value& value, int index = 0) {
    auto storage = std::make_unique<Storage>();
    storage->space = space;
    storage->index = index;
    storage->dtype = value.dtype;
    storage->elements = product(value.shape);
    if (value.constant) storage->constant = &*value.constant;
    out_.storages.push_back(std::move(storage));
    return out_.storages.back().get();
  }

  void place_inputs() {
    int index = 0;
    for (const ir::Value* value : graph_.inputs()) {
      out_.views[value] = View::contiguous(new_storage(engine::Space::kInput, *value, index++), value->shape);
    }
    for (const ir::Value* value : graph_.values()) {
      if (value->is_constant())
        out_.views[value] = View::contiguous(new_storage(engine::Space::kWeights, *value), value->shape);
    }
  }

  // From outputs to inputs: where a producer should write because a consumer wants it there.
  void place_backward() {
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const ir::Value* value = graph_.outputs()[i];
      View destination =
          View::contiguous(new_storage(engine::Space::kOutput, *value, static_cast<int>(i)), value->shape);
      if (value->producer() != nullptr && !wanted_.contains(value)) {
        wanted_[value] = destination;
      } else {
        out_.output_copies[i] = destination;
      }
    }
    for (auto it = graph_.nodes().rbegin(); it != graph_.nodes().rend(); ++it) {
      const ir::Node& node = **it;
      if (node.op() == "Concat") place_concat(node);
      if (!is_view_op(node) || node.outputs().size() != 1) continue;
      auto wanted = wanted_.find(node.output());
      ir::Value* source = node.input(0);
      if (!can_be_placed(source) || source->uses().size() != 1) continue;
      if (is_reshape(node)) {
        if (wanted == wanted_.end()) continue;
        if (std::optional<View> view = reshape_view(wanted->second, source->shape)) want(source, *view);
      } else if (node.op() == "Transpose") {
        place_transpose(node, source, wanted == wanted_.end() ? std::nullopt : std::optional<View>(wanted->second));
      }
    }
  }

  // A producer can be told where to write if it is a real step that nothing has placed yet.
  bool can_be_placed(const ir::Value* value) const {
    return value->producer() != nullptr && !value->is_graph_output() && !wanted_.contains(value);
  }

  void want(const ir::Value* value, const View& view) {
    const ir::Node& producer = *value->producer();
    const bool writes = is_reshape(producer)
                            ? reshape_view(view, producer.input(0)->shape).has_value()
                            : producer.op() == "Concat" || is_view_op(producer) || writes_view(producer, view);
    if (writes) wanted_[value] = view;
  }

  void place_concat(const ir::Node& node) {
    ir::Value* result = node.output();
    if (!wanted_.contains(result)) {
      wanted_[result] = View::contiguous(new_storage(engine::Space::kArena, *result), result->shape);
    }
    const View whole = wanted_[result];
    int64_t axis = node.int_or("axis", 0);
    if (axis < 0) axis += result->rank();
    DimExpr start(0);
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      ir::Value* part = node.inputs()[i];
      const DimExpr& extent = part->shape[static_cast<size_t>(axis)];
      const View destination = slice_view(whole, static_cast<size_t>(axis), start, 1, extent);
      start = start + extent;
      const bool placed =
          can_be_placed(part) && !is_view_op(*part->producer()) && others_can_read(*part, node, destination);
      if (placed) want(part, destination);
      auto wanted = wanted_.find(part);
      if (!placed || wanted == wanted_.end()) out_.concat_copies[{&node, i}] = destination;
    }
  }

  // A value written into a Concat's part is read from there by its other users, too. Twice in one Concat needs a copy.
  static bool others_can_read(const ir::Value& value, const ir::Node& concat, const View& view) {
    int in_concat = 0;
    for (const ir::Value::Use& use : value.uses()) {
      if (use.node == &concat) {
        ++in_concat;
      } else if (!reads_view(*use.node, static_cast<size_t>(use.operand), view)) {
        return false;
      }
    }
    return in_concat == 1;
  }

  // Reading through the transposed view is free where all readers can; else the producer may write transposed.
  void place_transpose(const ir::Node& node, ir::Value* source, const std::optional<View>& wanted) {
    const auto* permutation = node.find<std::vector<int64_t>>("perm");
    if (permutation == nullptr) return;
    if (!wanted) {
      Storage probe;
      const View forward = transpose_view(View::contiguous(&probe, source->shape), *permutation);
      if (all_uses_read(*node.output(), forward)) return;
    }
    std::vector<int64_t> inverse(permutation->size());
    for (size_t i = 0; i < permutation->size(); ++i)
      inverse[static_cast<size_t>((*permutation)[i])] = static_cast<int64_t>(i);
    const ir::Node& producer = *source->producer();
    Storage probe;
    const View contiguous = View::contiguous(&probe, node.output()->shape);
    const View backward = transpose_view(wanted ? *wanted : contiguous, inverse);
    // Writers of whole innermost rows only: a scattered write costs as much as the copy that it saves.
    if (is_view_op(producer) || producer.op() == "Concat" || !backward.innermost_unit() ||
        !writes_view(producer, backward))
      return;
    if (!wanted) {
      wanted_[node.output()] =
          View::contiguous(new_storage(engine::Space::kArena, *node.output()), node.output()->shape);
      wanted_[source] = transpose_view(wanted_[node.output()], inverse);
    } else {
      wanted_[source] = backward;
    }
  }

  void place_forward() {
    for (const auto& node : graph_.nodes()) {
      for (size_t i = 0; i < node->outputs().size(); ++i) place_output(*node, i);
      if (is_view_op(*node)) {
        out_.elided[node.get()] =
            std::all_of(node->outputs().begin(), node->outputs().end(),
                        [&](const ir::Value* value) { return out_.elided_outputs.contains(value); });
      }
    }
  }

  void place_output(const ir::Node& node, size_t index) {
    const ir::Value* value = node.outputs()[index];
    auto wanted = wanted_.find(value);
    if (is_view_op(node)) {
      const View& in = out_.views.at(node.input(0));
      std::optional<View> derived = derived_view(node, index, in);
      if (wanted != wanted_.end()) {
        // Placed: it needs no step only if the source was written to that very place.
        out_.views[value] = wanted->second;
        if (derived && derived->storage == wanted->second.storage && derived->offset == wanted->second.offset &&
            same_strides(*derived, wanted->second)) {
          out_.elided_outputs.insert(value);
        }
        return;
      }
      if (derived && all_uses_read(*value, *derived)) {
        out_.views[value] = *derived;
        out_.elided_outputs.insert(value);
        return;
      }
    }
    if (wanted != wanted_.end()) {
      out_.views[value] = wanted->second;
      return;
    }
    out_.views[value] = View::contiguous(new_storage(engine::Space::kArena, *value), value->shape);
  }

  static bool same_strides(const View& a, const View& b) {
    for (size_t i = 0; i < a.dims.size(); ++i) {
      if (a.dims[i] != DimExpr(1) && a.strides[i] != b.strides[i]) return false;
    }
    return true;
  }

  const ir::Graph& graph_;
  ViewAssignment out_;
  std::map<const ir::Value*, View> wanted_;
};

}  // namespace

std::optional<View> derived_view(const ir::Node& node, size_t output, const View& in) {
  const ir::Value* out = node.outputs()[output];
  if (is_reshape(node)) return reshape_view(in, out->shape);
  if (node.op() == "Transpose") {
    const auto* permutation = node.find<std::vector<int64_t>>("perm");
    if (permutation == nullptr || permutation->size() != in.dims.size()) return std::nullopt;
    return transpose_view(in, *permutation);
  }
  if (node.op() == "Expand") return broadcast_view(in, out->shape);
  if (node.op() == "Slice") {
    const auto ranges = ops::slice_ranges(node);
    if (!ranges.is_ok() || ranges.value().size() != in.dims.size()) return std::nullopt;
    View view = in;
    for (size_t axis = 0; axis < in.dims.size(); ++axis) {
      const ops::SliceRange& range = ranges.value()[axis];
      view = slice_view(view, axis, range.start, range.step, range.extent);
    }
    return view;
  }
  if (node.op() == "Split") {
    int64_t axis = node.int_or("axis", 0);
    if (axis < 0) axis += static_cast<int64_t>(in.dims.size());
    DimExpr start(0);
    for (size_t i = 0; i < output; ++i) start = start + node.outputs()[i]->shape[static_cast<size_t>(axis)];
    return slice_view(in, static_cast<size_t>(axis), start, 1, out->shape[static_cast<size_t>(axis)]);
  }
  return std::nullopt;
}

ViewAssignment assign_views(const ir::Graph& graph) { return Assigner(graph).run(); }

}  // namespace flywheel::lower
