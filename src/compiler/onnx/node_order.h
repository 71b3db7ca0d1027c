// SPDX-License-Identifier: Apache-2.0
// The order in which a list of ONNX nodes is imported: as the file has it where that is topological, and sorted where
// it is not. Refuses what has no order. Pure functions over the parsed model; any thread.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"
#include "onnx.pb.h"

namespace flywheel::onnx_import {

using NodeList = std::span<const onnx_pb::NodeProto* const>;

// Where a name comes from outside the list.
enum class Known { kNo, kHere, kOuter };  // kHere: given in the same graph, so that no node may give it again

// Indices into `nodes`. kInvalidArgument, naming nodes as `sources` does: a name given twice, an operand that nothing
// gives, a cycle.
Result<std::vector<int>> order_nodes(NodeList nodes, std::span<const std::string> sources,
                                     const std::function<Known(std::string_view)>& known);

// Names that the node reads: its operands, and what its subgraphs take from around them.
void collect_reads(const onnx_pb::NodeProto& node, std::set<std::string, std::less<>>* reads);

}  // namespace flywheel::onnx_import
