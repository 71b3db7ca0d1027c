// SPDX-License-Identifier: Apache-2.0
#include "server/config/parse_config.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <set>

#include "server/config/model_config.pb.h"
#include "server/config/refused_fields.h"

namespace flywheel::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<ModelConfig> parse(std::string_view text) { return parse_config(text, "config.pbtxt", "m"); }

std::string error_of(std::string_view text) {
  auto result = parse(text);
  return result.is_ok() ? "" : result.status().message();
}

TEST(ParseConfig, ReadsEveryHonouredField) {
  auto config = parse(R"(
    name: "m"
    platform: "onnxruntime_onnx"
    backend: "onnxruntime"
    version_policy { specific { versions: [ 3, 1 ] } }
    max_batch_size: 16
    input [ { name: "a" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 28, 28 ] },
            { name: "b" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } } ]
    output { name: "c" data_type: TYPE_FP16 dims: -1 label_filename: "labels.txt" }
    instance_group [ { kind: KIND_CPU count: 2 }, { name: "x" } ]
    dynamic_batching {
      preferred_batch_size: [ 8, 4, 8 ]
      max_queue_delay_microseconds: 100
      preserve_ordering: true
      priority_levels: 18446744073709551615
      default_priority_level: 4294967296
      default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }
      priority_queue_policy { key: 7 value { allow_timeout_override: true max_queue_size: 9 } }
    }
    optimization { priority: PRIORITY_MAX input_pinned_memory { enable: false } }
    default_model_filename: "net.onnx"
    metric_tags { key: "team" value: "vision" }
    parameters { key: "k" value: { string_value: "v" } }
    model_warmup [ { name: "w" batch_size: 4 count: 3
                     inputs { key: "a" value { data_type: TYPE_FP32 dims: [ 3, 28, 28 ] random_data: true } }
                     inputs { key: "b" value { data_type: TYPE_INT64 dims: 1 input_data_file: "b.bin" } } } ]
  )");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->name, "m");
  EXPECT_EQ(config->platform, "onnxruntime_onnx");
  EXPECT_EQ(config->backend, "onnxruntime");
  EXPECT_EQ(config->default_model_filename, "net.onnx");
  EXPECT_EQ(config->version_policy.kind, VersionPolicy::Kind::kSpecific);
  EXPECT_THAT(config->version_policy.versions, ElementsAre(3, 1));
  EXPECT_EQ(config->max_batch_size, 16);
  EXPECT_TRUE(config->max_batch_size_given);
  ASSERT_EQ(config->inputs.size(), 2u);
  EXPECT_EQ(config->inputs[0].data_type, DataType::kFp32);
  EXPECT_THAT(config->inputs[0].dims, ElementsAre(3, 28, 28));
  EXPECT_THAT(config->inputs[1].dims, ElementsAre(1));
  EXPECT_TRUE(config->inputs[1].model_dims().empty());
  ASSERT_EQ(config->outputs.size(), 1u);
  EXPECT_EQ(config->outputs[0].data_type, DataType::kFp16);
  EXPECT_THAT(config->outputs[0].model_dims(), ElementsAre(-1));
  EXPECT_EQ(config->outputs[0].label_filename, "labels.txt");
  ASSERT_TRUE(config->dynamic_batching.has_value());
  const DynamicBatching& batching = *config->dynamic_batching;
  EXPECT_THAT(batching.preferred_batch_sizes, ElementsAre(4, 8));
  EXPECT_EQ(batching.max_queue_delay_us, 100u);
  EXPECT_TRUE(batching.preserve_ordering);
  EXPECT_EQ(batching.priority_levels, UINT64_MAX);
  EXPECT_EQ(batching.default_priority_level, 4294967296u);
  EXPECT_EQ(batching.queue_policy(1).timeout_action, TimeoutAction::kDelay);
  EXPECT_EQ(batching.queue_policy(1).default_timeout_us, 5u);
  EXPECT_EQ(batching.queue_policy(7).max_queue_size, 9u);
  EXPECT_TRUE(batching.queue_policy(7).allow_timeout_override);
  EXPECT_EQ(batching.queue_policy(7).timeout_action, TimeoutAction::kReject);
  EXPECT_EQ(config->device_priority, DevicePriority::kMax);
  EXPECT_EQ(config->metric_tags.at("team"), "vision");
  EXPECT_EQ(config->parameters.at("k"), "v");
  ASSERT_EQ(config->warmups.size(), 1u);
  const Warmup& warmup = config->warmups[0];
  EXPECT_EQ(warmup.batch_size, 4u);
  EXPECT_EQ(warmup.count, 3u);
  ASSERT_EQ(warmup.inputs.size(), 2u);
  EXPECT_EQ(warmup.inputs[0].name, "a");
  EXPECT_EQ(warmup.inputs[0].data, WarmupInput::Data::kRandom);
  EXPECT_EQ(warmup.inputs[1].data, WarmupInput::Data::kFile);
  EXPECT_EQ(warmup.inputs[1].file, "b.bin");
}

