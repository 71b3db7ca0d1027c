// SPDX-License-Identifier: Apache-2.0
#include "server/config/refused_fields.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <vector>

namespace flywheel::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

constexpr std::string_view kGpuOnly =
    "it needs a GPU, and this server runs models on the CPU; remove it (the engine is tuned for the machine when it is "
    "built)";
constexpr std::string_view kFlattenedTensor = "engine tensors have ordinary values and row-major layout; remove it";

constexpr RefusedField kRefused[] = {
    {"ModelConfig.runtime", "models are run by Flywheel itself; remove it"},
    {"ModelSequenceBatching.iterative_sequence",
     "a request is executed once; remove it, and let the client send the next step"},
    {"State.use_same_buffer_for_input_output", "a state's output has memory of its own; remove it"},
    {"State.use_growable_memory", kGpuOnly},
    {"ModelConfig.cc_model_filenames", "it chooses a file by GPU; use default_model_filename"},
    {"ModelConfig.model_operations", "custom operator libraries are not loaded; express the operator in ONNX"},
    {"ModelConfig.model_repository_agents",
     "repository agents are not supported; prepare the files before they are loaded"},
    {"ModelConfig.model_metrics", "the histograms' buckets are fixed; remove it"},
    {"ModelInput.is_shape_tensor", kFlattenedTensor},
    {"ModelInput.is_non_linear_format_io", kFlattenedTensor},
    {"ModelOutput.is_shape_tensor", kFlattenedTensor},
    {"ModelOutput.is_non_linear_format_io", kFlattenedTensor},
    {"ModelInstanceGroup.secondary_devices", "there are no secondary devices; remove it"},
    {"ModelInstanceGroup.profile", "an engine chooses its profile by the request's shapes; remove it"},
    {"ModelInstanceGroup.passive", "an instance that takes no requests would never run; remove it"},
    {"ModelInstanceGroup.host_policy", "threads are placed by the server's own options; remove it"},
    {"ModelOptimizationPolicy.graph", "the graph is always optimized when the engine is built; remove it"},
    {"ModelOptimizationPolicy.cuda", kGpuOnly},
    {"ModelOptimizationPolicy.execution_accelerators",
     "the engine is the accelerator; remove it, and choose the precision when building the engine"},
    {"ModelOptimizationPolicy.gather_kernel_buffer_threshold", kGpuOnly},
    {"ModelOptimizationPolicy.eager_batching", "a batch is formed when an instance can run it; remove it"},
};

const RefusedField* find_refused(const FieldDescriptor* field) {
  std::string name = fmt::format("{}.{}", field->containing_type()->name(), field->name());
  for (const RefusedField& refused : kRefused)
    if (refused.field == name) return &refused;
  return nullptr;
}

Status refuse(const std::string& path, std::string_view why, const TextFormat::ParseInfoTree* locations,
              const FieldDescriptor* field, int index, std::string_view file) {
  std::string where{file};
  if (locations != nullptr) {
    auto location = locations->GetLocation(field, index);
    if (location.line >= 0) where += fmt::format(":{}:{}", location.line + 1, location.column + 1);
  }
  return unsupported(fmt::format("{}: '{}' is not supported: {}", where, path, why));
}

Status walk(const Message& message, const std::string& prefix, const TextFormat::ParseInfoTree* locations,
            std::string_view file) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> set;
  reflection->ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    const std::string path = prefix + field->name();
    if (const RefusedField* refused = find_refused(field))
      return refuse(path, refused->why_and_remedy, locations, field, field->is_repeated() ? 0 : -1, file);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const Message& nested = field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                                   : reflection->GetMessage(message, field);
      const auto* tree =
          locations == nullptr ? nullptr : locations->GetTreeForNested(field, field->is_repeated() ? i : -1);
      const std::string nested_prefix = field->is_repeated() ? fmt::format("{}[{}].", path, i) : path + ".";
      FW_RETURN_IF_ERROR(walk(nested, nested_prefix, tree, file));
    }
  }
  return Status::ok();
}

}  // namespace

std::span<const RefusedField> refused_fields() { return kRefused; }

Status check_refused_fields(const Message& message, const TextFormat::ParseInfoTree* locations, std::string_view file) {
  return walk(message, "", locations, file);
}

}  // namespace flywheel::config
