// SPDX-License-Identifier: Apache-2.0
// ONNX in, graph out. Strict: unknown attributes are refused, all unsupported nodes are reported in one message.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "compiler/ir/graph.h"

namespace flywheel::onnx_import {

struct ImportedModel {
  std::unique_ptr<ir::Graph> graph;
  uint64_t hash = 0;  // of the file's bytes and its external data
  std::string producer;
  int64_t opset = 0;
  int node_count = 0;  // of the ONNX graph, functions not expanded
};

// kNotFound, kInvalidArgument (not ONNX, damaged, inconsistent), kUnsupported: one line a node with name, type, domain,
// opset and why.
// `access`: kCopy where somebody may write into the files, or shorten them, while they are read.
Result<ImportedModel> import_file(const std::string& path, FileAccess access = FileAccess::kMap);
// The same from memory; external data is looked up in `folder` (refused when that is empty, or when a path leaves it).
Result<ImportedModel> import_bytes(std::span<const std::byte> bytes, const std::string& folder,
                                   FileAccess access = FileAccess::kMap);

}  // namespace flywheel::onnx_import
