// SPDX-License-Identifier: Apache-2.0
#include "server/backend/engine/engine_description.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string_view>

namespace flywheel::engines {
namespace {

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether an expression such as "batch*2+1" mentions the symbol.
bool mentions(std::string_view expression, std::string_view symbol) {
  for (size_t at = expression.find(symbol); at != std::string_view::npos; at = expression.find(symbol, at + 1)) {
    const size_t end = at + symbol.size();
    const bool starts = at == 0 || !is_name_char(expression[at - 1]);
    const bool ends = end == expression.size() || !is_name_char(expression[end]);
    if (starts && ends) return true;
  }
  return false;
}

bool is_batched_by(const TensorInfo& tensor, std::string_view symbol) {
  if (tensor.dims.empty() || tensor.dims[0] != -1 || tensor.dim_names.size() != tensor.dims.size()) return false;
  if (tensor.dim_names[0] != symbol) return false;
  return std::none_of(tensor.dim_names.begin() + 1, tensor.dim_names.end(),
                      [&](const std::string& name) { return mentions(name, symbol); });
}

config::TensorDescription describe(const TensorInfo& tensor) {
  return {tensor.name, to_data_type(tensor.dtype), tensor.dims};
}

}  // namespace

config::DataType to_data_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return config::DataType::kFp32;
    case DType::kFloat64: return config::DataType::kFp64;
    case DType::kFloat16: return config::DataType::kFp16;
    case DType::kBFloat16: return config::DataType::kBf16;
    case DType::kInt8: return config::DataType::kInt8;
    case DType::kInt16: return config::DataType::kInt16;
    case DType::kInt32: return config::DataType::kInt32;
    case DType::kInt64: return config::DataType::kInt64;
    case DType::kUInt8: return config::DataType::kUint8;
    case DType::kUInt16: return config::DataType::kUint16;
    case DType::kUInt32: return config::DataType::kUint32;
    case DType::kUInt64: return config::DataType::kUint64;
    case DType::kBool: return config::DataType::kBool;
  }
  return config::DataType::kInvalid;
}

int32_t find_max_batch_size(const Engine& engine) {
  if (engine.inputs().empty() || engine.outputs().empty()) return 0;
  const TensorInfo& first = engine.inputs().front();
  if (first.dims.empty() || first.dim_names.empty() || first.dim_names[0].empty()) return 0;
  const std::string_view symbol = first.dim_names[0];
  int64_t largest = std::numeric_limits<int32_t>::max();
  for (const TensorInfo& input : engine.inputs()) {
    if (!is_batched_by(input, symbol) || input.min.empty() || input.max.empty() || input.min[0] > 1) return 0;
    largest = std::min(largest, input.max[0]);
  }
  for (const TensorInfo& output : engine.outputs()) {
    if (!is_batched_by(output, symbol)) return 0;
  }
  return static_cast<int32_t>(std::max<int64_t>(largest, 0));
}

config::ModelDescription describe_engine(const Engine& engine) {
  config::ModelDescription description;
  for (const TensorInfo& input : engine.inputs()) description.inputs.push_back(describe(input));
  for (const TensorInfo& output : engine.outputs()) description.outputs.push_back(describe(output));
  description.max_batch_size = find_max_batch_size(engine);
  return description;
}

schedule::LatencyCurve latency_curve_of(const Engine& engine) {
  schedule::LatencyCurve curve;
  for (const auto& [batch_size, ms] : engine.latency_curve()) {
    const int64_t ns = static_cast<int64_t>(ms * 1e6);
    curve.points.push_back({batch_size, ns, ns});
  }
  return curve;
}

std::vector<int64_t> map_dims(std::span<const int64_t> from, std::span<const int64_t> to,
                              std::span<const int64_t> dims) {
  std::vector<int64_t> mapped;
  mapped.reserve(to.size());
  size_t at = 0;
  for (int64_t dim : to) {
    if (dim == -1) {
      while (at < from.size() && from[at] != -1) ++at;
      dim = at < dims.size() ? dims[at] : 0;
      ++at;
    }
    mapped.push_back(dim);
  }
  return mapped;
}

}  // namespace flywheel::engines
