// SPDX-License-Identifier: Apache-2.0
#include "kernels/cumulative/cumulative.h"

#include <fmt/format.h>

#include "kernels/element.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {

Result<CumulativeParams> CumulativeParams::from(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kCumulative, 1));
  auto refuse = [&](std::string_view why) { return invalid_argument(fmt::format("cumulative: {}", why)); };
  if (problem.ints.size() != 3) return refuse("it needs ints [axis, exclusive, reverse]");
  if (problem.inputs.size() != 1 || !problem.program.empty()) return refuse("it takes 1 input and no program");
  const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
  if (x.dtype == DType::kBool || x.dtype != y.dtype || x.dims != y.dims || !x.is_contiguous() || !y.is_contiguous()) {
    return refuse(fmt::format("{} does not give {}", x.to_string(), y.to_string()));
  }
  const int64_t axis = problem.ints[0];
  if (axis < 0 || axis >= x.rank()) return refuse(fmt::format("axis {} is not one of {}", axis, x.to_string()));
  CumulativeParams p;
  p.exclusive = problem.ints[1] != 0;
  p.reverse = problem.ints[2] != 0;
  // Without elements the other extents may be anything.
  if (x.elements() == 0) {
    p.outer = 0;
    return p;
  }
  for (int d = 0; d < x.rank(); ++d) (d < axis ? p.outer : d > axis ? p.inner : p.extent) *= x.dims[d];
  return p;
}

namespace {

class CumulativeReference final : public BoundKernel {
 public:
  CumulativeReference(const CumulativeParams& params, DType dtype) : p_(params), dtype_(dtype) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    if (is_float(dtype_)) return sum<double>(operands, worker);
    sum<uint64_t>(operands, worker);
  }

 private:
  template <class T>
  void sum(const Operands& operands, Worker& worker) const noexcept {
    const auto size = static_cast<int64_t>(dtype_size(dtype_));
    const auto* x = static_cast<const std::byte*>(operands.inputs[0]);
    auto* y = static_cast<std::byte*>(operands.outputs[0]);
    const Worker::Range lines = worker.share(p_.outer * p_.inner);
    for (int64_t i = lines.begin; i < lines.end; ++i) {
      const int64_t first = (i / p_.inner * p_.extent * p_.inner + i % p_.inner) * size, step = p_.inner * size;
      T total{};
      for (int64_t j = 0; j < p_.extent; ++j) {
        const int64_t at = first + (p_.reverse ? p_.extent - 1 - j : j) * step;
        const T value = load_element<T>(dtype_, x + at);
        store_element<T>(dtype_, y + at, p_.exclusive ? total : total + value);
        total += value;
      }
    }
  }

  CumulativeParams p_;
  DType dtype_;
};

Status accepts(const Problem& problem, const Machine&) { return CumulativeParams::from(problem).status(); }

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(CumulativeParams params, CumulativeParams::from(problem));
  return std::unique_ptr<BoundKernel>(std::make_unique<CumulativeReference>(params, problem.inputs[0].dtype));
}

}  // namespace

extern constinit const Tactic cumulative_reference{
    "cumulative_reference", Family::kCumulative, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
