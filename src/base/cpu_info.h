// SPDX-License-Identifier: Apache-2.0
// What this machine's CPU can do and how many cores this process may use. Kernels are selected with it, engine files
// are checked against it. Read once, immutable afterwards; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "flywheel/status.h"

namespace flywheel {

// Instruction sets, weakest first: a machine that has one has all those before it.
enum class Isa : uint8_t { kPortable = 0, kAvx2 = 1, kAvx512 = 2 };

std::string_view isa_name(Isa isa);            // "portable", "avx2", "avx512"
Result<Isa> parse_isa(std::string_view name);  // refuses other names, listing the known ones

struct Machine {
  Isa isa = Isa::kPortable;  // the best that kernels may use (after FLYWHEEL_ISA)
  Isa hardware_isa = Isa::kPortable;
  int cores = 1;                // cores this process may run on: affinity mask and cgroup quota
  int64_t l1_bytes = 32 << 10;  // data cache a core
  int64_t l2_bytes = 1 << 20;   // a core
  int64_t l3_bytes = 16 << 20;  // shared
  std::string cpu_name;         // as /proc/cpuinfo gives it

  bool has(Isa wanted) const { return wanted <= isa; }
  // What timings depend on: CPU name, ISA and cache sizes. Key of the timing cache.
  std::string fingerprint() const;
};

// This machine. FLYWHEEL_ISA=portable|avx2|avx512 lowers `isa`; asking for more than the hardware has is an error,
// as is an unknown name.
Result<Machine> detect_machine();

}  // namespace flywheel
