// SPDX-License-Identifier: Apache-2.0
// Which function imports which ONNX operator: the rows of import_list.inc. Used by the importer. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/onnx/node_context.h"

namespace flywheel::onnx_import {

struct ImportRow {
  std::string_view domain;  // "" is ai.onnx
  std::string_view op_type;
  int64_t since_version;       // of the operator set; valid until the next row of the same operator
  int min_inputs, max_inputs;  // max -1: any number; the first min_inputs must be present
  int max_outputs;             // -1: any number
  Status (*import)(NodeContext& node);
};

inline constexpr int64_t kOldestOpset = 7, kNewestOpset = 28;  // of ai.onnx
inline constexpr int64_t kNewestIrVersion = 14;

// The row in force for that version of the domain; null when there is none.
const ImportRow* find_import(std::string_view domain, std::string_view op_type, int64_t version);
// Why there is none, and what could be done.
std::string why_no_import(std::string_view domain, std::string_view op_type);

}  // namespace flywheel::onnx_import
