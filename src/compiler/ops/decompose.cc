// SPDX-License-Identifier: Apache-2.0
#include "compiler/ops/decompose.h"

#include <fmt/format.h>

#include "compiler/ir/element.h"

namespace flywheel::ops {
Result<ir::ConstTensor> splat_tensor(DType dtype, Dims dims, double value) {
  constexpr int64_t kMost = int64_t{1} << 28;
  std::optional<int64_t> count = checked_element_count(dims);
  if (!count || *count > kMost) {
    return invalid_argument(fmt::format("a constant of {} elements is too large", dims_to_string(dims)));
  }
  size_t size = dtype_size(dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(*count) * size);
  for (size_t i = 0; i < bytes.size(); i += size) ir::store_element(dtype, value, bytes.data() + i);
  return ir::ConstTensor::from<std::byte>(dtype, std::move(dims), bytes);
}

Result<ir::Value*> Decomposer::add(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes) {
  FW_ASSIGN_OR_RETURN(ir::Node * made,
                      ops::add(graph_, op, std::move(inputs), std::move(attributes), node_, 1, node_->sources));
  return made->output();
}

Result<ir::Value*> Decomposer::reshape(ir::Value* x, SymShape shape) {
  if (x->shape == shape) return x;
  return add("Reshape", {x}, {{"shape", std::move(shape)}});
}

Result<ir::Value*> Decomposer::transpose(ir::Value* x, std::vector<int64_t> perm) {
  bool identity = true;
  for (size_t i = 0; i < perm.size(); ++i) identity = identity && perm[i] == static_cast<int64_t>(i);
  if (identity) return x;
  return add("Transpose", {x}, {{"perm", std::move(perm)}});
}

ir::Value* Decomposer::scalar(DType dtype, double value) { return splat(dtype, {}, value); }

ir::Value* Decomposer::splat(DType dtype, Dims dims, double value) {
  Result<ir::ConstTensor> tensor = splat_tensor(dtype, dims, value);
  return graph_.add_constant("constant", tensor.is_ok() ? *std::move(tensor) : ir::ConstTensor::zeros(dtype, {}));
}

Status Decomposer::replace_with(ir::Value* value) {
  ir::Value* old = node_->output();
  for (const ir::Value* output : node_->outputs()) {
    if (output != old && (!output->uses().empty() || output->is_graph_output())) {
      return unsupported(fmt::format("{}: its output %{} is used", node_->describe(), output->name));
    }
  }
  if (!value->producer() || value->is_graph_output()) {  // a graph output needs a value of its own
    FW_ASSIGN_OR_RETURN(value, add("Identity", {value}));
  }
  graph_.replace_uses(old, value);
  std::string name = old->name;
  bool was_new = value->producer()->graph() == &graph_ && value->producer()->sources == node_->sources;
  graph_.erase(node_);
  if (was_new) graph_.rename(value, name);
  return Status::ok();
}

}  // namespace flywheel::ops
