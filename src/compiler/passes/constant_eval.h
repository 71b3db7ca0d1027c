// SPDX-License-Identifier: Apache-2.0
// Arithmetic on constants for passes that rewrite weights, and the evaluator that constant folding always has:
// elementwise operators and those that only move elements. Pure functions.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::passes {

// The outputs of a node whose inputs are all constant and whose output shapes are plain numbers. kUnsupported for every
// operator that is neither elementwise nor a move, and for element types or magnitudes that it cannot do exactly.
Result<std::vector<ir::ConstTensor>> evaluate_simple(const ir::Node& node);

ir::ConstTensor permuted(const ir::ConstTensor& x, std::span<const int64_t> perm);
// REQUIRES: the same element count. Shares the bytes.
ir::ConstTensor reshaped(const ir::ConstTensor& x, Dims dims);
// REQUIRES: equal types and dims except along `axis`.
ir::ConstTensor concatenated(std::span<const ir::ConstTensor> parts, size_t axis);
// REQUIRES: dims of x broadcast to `dims`.
ir::ConstTensor broadcast(const ir::ConstTensor& x, const Dims& dims);
// An f32 tensor with element i = f(x[i], i).
// REQUIRES: x is f32.
ir::ConstTensor mapped(const ir::ConstTensor& x, const std::function<float(float, int64_t)>& f);
ir::ConstTensor filled(DType dtype, Dims dims, double value);
// From doubles to f32, f64, i64, i32 or bool as Cast converts; kUnsupported for other types.
Result<ir::ConstTensor> from_doubles(DType dtype, Dims dims, std::span<const double> values);

}  // namespace flywheel::passes
