// SPDX-License-Identifier: Apache-2.0
#include "server/config/parse_config.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "server/config/config_reader.h"
#include "server/config/refused_fields.h"

namespace flywheel::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::TextFormat;

// Far above any real configuration, and low enough that parsing one never takes noticeable memory.
constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr int kMaxDepth = 32;

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// protobuf says: Message type "inference.ModelInput" has no field named "dim". A misspelling gets its correction.
std::string suggestion_for(const std::string& error) {
  constexpr std::string_view kBefore = "Message type \"";
  constexpr std::string_view kBetween = "\" has no field named \"";
  size_t between = error.find(kBetween);
  if (error.compare(0, kBefore.size(), kBefore) != 0 || between == std::string::npos) return {};
  const std::string type = error.substr(kBefore.size(), between - kBefore.size());
  const std::string field = error.substr(between + kBetween.size(), error.rfind('"') - between - kBetween.size());
  const Descriptor* descriptor = inference::ModelConfig::descriptor()->file()->pool()->FindMessageTypeByName(type);
  if (descriptor == nullptr || field.size() > 64) return {};
  std::string best;
  size_t best_distance = std::max<size_t>(field.size() / 3, 1) + 1;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    size_t distance = edit_distance(field, descriptor->field(i)->name());
    if (distance < best_distance) {
      best_distance = distance;
      best = descriptor->field(i)->name();
    }
  }
  return best.empty() ? std::string() : fmt::format(" Did you mean '{}'?", best);
}

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(std::string_view file) : file_(file) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (!text_.empty()) return;
    std::string where = file_;
    if (line >= 0) where += fmt::format(":{}:{}", line + 1, column + 1);
    text_ = fmt::format("{}: {}{}", where, message, suggestion_for(message));
  }
  Status status() const {
    return invalid_argument(text_.empty() ? fmt::format("{}: not a model configuration in protobuf text format", file_)
                                          : text_);
  }

 private:
  std::string file_;
  std::string text_;
};

// Other backends have platforms of their own; which backends there are, the repository knows.
Status check_platform(const inference::ModelConfig& message, std::string_view file) {
  const std::string& platform = message.platform();
  constexpr std::string_view kPlatforms[] = {"", "flywheel_engine", "onnxruntime_onnx", "ensemble"};
  const std::string& backend = message.backend();
  if (!backend.empty() && backend != "flywheel" && backend != "onnxruntime") return Status::ok();
  if (std::find(std::begin(kPlatforms), std::end(kPlatforms), platform) != std::end(kPlatforms)) return Status::ok();
  return unsupported(fmt::format(
      "{}: platform '{}' is not supported: this server runs ONNX models and Flywheel engines: put model.onnx "
      "or model.engine into the version's folder and leave 'platform' and 'backend' out",
      file, platform));
}

Result<ModelConfig> accept(std::shared_ptr<inference::ModelConfig> message, const TextFormat::ParseInfoTree* locations,
                           std::string_view file, std::string_view model_name) {
  FW_RETURN_IF_ERROR(check_refused_fields(*message, locations, file));
  FW_RETURN_IF_ERROR(check_platform(*message, file));
  if (message->name().empty()) {
    message->set_name(std::string(model_name));
  } else if (message->name() != model_name) {
    return invalid_argument(
        fmt::format("{}: unexpected directory name '{}' for model '{}', directory name must equal model name", file,
                    model_name, message->name()));
  }
  if (message->version_policy().policy_choice_case() == inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET)
    message->mutable_version_policy()->mutable_latest()->set_num_versions(1);
  if (message->version_policy().has_latest() && message->version_policy().latest().num_versions() == 0)
    return invalid_argument(
        fmt::format("{}: 'version_policy.latest.num_versions' must be at least 1 for {}", file, message->name()));
  if (message->version_policy().has_specific() && message->version_policy().specific().versions().empty())
    return invalid_argument(fmt::format("{}: 'version_policy.specific.versions' must name at least one version for {}",
                                        file, message->name()));
  return read_message(std::move(message));
}

Status check_size(size_t bytes, std::string_view file) {
  if (bytes <= kMaxConfigBytes) return Status::ok();
  return invalid_argument(
      fmt::format("{}: {} bytes, but a model configuration is at most {} bytes", file, bytes, kMaxConfigBytes));
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view text, std::string_view file, std::string_view model_name) {
  FW_RETURN_IF_ERROR(check_size(text.size(), file));
  auto message = std::make_shared<inference::ModelConfig>();
  FirstError error(file);
  TextFormat::ParseInfoTree locations;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&locations);
  parser.SetRecursionLimit(kMaxDepth);
  google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&input, message.get())) return error.status();
  // proto3 does not keep an explicit zero apart from an absent field, but here it matters: it turns batching off.
  const auto* field = inference::ModelConfig::descriptor()->FindFieldByName("max_batch_size");
  const bool given = locations.GetLocation(field, -1).line >= 0;
  FW_ASSIGN_OR_RETURN(ModelConfig config, accept(std::move(message), &locations, file, model_name));
  config.max_batch_size_given = given;
  return config;
}

Result<ModelConfig> parse_config_json(std::string_view json, std::string_view model_name) {
  constexpr std::string_view kWhere = "model configuration";
  FW_RETURN_IF_ERROR(check_size(json.size(), kWhere));
  auto message = std::make_shared<inference::ModelConfig>();
  auto parsed = google::protobuf::util::JsonStringToMessage(google::protobuf::StringPiece(json.data(), json.size()),
                                                            message.get());
  if (!parsed.ok())
    return invalid_argument(
        fmt::format("{} of '{}' is not valid JSON for it: {}", kWhere, model_name, parsed.message().ToString()));
  const bool given = message->max_batch_size() != 0;
  FW_ASSIGN_OR_RETURN(ModelConfig config, accept(std::move(message), nullptr, kWhere, model_name));
  config.max_batch_size_given = given;
  return config;
}

bool differ_in_instances_alone(const ModelConfig& a, const ModelConfig& b) {
  if (a.message == nullptr || b.message == nullptr) return false;
  inference::ModelConfig rest_a = *a.message, rest_b = *b.message;
  for (inference::ModelConfig* rest : {&rest_a, &rest_b}) {
    rest->clear_instance_group();
    rest->clear_version_policy();
  }
  return google::protobuf::util::MessageDifferencer::Equals(rest_a, rest_b);
}

}  // namespace flywheel::config
