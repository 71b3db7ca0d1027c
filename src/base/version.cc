// SPDX-License-Identifier: Apache-2.0
#include "base/version.h"

namespace flywheel {

const char* version() { return FLYWHEEL_VERSION; }

}  // namespace flywheel
