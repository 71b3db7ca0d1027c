// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/classification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

namespace flywheel::http {
namespace {

using config::DataType;

constexpr size_t kMaxElements = 1'000'000;

template <class T>
void append_best(std::span<const std::byte> row, size_t count, const schedule::OutputTensor& output,
                 const repository::ServedModel& model, std::vector<std::byte>& content) {
  std::vector<T> values(row.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), row.data(), values.size() * sizeof(T));
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Equal values by index, and NaN last, so that the order is one.
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](size_t a, size_t b) {
                      if constexpr (std::is_floating_point_v<T>) {
                        if (std::isnan(values[a]) || std::isnan(values[b])) {
                          return std::isnan(values[a]) == std::isnan(values[b]) ? a < b : std::isnan(values[b]);
                        }
                      }
                      return values[a] != values[b] ? values[a] > values[b] : a < b;
                    });
  for (size_t i = 0; i < count; ++i) {
    std::string text;
    if constexpr (std::is_floating_point_v<T>) {
      text = fmt::format("{:f}:{}", values[order[i]], order[i]);
    } else {
      text = fmt::format("{}:{}", values[order[i]], order[i]);
    }
    if (auto label = model.label(output.name, order[i])) text.append(":").append(*label);
    const uint32_t length = static_cast<uint32_t>(text.size());
    const auto* length_bytes = reinterpret_cast<const std::byte*>(&length);
    const auto* text_bytes = reinterpret_cast<const std::byte*>(text.data());
    content.insert(content.end(), length_bytes, length_bytes + sizeof length);
    content.insert(content.end(), text_bytes, text_bytes + text.size());
  }
}

}  // namespace

Result<Classes> best_classes(const schedule::OutputTensor& output, uint64_t count,
                             const repository::ServedModel& model) {
  const size_t element_bytes = config::element_bytes(output.data_type);
  const bool batched = model.config().max_batch_size > 0 && !output.shape.empty();
  const size_t rows = batched ? static_cast<size_t>(output.shape[0]) : 1;
  if (element_bytes == 0 || output.data_type == DataType::kFp16 || output.data_type == DataType::kBf16 ||
      output.data_type == DataType::kBool) {
    return invalid_argument(fmt::format("class result not available for output due to unsupported type '{}'",
                                        config::protocol_name(output.data_type)));
  }
  const size_t row_bytes = rows == 0 ? 0 : output.bytes.size() / rows;
  const size_t elements = row_bytes / element_bytes;
  if (elements > kMaxElements) return invalid_argument("classification output tensor too large");
  const size_t best = static_cast<size_t>(std::min<uint64_t>(count, elements));
  Classes classes;
  if (batched) classes.shape.push_back(output.shape[0]);
  classes.shape.push_back(static_cast<int64_t>(best));
  for (size_t i = 0; i < rows; ++i) {
    const std::span<const std::byte> row = output.bytes.subspan(i * row_bytes, row_bytes);
    switch (output.data_type) {
      case DataType::kUint8: append_best<uint8_t>(row, best, output, model, classes.content); break;
      case DataType::kUint16: append_best<uint16_t>(row, best, output, model, classes.content); break;
      case DataType::kUint32: append_best<uint32_t>(row, best, output, model, classes.content); break;
      case DataType::kUint64: append_best<uint64_t>(row, best, output, model, classes.content); break;
      case DataType::kInt8: append_best<int8_t>(row, best, output, model, classes.content); break;
      case DataType::kInt16: append_best<int16_t>(row, best, output, model, classes.content); break;
      case DataType::kInt32: append_best<int32_t>(row, best, output, model, classes.content); break;
      case DataType::kInt64: append_best<int64_t>(row, best, output, model, classes.content); break;
      case DataType::kFp32: append_best<float>(row, best, output, model, classes.content); break;
      case DataType::kFp64: append_best<double>(row, best, output, model, classes.content); break;
      default: break;
    }
  }
  return classes;
}

}  // namespace flywheel::http