TEST(ParseConfig, EmptyTextTakesTheFoldersNameAndTheLatestVersion) {
  auto config = parse("");
  ASSERT_TRUE(config.is_ok());
  EXPECT_EQ(config->name, "m");
  EXPECT_FALSE(config->max_batch_size_given);
  EXPECT_EQ(config->version_policy.kind, VersionPolicy::Kind::kLatest);
  EXPECT_EQ(config->version_policy.num_versions, 1u);
}

TEST(ParseConfig, ExplicitZeroBatchIsSeen) {
  auto config = parse("max_batch_size: 0");
  ASSERT_TRUE(config.is_ok());
  EXPECT_TRUE(config->max_batch_size_given);
}

TEST(ParseConfig, SyntaxErrorNamesLineAndColumn) {
  EXPECT_EQ(error_of("name: \"m\"\nmax_batch_size: many\n"), "config.pbtxt:2:17: Expected integer, got: many");
}

TEST(ParseConfig, UnknownFieldIsNamedWithTheLikelyOne) {
  EXPECT_EQ(
      error_of("\n  max_batchsize: 4\n"),
      "config.pbtxt:2:16: Message type \"inference.ModelConfig\" has no field named \"max_batchsize\". Did you mean "
      "'max_batch_size'?");
  EXPECT_THAT(error_of("input { dim: 4 }"), HasSubstr("has no field named \"dim\". Did you mean 'dims'?"));
  EXPECT_THAT(error_of("zzzzzzzz: 4"), HasSubstr("has no field named \"zzzzzzzz\"."));
}

TEST(ParseConfig, UnknownEnumeratorIsNamed) {
  EXPECT_THAT(error_of("input { name: \"a\" data_type: TYPE_FLOAT }"), HasSubstr("TYPE_FLOAT"));
}

TEST(ParseConfig, NameMustBeTheFolders) {
  EXPECT_EQ(error_of("name: \"other\""),
            "config.pbtxt: unexpected directory name 'm' for model 'other', directory name must equal model name");
}

TEST(ParseConfig, RefusedFieldIsNamedWithPlaceAndRemedy) {
  auto result = parse("name: \"m\"\nmodel_operations { op_library_filename: \"x.so\" }\n");
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().code(), Code::kUnsupported);
  EXPECT_EQ(result.status().message(),
            "config.pbtxt:2:1: 'model_operations' is not supported: custom operator libraries are not loaded; express "
            "the operator in ONNX");
  EXPECT_THAT(error_of("input [ { name: \"a\" },\n { name: \"b\" is_shape_tensor: true } ]"),
              HasSubstr("config.pbtxt:2:14: 'input[1].is_shape_tensor' is not supported"));
  EXPECT_THAT(error_of("instance_group { host_policy: \"h\" }"),
              HasSubstr("'instance_group[0].host_policy' is not supported"));
  EXPECT_THAT(error_of("optimization { cuda { graphs: true } }"), HasSubstr("'optimization.cuda'"));
}

TEST(ParseConfig, RefusedFieldAtItsDefaultIsHarmless) {
  EXPECT_EQ(error_of("response_cache { enable: false } model_transaction_policy { decoupled: false }"), "");
}

TEST(ParseConfig, OtherPlatformsAreRefused) {
  EXPECT_THAT(error_of("platform: \"tensorrt_plan\""), HasSubstr("platform 'tensorrt_plan' is not supported"));
  // A backend may be anyone's: the repository looks for it.
  EXPECT_EQ(error_of("backend: \"python\""), "");
}

