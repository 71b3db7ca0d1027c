// SPDX-License-Identifier: Apache-2.0
// The server's own batching options, which config.pbtxt has no fields for, from its parameters.
#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>

#include "server/config/config_reader.h"

namespace flywheel::config {
namespace {

constexpr size_t kMaxBuckets = 64;
constexpr int64_t kMaxLength = int64_t{1} << 31;

const std::string* find(const inference::ModelConfig& message, const std::string& name) {
  const auto it = message.parameters().find(name);
  return it == message.parameters().end() ? nullptr : &it->second.string_value();
}

Result<bool> read_flag(const inference::ModelConfig& message, const std::string& name) {
  const std::string* value = find(message, name);
  if (value == nullptr || *value == "false" || *value == "0") return false;
  if (*value == "true" || *value == "1") return true;
  return invalid_argument(fmt::format("parameter '{}' of model '{}' is '{}', but must be \"true\" or \"false\"", name,
                                      message.name(), *value));
}

Result<std::vector<int64_t>> read_buckets(const inference::ModelConfig& message) {
  std::vector<int64_t> buckets;
  const std::string* value = find(message, "length_buckets");
  if (value == nullptr) return buckets;
  std::string_view rest = *value;
  bool good = !rest.empty();
  while (good && !rest.empty()) {
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    int64_t length = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    good = error == std::errc() && length >= 1 && length <= kMaxLength && buckets.size() < kMaxBuckets &&
           (buckets.empty() || length > buckets.back());
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    good = good && (rest.empty() || (rest.front() == ',' && rest.size() > 1));
    if (!rest.empty()) rest.remove_prefix(1);
    buckets.push_back(length);
  }
  if (good) return buckets;
  return invalid_argument(fmt::format(
      "parameter 'length_buckets' of model '{}' is '{}', but must be lengths in ascending order, such as \"16,32,64\"",
      message.name(), *value));
}

}  // namespace

Result<BatchingOptions> read_batching_options(const inference::ModelConfig& message) {
  BatchingOptions options;
  FW_ASSIGN_OR_RETURN(options.splits_large_requests, read_flag(message, "split_large_requests"));
  FW_ASSIGN_OR_RETURN(options.skips_other_shapes, read_flag(message, "batch_past_other_shapes"));
  FW_ASSIGN_OR_RETURN(options.length_buckets, read_buckets(message));
  if (options.splits_large_requests && (message.max_batch_size() < 1 || message.has_sequence_batching() ||
                                        message.model_transaction_policy().decoupled())) {
    return invalid_argument(
        fmt::format("parameter 'split_large_requests' of model '{}' needs max_batch_size above 0, and neither "
                    "sequence_batching nor a decoupled model",
                    message.name()));
  }
  if (options.splits_large_requests) {
    for (const auto& input : message.input()) {
      if (input.data_type() != inference::TYPE_STRING) continue;
      return invalid_argument(
          fmt::format("parameter 'split_large_requests' of model '{}' needs rows of fixed size, which "
                      "its input '{}' of strings has not",
                      message.name(), input.name()));
    }
  }
  return options;
}

}  // namespace flywheel::config
