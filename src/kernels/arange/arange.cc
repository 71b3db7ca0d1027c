// SPDX-License-Identifier: Apache-2.0
#include "kernels/arange/arange.h"

#include <fmt/format.h>

#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

bool is_integer(DType dtype) { return dtype == DType::kInt32 || dtype == DType::kInt64; }

class Arange final : public BoundKernel {
 public:
  explicit Arange(const Problem& problem) : out_(problem.outputs[0]), ints_(problem.ints), floats_(problem.floats) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    switch (out_.dtype) {
      case DType::kInt32: fill(static_cast<int32_t*>(operands.outputs[0]), ints_[0], ints_[1], worker); break;
      case DType::kInt64: fill(static_cast<int64_t*>(operands.outputs[0]), ints_[0], ints_[1], worker); break;
      case DType::kFloat32: fill(static_cast<float*>(operands.outputs[0]), floats_[0], floats_[1], worker); break;
      default: fill(static_cast<double*>(operands.outputs[0]), floats_[0], floats_[1], worker); break;
    }
  }

 private:
  template <class T, class Number>
  void fill(T* out, Number start, Number step, Worker& worker) const noexcept {
    const Worker::Range range = worker.share(out_.dims[0]);
    for (int64_t i = range.begin; i < range.end; ++i)
      out[i * out_.strides[0]] = static_cast<T>(start + static_cast<Number>(i) * step);
  }

  TensorDesc out_;
  std::vector<int64_t> ints_;
  std::vector<double> floats_;
};

Status accepts(const Problem& problem, const Machine&) { return check_arange(problem); }

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_RETURN_IF_ERROR(check_arange(problem));
  return std::unique_ptr<BoundKernel>(std::make_unique<Arange>(problem));
}

}  // namespace

Status check_arange(const Problem& problem) {
  if (!problem.inputs.empty() || problem.outputs.size() != 1 || problem.outputs[0].rank() != 1) {
    return invalid_argument("arange: it takes no input and gives one vector");
  }
  const TensorDesc& out = problem.outputs[0];
  if (is_integer(out.dtype)) {
    if (problem.ints.size() != 2) return invalid_argument("arange: integers need start and step");
    int64_t last = 0;
    if (out.dims[0] > 0 && (__builtin_mul_overflow(out.dims[0] - 1, problem.ints[1], &last) ||
                            __builtin_add_overflow(last, problem.ints[0], &last))) {
      return invalid_argument("arange: its values overflow");
    }
    return Status::ok();
  }
  if (out.dtype != DType::kFloat32 && out.dtype != DType::kFloat64) {
    return invalid_argument(fmt::format("arange: {} is not i32, i64, f32 or f64", out.to_string()));
  }
  if (problem.floats.size() != 2) return invalid_argument("arange: floats need start and step");
  return Status::ok();
}

extern constinit const Tactic arange_reference{
    "arange_reference", Family::kArange, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