TEST(ParseConfig, VersionPolicyMustNameVersions) {
  EXPECT_THAT(error_of("version_policy { latest { num_versions: 0 } }"), HasSubstr("must be at least 1"));
  EXPECT_THAT(error_of("version_policy { specific { } }"), HasSubstr("at least one version"));
}

TEST(ParseConfig, HostileTextIsAnErrorNotACrash) {
  EXPECT_NE(error_of(std::string(1 << 16, '{')), "");
  EXPECT_NE(error_of(std::string(1 << 16, '\0')), "");
  EXPECT_NE(error_of("name: \"unterminated"), "");
  EXPECT_NE(error_of("max_batch_size: 99999999999999999999"), "");
  EXPECT_THAT(error_of(std::string(5 << 20, ' ')), HasSubstr("at most 4194304 bytes"));
}

TEST(ParseConfig, Json) {
  auto config = parse_config_json(
      R"({"max_batch_size": 4, "input": [{"name": "a", "data_type": "TYPE_FP32", "dims": [3, "4"]}],
          "dynamic_batching": {"priority_queue_policy": {"1": {"max_queue_size": 2}}}})",
      "m");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->max_batch_size, 4);
  EXPECT_THAT(config->inputs.at(0).dims, ElementsAre(3, 4));
  EXPECT_EQ(config->dynamic_batching->queue_policy(1).max_queue_size, 2u);
  EXPECT_FALSE(parse_config_json("{\"max_batch\": 4}", "m").is_ok());
  EXPECT_FALSE(parse_config_json("[", "m").is_ok());
}

