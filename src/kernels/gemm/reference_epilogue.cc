// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/reference_epilogue.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "kernels/program_scalar.h"

namespace flywheel::kernels {
namespace {

template <class T>
double load_as(const void* data, int64_t index) {
  return static_cast<double>(static_cast<const T*>(data)[index]);
}

// Conversion of an out-of-range double to an integer is undefined in C++, so the range is clamped first. The largest
// int64 and uint64 are not doubles: the comparison is with the power of two above them.
template <class T>
void store_integer(void* data, int64_t index, double value) {
  constexpr double kAbove = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  T result = 0;
  if (value >= kAbove) {
    result = std::numeric_limits<T>::max();
  } else if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
    result = std::numeric_limits<T>::min();
  } else if (!std::isnan(value)) {
    result = static_cast<T>(value);
  }
  static_cast<T*>(data)[index] = result;
}

}  // namespace

bool has_scalar_access(DType dtype) { return dtype != DType::kFloat16 && dtype != DType::kBFloat16; }

double load_element(const void* data, DType dtype, int64_t index) noexcept {
  switch (dtype) {
    case DType::kFloat32: return load_as<float>(data, index);
    case DType::kFloat64: return load_as<double>(data, index);
    case DType::kInt8: return load_as<int8_t>(data, index);
    case DType::kInt16: return load_as<int16_t>(data, index);
    case DType::kInt32: return load_as<int32_t>(data, index);
    case DType::kInt64: return load_as<int64_t>(data, index);
    case DType::kUInt8: return load_as<uint8_t>(data, index);
    case DType::kUInt16: return load_as<uint16_t>(data, index);
    case DType::kUInt32: return load_as<uint32_t>(data, index);
    case DType::kUInt64: return load_as<uint64_t>(data, index);
    case DType::kBool: return static_cast<const uint8_t*>(data)[index] != 0;
    default: return 0;
  }
}

void store_element(void* data, DType dtype, int64_t index, double value) noexcept {
  switch (dtype) {
    case DType::kFloat32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case DType::kFloat64: static_cast<double*>(data)[index] = value; return;
    case DType::kInt8: return store_integer<int8_t>(data, index, value);
    case DType::kInt16: return store_integer<int16_t>(data, index, value);
    case DType::kInt32: return store_integer<int32_t>(data, index, value);
    case DType::kInt64: return store_integer<int64_t>(data, index, value);
    case DType::kUInt8: return store_integer<uint8_t>(data, index, value);
    case DType::kUInt16: return store_integer<uint16_t>(data, index, value);
    case DType::kUInt32: return store_integer<uint32_t>(data, index, value);
    case DType::kUInt64: return store_integer<uint64_t>(data, index, value);
    case DType::kBool: static_cast<uint8_t*>(data)[index] = value != 0; return;
    default: return;
  }
}

std::array<int64_t, kMaxRank> broadcast_strides(const TensorDesc& desc, int rank) {
  std::array<int64_t, kMaxRank> strides{};
  const int lead = rank - desc.rank();
  for (int d = 0; d < desc.rank(); ++d) strides[lead + d] = desc.dims[d] == 1 ? 0 : desc.strides[d];
  return strides;
}

Result<ReferenceEpilogue> ReferenceEpilogue::from(const Problem& problem, size_t main_operands) {
  ReferenceEpilogue epilogue;
  epilogue.program_ = problem.program;
  epilogue.main_operands_ = main_operands;
  const TensorDesc& out = problem.outputs[0];
  epilogue.rank_ = out.rank();
  auto view = [&](const TensorDesc& desc) { return View{desc.dtype, broadcast_strides(desc, out.rank())}; };
  auto check = [&](const TensorDesc& desc, const std::string& what) {
    if (has_scalar_access(desc.dtype)) return Status::ok();
    return unsupported(fmt::format("{} reference cannot read or write {} of type {}", family_name(problem.family), what,
                                   dtype_name(desc.dtype)));
  };
  for (size_t i = main_operands; i < problem.inputs.size(); ++i) {
    FW_RETURN_IF_ERROR(check(problem.inputs[i], fmt::format("epilogue operand {}", i)));
    epilogue.inputs_.push_back(view(problem.inputs[i]));
  }
  FW_RETURN_IF_ERROR(check(out, "an output"));
  epilogue.output_ = view(out);
  return epilogue;
}

int64_t ReferenceEpilogue::offset(const View& view, const int64_t* index) const noexcept {
  int64_t sum = 0;
  for (int d = 0; d < rank_; ++d) sum += view.strides[d] * index[d];
  return sum;
}

void ReferenceEpilogue::store(const Operands& operands, const int64_t* index, double accumulator) const noexcept {
  double values[kMaxRegisters];
  values[0] = accumulator;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    values[i + 1] = load_element(operands.inputs[main_operands_ + i], inputs_[i].dtype, offset(inputs_[i], index));
  }
  store_element(operands.outputs[0], output_.dtype, offset(output_, index), evaluate_scalar(program_, values));
}

}  // namespace flywheel::kernels
