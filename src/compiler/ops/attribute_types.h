// SPDX-License-Identifier: Apache-2.0
// An attribute's name decides its type, for all operators alike: a wrong one is refused instead of read as absent.
#pragma once

#include <string_view>

#include "compiler/ir/graph.h"

namespace flywheel::ops {

Status check_attribute_type(std::string_view name, const ir::Attribute& attribute);
std::string_view attribute_type_name(const ir::Attribute& attribute);

}  // namespace flywheel::ops
