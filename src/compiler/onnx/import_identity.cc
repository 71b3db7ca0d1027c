// SPDX-License-Identifier: Apache-2.0
// What does nothing at inference: Identity, Dropout. Called through import_list.inc.
#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {

Status import_identity(NodeContext& node) {
  node.set_output(0, node.input(0));
  return Status::ok();
}

Status import_dropout(NodeContext& node) {
  node.ignore("ratio");
  node.ignore("seed");
  if (node.input(2) != nullptr) {
    FW_ASSIGN_OR_RETURN(ir::ConstTensor mode, node.tensor_operand(2, "training_mode"));
    if (mode.elements() != 1) return invalid_argument("its training_mode must be one value");
    if (mode.as_double(0) != 0) return unsupported("training_mode is set; export the model for inference");
  }
  node.set_output(0, node.input(0));
  return Status::ok();
}

}  // namespace flywheel::onnx_import
