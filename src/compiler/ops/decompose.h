// SPDX-License-Identifier: Apache-2.0
// How decompositions (Op::decompose) are written: new nodes before the old one, carrying its sources. Only files of
// ops/ use it.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "compiler/ops/op.h"

namespace flywheel::ops {

class Decomposer {
 public:
  using Attributes = std::map<std::string, ir::Attribute, std::less<>>;
  Decomposer(ir::Graph& graph, ir::Node* node) : graph_(graph), node_(node) {}

  Result<ir::Value*> add(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes = {});
  Result<ir::Value*> reshape(ir::Value* x, SymShape shape);  // x itself when it has that shape
  Result<ir::Value*> transpose(ir::Value* x, std::vector<int64_t> perm);
  ir::Value* scalar(DType dtype, double value);
  ir::Value* splat(DType dtype, Dims dims, double value);

  // The node's only used output is `value` from now on: it takes its name, and the node goes.
  Status replace_with(ir::Value* value);

 private:
  ir::Graph& graph_;
  ir::Node* node_;
};

// A tensor all of whose elements are `value`, converted as Cast does.
Result<ir::ConstTensor> splat_tensor(DType dtype, Dims dims, double value);

}  // namespace flywheel::ops
