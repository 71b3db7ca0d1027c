// SPDX-License-Identifier: Apache-2.0
#include "runtime/verify.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>

#include "kernels/element.h"
#include "tensor/shape.h"

namespace flywheel::runtime {
namespace {

struct Value {
  TensorInfo info;
  std::vector<std::byte> data;
};

std::string describe(const TensorInfo& info) {
  return fmt::format("{} {}", dtype_name(info.dtype), dims_to_string(info.dims));
}

// Runs with outputs that nobody wants: the observer hands out what is compared.
Status run_observed(ExecutionContext& context, std::span<const void* const> inputs,
                    ExecutionContext::Observer observer) {
  FW_RETURN_IF_ERROR(context.bind());
  std::vector<std::vector<std::byte>> arrays;
  std::vector<void*> outputs;
  for (size_t i = 0; i < context.engine().outputs().size(); ++i) {
    arrays.emplace_back(context.output_bytes(static_cast<int>(i)));
    outputs.push_back(arrays.back().data());
  }
  context.set_observer(std::move(observer));
  const Status status = context.run(inputs, outputs);
  context.set_observer(nullptr);
  return status;
}

}  // namespace

Difference compare_arrays(DType dtype, std::span<const std::byte> got, std::span<const std::byte> want,
                          const kernels::Tolerance& tolerance) {
  const size_t element_bytes = dtype_size(dtype), count = want.size() / element_bytes;
  Difference result;
  result.elements = static_cast<int64_t>(count);
  if (is_float(dtype)) {
    for (size_t i = 0; i < count; ++i) {
      const double value = std::abs(kernels::load_element<double>(dtype, want.data() + i * element_bytes));
      if (std::isfinite(value)) result.largest_want = std::max(result.largest_want, value);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const std::byte* g = got.data() + i * element_bytes;
    const std::byte* w = want.data() + i * element_bytes;
    // Bytes first: 64-bit integers beyond 2^53 are equal only here. NaNs and zeros of other bits are judged below.
    if (std::memcmp(g, w, element_bytes) == 0) continue;
    const double a = kernels::load_element<double>(dtype, g), b = kernels::load_element<double>(dtype, w);
    const bool holds = is_float(dtype) && tolerance.holds(a, b, result.largest_want);
    const double error = std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : 0;
    const bool first_outside = !holds && result.outside == 0;
    if (first_outside || (result.outside == 0 && error > result.largest_error)) {
      result.worst = static_cast<int64_t>(i);
      result.got = a;
      result.want = b;
    }
    result.largest_error = std::max(result.largest_error, error);
    result.outside += holds ? 0 : 1;
  }
  return result;
}

Result<std::vector<StepDifference>> compare_steps(ExecutionContext& context, ExecutionContext& reference,
                                                  std::span<const void* const> inputs,
                                                  const kernels::Tolerance& tolerance) {
  std::map<std::string, Value, std::less<>> wanted;
  FW_RETURN_IF_ERROR(
      run_observed(reference, inputs, [&](int, int, const TensorInfo& info, std::span<const std::byte> data) {
        wanted[info.name] = {info, std::vector<std::byte>(data.begin(), data.end())};
      }));
  std::vector<StepDifference> result;
  FW_RETURN_IF_ERROR(
      run_observed(context, inputs, [&](int step, int, const TensorInfo& info, std::span<const std::byte> data) {
        StepDifference found{step, info.name, describe(info), "", {}};
        const auto want = wanted.find(info.name);
        if (want == wanted.end()) {
          found.mismatch = "the reference does not compute it";
        } else if (describe(want->second.info) != found.shape) {
          found.mismatch = fmt::format("the reference has {}", describe(want->second.info));
        } else {
          found.difference = compare_arrays(info.dtype, data, want->second.data, tolerance);
        }
        result.push_back(std::move(found));
      }));
  return result;
}

}  // namespace flywheel::runtime
