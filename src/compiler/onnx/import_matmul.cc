// SPDX-License-Identifier: Apache-2.0
// MatMul and Gemm, in ONNX's form: a pass makes products with constant weights Gemms of ours. Called through
// import_list.inc.
#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {

Status import_matmul(NodeContext& node) { return node.emit_outputs("MatMul", node.inputs()); }

Status import_gemm(NodeContext& node) {
  return node.emit_outputs("Gemm", node.inputs(),
                           {{"alpha", node.get_float("alpha", 1)},
                            {"beta", node.get_float("beta", 1)},
                            {"transA", int64_t{node.get_int("transA", 0) != 0}},
                            {"transB", int64_t{node.get_int("transB", 0) != 0}}});
}

}  // namespace flywheel::onnx_import
