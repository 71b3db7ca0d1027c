// SPDX-License-Identifier: Apache-2.0
// The reference of copy: one element at a time, by its index.
#include <cstring>

#include "kernels/copy/copy.h"
#include "kernels/copy/pad_source.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

class CopyReference final : public BoundKernel {
 public:
  explicit CopyReference(const Problem& problem) : x_(problem.inputs[0]), y_(problem.outputs[0]), ints_(problem.ints) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const int64_t size = static_cast<int64_t>(dtype_size(y_.dtype));
    const auto [begin, end] = worker.share(y_.elements());
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, from = 0, to = 0;
      bool inside = true;
      for (int d = y_.rank(); d-- > 0;) {
        const int64_t index = rest % y_.dims[d];
        rest /= y_.dims[d];
        to += index * y_.strides[d];
        int64_t source = index;
        if (!ints_.empty()) source = pad_source(index - ints_[2 + d], x_.dims[d], static_cast<PadMode>(ints_[0]));
        inside &= source != kPadFill;
        if (inside) from += source * x_.strides[d];
      }
      auto* y = static_cast<std::byte*>(operands.outputs[0]) + to * size;
      if (inside) {
        std::memcpy(y, static_cast<const std::byte*>(operands.inputs[0]) + from * size, static_cast<size_t>(size));
      } else {
        for (int64_t b = 0; b < size; ++b)
          y[b] = static_cast<std::byte>(static_cast<uint64_t>(ints_[1]) >> (8 * b) & 255);
      }
    }
  }

 private:
  TensorDesc x_, y_;
  std::vector<int64_t> ints_;
};

Status accepts(const Problem& problem, const Machine&) { return check_copy(problem); }

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_RETURN_IF_ERROR(check_copy(problem));
  return std::unique_ptr<BoundKernel>(std::make_unique<CopyReference>(problem));
}

}  // namespace

extern const Tactic copy_reference;
constinit const Tactic copy_reference{"copy_reference", Family::kCopy, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
