// SPDX-License-Identifier: Apache-2.0
// Profiles: the ranges of input shapes that an engine is built for. Used by build.cc.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "flywheel/compiler.h"

namespace flywheel {

// The given profile completed with fixed dims and, for inputs that it does not name, with what the hints say and with
// defaults; each input with a default is told in `notes`.
Result<std::map<std::string, ProfileShape>> complete_profile(const ir::Graph& graph,
                                                             const std::map<std::string, ProfileShape>& given,
                                                             const ShapeHints& hints, std::vector<std::string>& notes);
std::string profile_to_string(const std::string& name, const ProfileShape& shape);  // as parse_profile reads it

}  // namespace flywheel