// Whoever adds a field to the schema decides here what becomes of it.
TEST(RefusedFields, EveryFieldIsEitherRefusedOrHonoured) {
  const std::set<std::string> honoured = {
      "ModelConfig.name", "ModelConfig.platform", "ModelConfig.backend", "ModelConfig.version_policy",
      "ModelConfig.max_batch_size", "ModelConfig.input", "ModelConfig.output", "ModelConfig.optimization",
      "ModelConfig.dynamic_batching", "ModelConfig.instance_group", "ModelConfig.default_model_filename",
      "ModelConfig.metric_tags", "ModelConfig.parameters", "ModelConfig.model_warmup", "ModelConfig.sequence_batching",
      "ModelSequenceBatching.direct", "ModelSequenceBatching.oldest",
      "ModelSequenceBatching.max_sequence_idle_microseconds", "ModelSequenceBatching.control_input",
      "ModelSequenceBatching.state", "StrategyDirect.max_queue_delay_microseconds",
      "StrategyDirect.minimum_slot_utilization", "StrategyOldest.max_candidate_sequences",
      "StrategyOldest.preferred_batch_size", "StrategyOldest.max_queue_delay_microseconds",
      "StrategyOldest.preserve_ordering", "ControlInput.name", "ControlInput.control", "Control.kind",
      "Control.int32_false_true", "Control.fp32_false_true", "Control.bool_false_true", "Control.data_type",
      "State.input_name", "State.output_name", "State.data_type", "State.dims", "State.initial_state",
      "InitialState.data_type", "InitialState.dims", "InitialState.zero_data", "InitialState.data_file",
      "InitialState.name", "ModelConfig.ensemble_scheduling", "ModelEnsembling.step",
      "ModelEnsembling.max_inflight_requests", "Step.model_name", "Step.model_version", "Step.input_map",
      "Step.output_map", "Step.model_namespace",
      // Containers of fields that are refused themselves when they ask for something.
      "ModelConfig.model_transaction_policy", "ModelTransactionPolicy.decoupled", "ModelConfig.response_cache",
      "ModelResponseCache.enable", "ModelInput.optional", "ModelInput.allow_ragged_batch", "ModelConfig.batch_input",
      "ModelConfig.batch_output", "BatchInput.kind", "BatchInput.target_name", "BatchInput.data_type",
      "BatchInput.source_input", "BatchOutput.target_name", "BatchOutput.kind", "BatchOutput.source_input",
      "ModelInstanceGroup.rate_limiter", "ModelRateLimiter.resources", "ModelRateLimiter.priority", "Resource.name",
      "Resource.global", "Resource.count",
      // Placement of host memory: without meaning on a CPU, there as here.
      "ModelOptimizationPolicy.input_pinned_memory", "ModelOptimizationPolicy.output_pinned_memory",
      "PinnedMemoryBuffer.enable", "ModelInput.name", "ModelInput.data_type", "ModelInput.format", "ModelInput.dims",
      "ModelInput.reshape", "ModelOutput.name", "ModelOutput.data_type", "ModelOutput.dims", "ModelOutput.reshape",
      "ModelOutput.label_filename", "ModelTensorReshape.shape",
      // `kind` and `gpus` are checked by value.
      "ModelInstanceGroup.name", "ModelInstanceGroup.kind", "ModelInstanceGroup.count", "ModelInstanceGroup.gpus",
      "ModelOptimizationPolicy.priority", "ModelVersionPolicy.latest", "ModelVersionPolicy.all",
      "ModelVersionPolicy.specific", "Latest.num_versions", "Specific.versions",
      "ModelDynamicBatching.preferred_batch_size", "ModelDynamicBatching.max_queue_delay_microseconds",
      "ModelDynamicBatching.preserve_ordering", "ModelDynamicBatching.priority_levels",
      "ModelDynamicBatching.default_priority_level", "ModelDynamicBatching.default_queue_policy",
      "ModelDynamicBatching.priority_queue_policy", "ModelQueuePolicy.timeout_action",
      "ModelQueuePolicy.default_timeout_microseconds", "ModelQueuePolicy.allow_timeout_override",
      "ModelQueuePolicy.max_queue_size", "ModelParameter.string_value", "ModelWarmup.name", "ModelWarmup.batch_size",
      "ModelWarmup.inputs", "ModelWarmup.count", "Input.data_type", "Input.dims", "Input.zero_data",
      "Input.random_data", "Input.input_data_file"};
  std::set<std::string> refused;
  for (const RefusedField& field : refused_fields()) refused.emplace(field.field);
  std::set<std::string> seen;
  std::vector<const google::protobuf::Descriptor*> todo{inference::ModelConfig::descriptor()};
  std::set<const google::protobuf::Descriptor*> visited;
  while (!todo.empty()) {
    const auto* message = todo.back();
    todo.pop_back();
    if (!visited.insert(message).second) continue;
    for (int i = 0; i < message->field_count(); ++i) {
      const auto* field = message->field(i);
      const std::string name = message->name() + "." + field->name();
      seen.insert(name);
      const bool map_entry = message->options().map_entry();
      EXPECT_EQ(honoured.contains(name) + refused.contains(name) + map_entry, 1) << name;
      if (!refused.contains(name) && field->message_type() != nullptr) todo.push_back(field->message_type());
    }
  }
  for (const std::string& name : refused) EXPECT_TRUE(seen.contains(name)) << name << " is not in the schema";
  for (const std::string& name : honoured) EXPECT_TRUE(seen.contains(name)) << name << " is not in the schema";
}

TEST(VersionPolicy, Selects) {
  VersionPolicy latest{VersionPolicy::Kind::kLatest, 2, {}};
  EXPECT_THAT(latest.select({3, 1, 10}), ElementsAre(3, 10));
  EXPECT_THAT(latest.select({3}), ElementsAre(3));
  VersionPolicy all{VersionPolicy::Kind::kAll, 1, {}};
  EXPECT_THAT(all.select({3, 1, 10}), ElementsAre(1, 3, 10));
  VersionPolicy specific{VersionPolicy::Kind::kSpecific, 1, {10, 4, 3}};
  EXPECT_THAT(specific.select({3, 1, 10}), ElementsAre(3, 10));
}

TEST(DataType, Names) {
  EXPECT_EQ(protocol_name(DataType::kString), "BYTES");
  EXPECT_EQ(config_name(DataType::kBf16), "TYPE_BF16");
  EXPECT_EQ(data_type_from_protocol("INT64"), DataType::kInt64);
  EXPECT_EQ(data_type_from_protocol("STRING"), std::nullopt);
  EXPECT_EQ(data_type_from_protocol("<invalid>"), std::nullopt);
  EXPECT_EQ(element_bytes(DataType::kFp64), 8u);
  for (int i = 0; i <= 14; ++i)
    EXPECT_EQ(config_name(static_cast<DataType>(i)), inference::DataType_Name(static_cast<inference::DataType>(i)));
}

}  // namespace
}  // namespace flywheel::config
