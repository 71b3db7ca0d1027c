// SPDX-License-Identifier: Apache-2.0
// The reference of reduce: one result after the other, floats in f64, integers in (wrapping) i64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/element.h"
#include "kernels/reduce/reduce.h"
#include "kernels/strided.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

template <class T>
class ReduceReference final : public BoundKernel {
 public:
  // Accumulates in W.
  using W = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;

  ReduceReference(const Problem& problem, ReduceParams params) : params_(std::move(params)) {
    const TensorDesc& x = problem.inputs[0];
    Dims kept_dims, kept_strides, reduced_dims, reduced_strides;
    for (int d = 0; d < x.rank(); ++d) {
      const bool reduces = std::find(params_.axes.begin(), params_.axes.end(), d) != params_.axes.end();
      (reduces ? reduced_dims : kept_dims).push_back(x.dims[d]);
      (reduces ? reduced_strides : kept_strides).push_back(x.strides[d]);
    }
    const Dims kept_views[] = {kept_strides}, reduced_views[] = {reduced_strides};
    kept_ = LoopNest::make(kept_dims, kept_views, LoopOrder::kAsGiven, 1);
    reduced_ = LoopNest::make(reduced_dims, reduced_views, LoopOrder::kAsGiven, 1);
    count_ = reduced_.points(0, reduced_.rank());
    results_ = kept_.points(0, kept_.rank());
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto [begin, end] = worker.share(results_);
    for (int64_t i = begin; i < end; ++i) {
      const T* x = static_cast<const T*>(operands.inputs[0]) + kept_.offset(0, i, kept_.rank());
      if (params_.kind == ReduceKind::kArgMax || params_.kind == ReduceKind::kArgMin) {
        static_cast<int64_t*>(operands.outputs[0])[i] = arg(x);
      } else {
        static_cast<T*>(operands.outputs[0])[i] = cast_element<T>(reduce(x));
      }
    }
  }

 private:
  template <class Visit>
  void for_each(const T* x, const Visit& visit) const {
    if (count_ == 0) return;
    NestWalker walker(reduced_, reduced_.rank(), 0);
    for (int64_t i = 0; i < count_; ++i, walker.next()) visit(x[walker.offset(0)], i);
  }

  // NaN is passed over.
  int64_t arg(const T* x) const {
    const bool smallest = params_.kind == ReduceKind::kArgMin;
    T best = smallest ? highest() : lowest();
    int64_t found = 0;
    for_each(x, [&](T value, int64_t i) {
      const bool better = smallest ? value < best : value > best;
      if (better || (params_.select_last_index && value == best)) {
        best = value;
        found = i;
      }
    });
    return found;
  }

  static T lowest() {
    return std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  }
  static T highest() {
    return std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  }

  static W add(W a, W b) {
    if constexpr (std::is_same_v<W, double>)
      return a + b;
    else
      return static_cast<W>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
  static W multiply(W a, W b) {
    if constexpr (std::is_same_v<W, double>)
      return a * b;
    else
      return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
  static W magnitude(W a) { return a < 0 ? multiply(a, -1) : a; }
  static bool is_nan(W a) { return a != a; }

  template <class Term>
  W sum(const T* x, const Term& term) const {
    W total = 0;
    for_each(x, [&](T value, int64_t) { total = add(total, term(static_cast<W>(value))); });
    return total;
  }

  W extreme(const T* x, bool largest) const {
    W best = static_cast<W>(largest ? lowest() : highest());
    for_each(x, [&](T element, int64_t) {
      const W value = static_cast<W>(element);
      if (is_nan(best)) return;
      if (is_nan(value) || (largest ? value > best : value < best)) best = value;
    });
    return best;
  }

  static W from_double(double value) { return cast_element<W>(value); }

  W reduce(const T* x) const {
    switch (params_.kind) {
      case ReduceKind::kSum: return sum(x, [](W v) { return v; });
      case ReduceKind::kMean: {
        const W total = sum(x, [](W v) { return v; });
        if (std::is_same_v<W, int64_t> && count_ == 0) return 0;
        return total / static_cast<W>(count_);
      }
      case ReduceKind::kMax: return extreme(x, true);
      case ReduceKind::kMin: return extreme(x, false);
      case ReduceKind::kProd: {
        W product = 1;
        for_each(x, [&](T value, int64_t) { product = multiply(product, static_cast<W>(value)); });
        return product;
      }
      case ReduceKind::kL1: return sum(x, [](W v) { return magnitude(v); });
      case ReduceKind::kL2:
        return from_double(std::sqrt(static_cast<double>(sum(x, [](W v) { return multiply(v, v); }))));
      case ReduceKind::kSumSquare: return sum(x, [](W v) { return multiply(v, v); });
      case ReduceKind::kLogSum: return from_double(std::log(static_cast<double>(sum(x, [](W v) { return v; }))));
      default: {  // kLogSumExp
        const double largest = count_ == 0 ? 0 : static_cast<double>(extreme(x, true));
        const double shift = std::isinf(largest) ? 0 : largest;
        double total = 0;
        for_each(x, [&](T value, int64_t) { total += std::exp(static_cast<double>(value) - shift); });
        return from_double(std::log(total) + shift);
      }
    }
  }

  ReduceParams params_;
  LoopNest kept_, reduced_;
  int64_t count_ = 0, results_ = 0;
};

Status accepts(const Problem& problem, const Machine&) { return ReduceParams::from(problem).status(); }

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(ReduceParams params, ReduceParams::from(problem));
  switch (problem.inputs[0].dtype) {
    case DType::kFloat64:
      return std::unique_ptr<BoundKernel>(std::make_unique<ReduceReference<double>>(problem, std::move(params)));
    case DType::kInt32:
      return std::unique_ptr<BoundKernel>(std::make_unique<ReduceReference<int32_t>>(problem, std::move(params)));
    case DType::kInt64:
      return std::unique_ptr<BoundKernel>(std::make_unique<ReduceReference<int64_t>>(problem, std::move(params)));
    default: return std::unique_ptr<BoundKernel>(std::make_unique<ReduceReference<float>>(problem, std::move(params)));
  }
}

}  // namespace

extern const Tactic reduce_reference;
constinit const Tactic reduce_reference{"reduce_reference", Family::kReduce, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
