// SPDX-License-Identifier: Apache-2.0
// Declares every import function that import_list.inc names.
#pragma once

#include "compiler/onnx/node_context.h"

namespace flywheel::onnx_import {

#define FLYWHEEL_IMPORT(domain, op_type, since, min_inputs, max_inputs, max_outputs, function) \
  Status function(NodeContext& node);
#include "compiler/onnx/import_list.inc"
#undef FLYWHEEL_IMPORT

}  // namespace flywheel::onnx_import
