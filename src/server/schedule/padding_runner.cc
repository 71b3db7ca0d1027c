// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/padding_runner.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace flywheel::schedule {
namespace {

// A tensor as `outer` runs of `inner` bytes for each step of one dimension.
struct Runs {
  size_t outer = 1, inner = 1;
};

Runs runs_of(const std::vector<int64_t>& shape, size_t dim, size_t element_bytes) {
  Runs runs;
  for (size_t i = 0; i < dim; ++i) runs.outer *= static_cast<size_t>(shape[i]);
  runs.inner = element_bytes;
  for (size_t i = dim + 1; i < shape.size(); ++i) runs.inner *= static_cast<size_t>(shape[i]);
  return runs;
}

// The tensor with another length along a dimension: cut, or with zeros at its end. Null when there is no memory.
std::shared_ptr<std::byte[]> resized(std::span<const std::byte> bytes, const Runs& runs, int64_t from, int64_t to) {
  const size_t from_bytes = runs.inner * static_cast<size_t>(from), to_bytes = runs.inner * static_cast<size_t>(to);
  if (bytes.size() != runs.outer * from_bytes) return nullptr;
  std::shared_ptr<std::byte[]> data(new (std::nothrow) std::byte[std::max<size_t>(runs.outer * to_bytes, 1)]);
  if (data == nullptr) return nullptr;
  const size_t kept = std::min(from_bytes, to_bytes);
  for (size_t i = 0; i < runs.outer; ++i) {
    std::byte* row = data.get() + i * to_bytes;
    if (kept != 0) std::memcpy(row, bytes.data() + i * from_bytes, kept);
    if (to_bytes > kept) std::memset(row + kept, 0, to_bytes - kept);
  }
  return data;
}

}  // namespace

PaddingRunner::PaddingRunner(const config::ModelConfig& config, std::unique_ptr<RequestRunner> model,
                             std::function<Status(const InferRequest&)> check)
    : batched_(config.max_batch_size > 0),
      buckets_(config.batching_options.length_buckets),
      model_(std::move(model)),
      check_(std::move(check)) {
  const auto add = [&](const config::TensorConfig& tensor, std::vector<Variable>& variables) {
    if (tensor.data_type == config::DataType::kString) return;
    if (std::count(tensor.dims.begin(), tensor.dims.end(), -1) != 1) return;
    const auto at = std::find(tensor.dims.begin(), tensor.dims.end(), -1) - tensor.dims.begin();
    variables.push_back({tensor.name, static_cast<size_t>(at) + (batched_ ? 1 : 0)});
  };
  for (const config::TensorConfig& tensor : config.inputs) add(tensor, inputs_);
  for (const config::TensorConfig& tensor : config.outputs) add(tensor, outputs_);
}

const PaddingRunner::Variable* PaddingRunner::find(const std::vector<Variable>& variables,
                                                   const std::string& name) const {
  const auto it = std::find_if(variables.begin(), variables.end(), [&](const Variable& v) { return v.name == name; });
  return it == variables.end() ? nullptr : &*it;
}

// -1: its inputs are not of one length.
int64_t PaddingRunner::length_of(const InferRequest& request) const {
  int64_t length = -1;
  for (const InputView& input : request.inputs) {
    const Variable* variable = find(inputs_, input.name);
    if (variable == nullptr || variable->dim >= input.shape.size()) continue;
    const int64_t found = input.shape[variable->dim];
    if (length != -1 && found != length) return -1;
    length = found;
  }
  return length;
}

void PaddingRunner::enqueue(RequestPtr request) {
  const int64_t length = length_of(*request);
  const auto bucket = std::lower_bound(buckets_.begin(), buckets_.end(), length);
  if (length < 1 || bucket == buckets_.end() || *bucket == length) {
    model_->enqueue(std::move(request));
    return;
  }
  std::vector<InputView> own = request->inputs;
  auto kept = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  kept->push_back(request->input_owner);
  for (InputView& input : request->inputs) {
    const Variable* variable = find(inputs_, input.name);
    if (variable == nullptr || variable->dim >= input.shape.size()) continue;
    const Runs runs = runs_of(input.shape, variable->dim, config::element_bytes(input.data_type));
    std::shared_ptr<std::byte[]> padded = resized(input.bytes, runs, length, *bucket);
    if (padded == nullptr) {
      request->inputs = std::move(own);
      model_->enqueue(std::move(request));
      return;
    }
    input.shape[variable->dim] = *bucket;
    input.bytes = {padded.get(), runs.outer * runs.inner * static_cast<size_t>(*bucket)};
    kept->push_back(std::move(padded));
  }
  if (check_ && !check_(*request).is_ok()) {
    request->inputs = std::move(own);
    model_->enqueue(std::move(request));
    return;
  }
  request->input_owner = std::move(kept);
  request->signature = shape_signature(request->inputs, batched_);
  request->on_response = [outputs = outputs_, length, padded_length = *bucket, given = std::move(request->on_response)](
                             InferRequest& answered, InferResponse response) {
    for (OutputTensor& output : response.outputs) {
      for (const Variable& variable : outputs) {
        if (variable.name != output.name || variable.dim >= output.shape.size()) continue;
        if (output.shape[variable.dim] != padded_length) continue;  // its length is not the input's
        const Runs runs = runs_of(output.shape, variable.dim, config::element_bytes(output.data_type));
        std::shared_ptr<std::byte[]> cut = resized(output.bytes, runs, padded_length, length);
        if (cut == nullptr) {
          response = {out_of_memory("no memory to cut output '" + output.name + "' to the request's length"),
                      FailureReason::kOther,
                      {}};
          given(answered, std::move(response));
          return;
        }
        output.shape[variable.dim] = length;
        output.bytes = {cut.get(), runs.outer * runs.inner * static_cast<size_t>(length)};
        output.owner = std::move(cut);
      }
    }
    given(answered, std::move(response));
  };
  model_->enqueue(std::move(request));
}

}  // namespace flywheel::schedule
