// SPDX-License-Identifier: Apache-2.0
#include "kernels/top_k/top_k.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "kernels/element.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {

Result<TopKParams> TopKParams::from(const Problem& problem) {
  auto refuse = [&](std::string_view why) { return invalid_argument(fmt::format("top_k: {}", why)); };
  if (problem.family != Family::kTopK || problem.ints.size() != 2) return refuse("it needs ints [axis, largest]");
  if (problem.inputs.size() != 1 || problem.outputs.size() != 2 || !problem.program.empty()) {
    return refuse("it takes 1 input, 2 outputs and no program");
  }
  const TensorDesc &x = problem.inputs[0], &values = problem.outputs[0], &places = problem.outputs[1];
  for (const TensorDesc* desc : {&x, &values, &places}) {
    if (desc->rank() > kMaxRank || !checked_element_count(desc->dims) || !desc->is_contiguous()) {
      return refuse(fmt::format("{} is not contiguous", desc->to_string()));
    }
  }
  if (x.dtype == DType::kBool || values.dtype != x.dtype || places.dtype != DType::kInt64 ||
      values.dims != places.dims || values.rank() != x.rank()) {
    return refuse(fmt::format("{} does not give {} and {}", x.to_string(), values.to_string(), places.to_string()));
  }
  TopKParams p;
  p.axis = problem.ints[0];
  p.largest = problem.ints[1] != 0;
  if (p.axis < 0 || p.axis >= x.rank()) return refuse(fmt::format("axis {} is not one of {}", p.axis, x.to_string()));
  for (int d = 0; d < x.rank(); ++d) {
    if (d != p.axis && values.dims[d] != x.dims[d]) return refuse("only the axis may change its extent");
  }
  // Without elements the other extents may be anything.
  const bool is_empty = x.elements() == 0;
  for (int d = 0; d < x.rank() && !is_empty; ++d) {
    if (d < p.axis) p.outer *= x.dims[d];
    if (d > p.axis) p.inner *= x.dims[d];
  }
  if (is_empty) p.outer = 0;
  p.extent = x.dims[p.axis];
  p.k = values.dims[p.axis];
  if (p.k > p.extent) return refuse(fmt::format("k is {} for an extent of {}", p.k, p.extent));
  return p;
}

namespace {

template <class T>
bool is_less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (b != b) return a == a;
  }
  return a < b;
}

class TopKReference final : public BoundKernel {
 public:
  TopKReference(const TopKParams& params, DType dtype, int workers) : p_(params), dtype_(dtype), workers_(workers) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    if (dtype_ == DType::kFloat64) return select<double>(operands, worker);
    if (is_float(dtype_)) return select<float>(operands, worker);
    if (dtype_ == DType::kUInt64) return select<uint64_t>(operands, worker);
    select<int64_t>(operands, worker);
  }

  // A line's elements with their places, for each member.
  size_t workspace_bytes() const override {
    return static_cast<size_t>(workers_) * static_cast<size_t>(p_.extent) * sizeof(Entry<int64_t>);
  }

 private:
  template <class T>
  struct Entry {
    T value;
    int64_t place;
  };

  template <class T>
  void select(const Operands& operands, Worker& worker) const noexcept {
    const auto size = static_cast<int64_t>(dtype_size(dtype_));
    auto* line = reinterpret_cast<Entry<T>*>(operands.workspace) + worker.rank() * p_.extent;
    const auto* x = static_cast<const std::byte*>(operands.inputs[0]);
    auto* values = static_cast<std::byte*>(operands.outputs[0]);
    auto* places = static_cast<int64_t*>(operands.outputs[1]);
    const bool largest = p_.largest;
    auto comes_first = [largest](const Entry<T>& a, const Entry<T>& b) {
      const T &first = largest ? b.value : a.value, &second = largest ? a.value : b.value;
      if (is_less(first, second)) return true;
      return !is_less(second, first) && a.place < b.place;
    };
    const Worker::Range lines = worker.share(p_.outer * p_.inner);
    for (int64_t i = lines.begin; i < lines.end; ++i) {
      const int64_t outer = i / p_.inner, inner = i % p_.inner;
      const std::byte* in = x + (outer * p_.extent * p_.inner + inner) * size;
      for (int64_t j = 0; j < p_.extent; ++j) line[j] = {load_element<T>(dtype_, in + j * p_.inner * size), j};
      // The order is total, so the result does not depend on how it is found.
      if (p_.k < p_.extent) std::nth_element(line, line + p_.k, line + p_.extent, comes_first);
      std::sort(line, line + p_.k, comes_first);
      const int64_t out = outer * p_.k * p_.inner + inner;
      for (int64_t j = 0; j < p_.k; ++j) {
        store_element<T>(dtype_, values + (out + j * p_.inner) * size, line[j].value);
        places[out + j * p_.inner] = line[j].place;
      }
    }
  }

  TopKParams p_;
  DType dtype_;
  int workers_;
};

Status accepts(const Problem& problem, const Machine&) { return TopKParams::from(problem).status(); }

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int workers) {
  FW_ASSIGN_OR_RETURN(TopKParams params, TopKParams::from(problem));
  if (params.extent > INT64_MAX / 32 / workers) return out_of_memory("top_k: the axis is too long to sort");
  return std::unique_ptr<BoundKernel>(std::make_unique<TopKReference>(params, problem.inputs[0].dtype, workers));
}

}  // namespace

extern constinit const Tactic top_k_reference{"top_k_reference", Family::kTopK, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
