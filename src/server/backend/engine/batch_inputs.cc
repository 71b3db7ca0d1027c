// SPDX-License-Identifier: Apache-2.0
#include "server/backend/engine/batch_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tensor/shape.h"

namespace flywheel::engines {
namespace {

using Kind = config::BatchInput::Kind;

// Counts beyond this are neither INT32 nor told apart as FP32.
constexpr int64_t kMaxCount = (int64_t{1} << 31) - 1;

}  // namespace

Result<ComputedInput> compute_batch_input(const config::BatchInput& input, size_t source,
                                          std::span<const schedule::BatchItem> items) {
  std::vector<int64_t> values;
  ComputedInput computed;
  int64_t sum = 0, most = 0;
  if (input.kind == Kind::kAccumulatedElementCountWithZero) values.push_back(0);
  int64_t rows = 0, rank = 0;
  for (const schedule::BatchItem& item : items) {
    const schedule::InputView& view = item.request->inputs[source];
    const std::optional<int64_t> count = checked_element_count(view.shape);
    if (!count || *count > kMaxCount - sum)
      return invalid_argument(fmt::format("the elements of a batch's input '{}' are too many to count", view.name));
    sum += *count;
    most = std::max(most, *count);
    switch (input.kind) {
      case Kind::kElementCount: values.push_back(*count); break;
      case Kind::kAccumulatedElementCount:
      case Kind::kAccumulatedElementCountWithZero: values.push_back(sum); break;
      case Kind::kMaxElementCountAsShape: break;
      case Kind::kItemShape:
      case Kind::kItemShapeFlatten:
        if (view.shape.empty()) return invalid_argument("a batch input of item shapes needs a batch dimension");
        rank = static_cast<int64_t>(view.shape.size()) - 1;
        for (int64_t row = 0; row < item.request->batch_size; ++row, ++rows)
          values.insert(values.end(), view.shape.begin() + 1, view.shape.end());
        break;
    }
  }
  if (input.kind == Kind::kMaxElementCountAsShape) values.assign(static_cast<size_t>(most), 0);
  computed.shape = {static_cast<int64_t>(values.size())};
  if (input.kind == Kind::kItemShape) computed.shape = {rows, rank};
  computed.bytes.resize(values.size() * 4);
  for (size_t i = 0; i < values.size(); ++i) {
    const int32_t whole = static_cast<int32_t>(values[i]);
    const float real = static_cast<float>(values[i]);
    std::memcpy(computed.bytes.data() + i * 4,
                input.data_type == config::DataType::kFp32 ? static_cast<const void*>(&real) : &whole, 4);
  }
  return computed;
}

Status add_cut(const std::shared_ptr<std::byte>& data, const std::string& name, config::DataType data_type,
               size_t element_bytes, size_t total_bytes, const std::vector<int64_t>& shape, size_t& at,
               std::vector<schedule::OutputTensor>& outputs) {
  const std::optional<int64_t> count = checked_element_count(shape);
  size_t bytes = 0;
  if (!count || __builtin_mul_overflow(static_cast<size_t>(*count), element_bytes, &bytes) ||
      bytes > total_bytes - at) {
    return internal_error(
        fmt::format("output '{}' has {} bytes, fewer than the shapes of the batch's inputs say: batch_output does not "
                    "fit this model",
                    name, total_bytes));
  }
  schedule::OutputTensor output;
  output.name = name;
  output.data_type = data_type;
  output.shape = shape;
  output.bytes = {data.get() + at, bytes};
  output.owner = data;
  at += bytes;
  outputs.push_back(std::move(output));
  return {};
}

}  // namespace flywheel::engines
