// SPDX-License-Identifier: Apache-2.0
// A tactic is one way to compute a problem. Each family has an explicit list (its tactics.inc), fastest first, ending
// with `reference`, which accepts every valid problem of the family and is the oracle for all others.
//
// Life of a tactic: at build time accepts() and, if it reads constants in a layout of its own, pack(). When a context
// meets a new shape, bind() does everything that depends on shapes. In steady state only BoundKernel::launch() runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cpu_info.h"
#include "base/thread_team.h"
#include "kernels/problem.h"

namespace flywheel::kernels {

// Where the data is, at launch. Pointers are to the first element of each operand as its TensorDesc describes it.
struct Operands {
  const void* const* inputs = nullptr;  // null for a constant that pack() consumed
  void* const* outputs = nullptr;
  const std::byte* packed = nullptr;  // what pack() made, 64-byte aligned; null without pack()
  std::byte* workspace = nullptr;     // workspace_bytes() of scratch shared by the team, 64-byte aligned
  std::atomic<uint32_t>* faults =
      nullptr;  // never null at launch: or-ed with Fault bits; the run then fails with a message
};

// What data can do wrong at run time. The kernel stays inside its buffers, sets the bit and goes on.
enum Fault : uint32_t {
  kIndexOutOfRange = 1,  // Gather and its kin
};

class BoundKernel {
 public:
  virtual ~BoundKernel() = default;
  // Called by every member of a team of the size given to bind(); each does its share. All members see all inputs
  // complete on entry; the executor crosses a barrier after it. Neither allocates, locks, throws nor logs.
  virtual void launch(const Operands& operands, Worker& worker) const noexcept = 0;
  // Scratch for the whole team. Must not shrink when a dim of the problem grows (the arena is sized at the profile's
  // max).
  virtual size_t workspace_bytes() const { return 0; }
};

struct Tactic {
  const char* name;  // "<family>_<types>_<tile>_<isa>", e.g. "conv_f32_14x32_avx512"; stored in engine files
  Family family;
  Isa isa;  // the least that the machine must have

  // OK, or kUnsupported with the reason. Pure; looks at types, attributes, layouts and shapes.
  Status (*accepts)(const Problem& problem, const Machine& machine);

  // Constants rearranged for this tactic; the bytes depend on constants and attributes only, never on dynamic dims, and
  // are the same on every machine of the ISA. `constants[i]` is the data of input i, null when it is not constant. Null
  // when the tactic reads constants as they are. `consumed` (same length as inputs) says which inputs the packed form
  // replaces.
  Result<AlignedBuffer> (*pack)(const Problem& problem, std::span<const void* const> constants,
                                std::vector<bool>& consumed);

  // Prepares for these shapes and this team size. Fails with kUnsupported where accepts() would, or kOutOfMemory.
  Result<std::unique_ptr<BoundKernel>> (*bind)(const Problem& problem, const Machine& machine, int workers);

  // How many bytes pack() makes for an accepted problem, so that an engine's packed weights are never read past their
  // end. Null exactly when pack is.
  uint64_t (*packed_bytes)(const Problem& problem) = nullptr;
};

// The family's tactics, fastest first; `reference` is last. Static storage.
std::span<const Tactic> tactics(Family family);
// Null when there is none of this name.
const Tactic* find_tactic(Family family, std::string_view name);
// The first tactic that the machine has and that accepts the problem. kUnsupported only for an invalid problem.
Result<const Tactic*> first_accepting(const Problem& problem, const Machine& machine);

}  // namespace flywheel::kernels
