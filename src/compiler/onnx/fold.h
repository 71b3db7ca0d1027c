// SPDX-License-Identifier: Apache-2.0
// The values of small tensors that follow from constants alone. Exporters compute parameters that we need at build time
// (bounds of Clip, scales of Resize, a condition of If) by little chains of nodes; the importer asks here for the
// result. Integer chains over dims are not its business: shape inference gives those as Value::elements, and it is
// asked first.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::onnx_import {

class Folder {
 public:
  // Nullopt when the value depends on data or dims, is larger than kMaxElements (constants are exempt), or comes from
  // an operator that is not evaluated here. Values must not change while the Folder lives.
  std::optional<ir::ConstTensor> value(const ir::Value& value);

  static constexpr int64_t kMaxElements = 64;

 private:
  std::optional<ir::ConstTensor> compute(const ir::Value& value, int depth);
  std::optional<ir::ConstTensor> lookup(const ir::Value& value, int depth);
  std::unordered_map<const ir::Value*, std::optional<ir::ConstTensor>> known_;
};

// A tensor of one type from numbers; each is converted as Cast does (toward zero for integers, != 0 for bool).
ir::ConstTensor make_tensor(DType dtype, Dims dims, const std::vector<double>& values);
ir::ConstTensor make_int_tensor(DType dtype, Dims dims, const std::vector<int64_t>& values);

}  // namespace flywheel::onnx_import
