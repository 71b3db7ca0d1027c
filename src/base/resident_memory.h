// SPDX-License-Identifier: Apache-2.0
// What a long-lived process gives back after work that it rarely does. `flywheel serve` calls it when an engine has
// been built and when all models are loaded. Any thread.
#pragma once

namespace flywheel {

// Gives the system back free heap pages and the pages of code and constants of this program and its libraries: those
// still in use come back from the page cache when they are next touched, the compiler's do not. Takes about a
// millisecond.
void give_back_resident_memory();

}  // namespace flywheel
