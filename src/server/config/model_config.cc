// SPDX-License-Identifier: Apache-2.0
#include "server/config/model_config.h"

#include <algorithm>
#include <limits>

namespace flywheel::config {

std::vector<int64_t> VersionPolicy::select(std::vector<int64_t> available) const {
  std::sort(available.begin(), available.end());
  available.erase(std::unique(available.begin(), available.end()), available.end());
  switch (kind) {
    case Kind::kAll: break;
    case Kind::kLatest:
      if (available.size() > num_versions) available.erase(available.begin(), available.end() - num_versions);
      break;
    case Kind::kSpecific:
      std::erase_if(available,
                    [&](int64_t v) { return std::find(versions.begin(), versions.end(), v) == versions.end(); });
      break;
  }
  return available;
}

int32_t ModelConfig::instance_count() const {
  int64_t count = 0;
  for (const InstanceGroup& group : instance_groups) count += group.count;
  return static_cast<int32_t>(std::clamp<int64_t>(count, 0, std::numeric_limits<int32_t>::max()));
}

namespace {

const TensorConfig* find_by_name(const std::vector<TensorConfig>& tensors, std::string_view name) {
  for (const TensorConfig& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

}  // namespace

const TensorConfig* ModelConfig::find_input(std::string_view input_name) const {
  return find_by_name(inputs, input_name);
}

const TensorConfig* ModelConfig::find_output(std::string_view output_name) const {
  return find_by_name(outputs, output_name);
}

}  // namespace flywheel::config
