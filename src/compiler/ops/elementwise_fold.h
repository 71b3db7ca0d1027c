// SPDX-License-Identifier: Apache-2.0
// Elementwise operators over known elements: the arithmetic that exporters do on shapes. Only elementwise.cc uses it.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::ops {

// The elements of output 0, from operands whose elements are known; nullopt when they do not all follow for certain.
std::optional<std::vector<DimExpr>> fold_elementwise(const ir::Node& node);

}  // namespace flywheel::ops
