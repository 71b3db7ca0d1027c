// SPDX-License-Identifier: Apache-2.0
// What the tests of all contraction families share: memory that faults when it is overrun, problems with every kind of
// epilogue, and the comparison of a tactic with the reference. For tests and the kernel benchmark only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/tactic.h"
#include "kernels/tolerance.h"

namespace flywheel::kernels::testing {

// The memory of one operand. It ends where an unreadable page begins; elements that the desc does not reach hold NaN in
// inputs and a pattern in outputs, of which 64 elements also stand before the data.
class Tensor {
 public:
  static Tensor random(const TensorDesc& desc, uint32_t seed);  // uniform in [-1, 1)
  static Tensor output(const TensorDesc& desc);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&&) = delete;
  ~Tensor();

  const TensorDesc& desc() const { return desc_; }
  void* data() const { return data_; }
  double at(int64_t linear) const;  // element in row-major order of the dims
  int64_t offset_of(int64_t linear) const;
  // False when an element outside the desc was written.
  bool gaps_are_intact() const;

 private:
  explicit Tensor(const TensorDesc& desc);
  TensorDesc desc_;
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  int64_t span_ = 0;  // elements from the first to the last
};

// Names of epilogues: "none", "bias", "bias_relu", "bias_clip", "bias_res", "bias_res_relu", "bias_gelu", "bias_silu",
// "bias_hswish", "bias_sigmoid", "gate" (times a value for each image and channel), "row_scale" (times one for each
// row), "scale_bias", "res_bias", "relu_res". Appends the operands and the program to a problem whose output is set.
const std::vector<std::string>& ending_names();
bool add_ending(Problem& problem, const std::string& name);  // false when the name is unknown

// Contiguous dims with `gap` extra elements after each innermost row.
TensorDesc with_gap(Dims dims, int64_t gap);

std::vector<Tensor> random_inputs(const Problem& problem, uint32_t seed);
struct Packed {
  AlignedBuffer bytes;
  std::vector<bool> consumed;
};
Result<Packed> pack(const Tactic& tactic, const Problem& problem, const std::vector<Tensor>& inputs);
// Binds and runs; the status says what refused. Without `packed` it packs first.
Result<Tensor> run(const Tactic& tactic, const Problem& problem, const std::vector<Tensor>& inputs,
                   const Packed& packed, int workers);
Result<Tensor> run(const Tactic& tactic, const Problem& problem, const std::vector<Tensor>& inputs, int workers);

// Runs every tactic but the reference that accepts the problem, with 1, 2 and 3 workers (every count in `workers`),
// against the reference. Returns the names of those that ran, so that a test can state which must.
std::vector<std::string> expect_tactics_match(const Problem& problem, uint32_t seed,
                                              const std::vector<int>& workers = {1, 2, 3});

// Every tactic gives each row of `many` (a problem like `one` but with more images or rows) the bits that it gives it
// in `one`. Rows are slices of the outermost dim of input 0 and of the output; other operands must not have that dim.
void expect_batch_invariant(const std::function<Problem(int64_t)>& problem_of_rows, const std::vector<int64_t>& rows,
                            uint32_t seed);

Tolerance tolerance_of(const Tactic& tactic);
const Machine& machine();

}  // namespace flywheel::kernels::testing
