// SPDX-License-Identifier: Apache-2.0
// The version of Flywheel, as CMakeLists.txt has it: what the command line and the server say of themselves.
#pragma once

namespace flywheel {

const char* version();

}  // namespace flywheel
