// SPDX-License-Identifier: Apache-2.0
// One problem of one kernel family: what is to be computed, with concrete shapes. The same struct serves every family, so
// that lowering, tuning, the engine file, the runtime, tests and benchmarks need not know any of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/program.h"
#include "tensor/shape.h"

namespace flywheel::kernels {

// The numbers are stored in engine files: add at the end only. Each family's header states its operands and attributes.
enum class Family : uint16_t {
  kConv = 1,
  kConvTranspose = 2,
  kGemm = 3,       // rows x constant matrix
  kMatMul = 4,     // batched, both operands computed
  kAttention = 5,
  kPool = 6,
  kPointwise = 7,
  kSoftmax = 8,
  kLayerNorm = 9,
  kReduce = 10,
  kGather = 11,
  kCopy = 12,      // any strided move: transpose, slice, concat part, expand, pad
  kResize = 13,
  kArange = 14,    // Range
};
inline constexpr int kFamilyCount = 15;

std::string_view family_name(Family family);  // "conv", "gemm", ...

struct Problem {
  Family family = Family::kCopy;
  std::vector<TensorDesc> inputs;   // main operands first, then the epilogue's
  std::vector<bool> constant;       // for each input: its value is known at build time
  std::vector<TensorDesc> outputs;
  std::vector<int64_t> ints;        // attributes as the family's header lists them
  std::vector<double> floats;
  Program program;                  // epilogue, or the chain of a pointwise problem

  // Text that says all of it: the key of the timing cache, and what a refusal prints.
  std::string to_string() const;
};

}  // namespace flywheel::kernels
