// SPDX-License-Identifier: Apache-2.0
// One problem of one kernel family: what is to be computed, with concrete shapes. The same struct serves every family,
// so that lowering, tuning, the engine file, the runtime, tests and benchmarks need not know any of them.
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
  kGemm = 3,    // rows x constant matrix
  kMatMul = 4,  // batched, both operands computed
  kAttention = 5,
  kPool = 6,
  kPointwise = 7,
  kSoftmax = 8,
  kLayerNorm = 9,
  kReduce = 10,
  kGather = 11,
  kCopy = 12,  // any strided move: transpose, slice, concat part, expand, pad
  kResize = 13,
  kArange = 14,  // Range
  kScatter = 15,
  kTopK = 16,
  kCumulative = 17,  // CumSum
  kRecurrent = 18,   // RNN, GRU, LSTM
};
inline constexpr int kFamilyCount = 19;

std::string_view family_name(Family family);  // "conv", "gemm", ...

struct Problem {
  Family family = Family::kCopy;
  std::vector<TensorDesc> inputs;  // main operands first, then the epilogue's
  std::vector<bool> constant;      // for each input: its value is known at build time
  std::vector<TensorDesc> outputs;
  std::vector<int64_t> ints;  // attributes as the family's header lists them
  std::vector<double> floats;
  Program program;  // epilogue, or the chain of a pointwise problem

  // Text that says all of it: the key of the timing cache, and what a refusal prints.
  std::string to_string() const;
};

// What every family's check begins with: known types, rank <= kMaxRank, no negative dim, strides for every dim, byte
// extents within int64, `constant` as long as `inputs` (or empty: none is), and a valid program over at most the inputs
// there are. The operand counts are the family's: `inputs` at least `min_inputs`, outputs exactly one.
Status check_operands(const Problem& problem, Family family, size_t min_inputs);
// Every epilogue operand (inputs[main_operands ..]) broadcasts to the output, and the program takes exactly those.
Status check_epilogue(const Problem& problem, size_t main_operands);

}  // namespace flywheel::kernels
