// SPDX-License-Identifier: Apache-2.0
#include "server/backend/python/python_backend.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "server/backend/python/child_process.h"
#include "server/backend/python/python_process.h"
#include "server/backend/written_description.h"
#include "server/config/parse_config.h"

namespace flywheel::python {
namespace {

constexpr size_t kMaxSourceBytes = 16 << 20;
constexpr std::string_view kEnvironmentParameter = "EXECUTION_ENV_PATH";
constexpr std::string_view kTimeoutParameter = "EXECUTION_TIMEOUT_MS";
constexpr std::string_view kModelFolderVariable = "$$TRITON_MODEL_DIRECTORY";
constexpr int64_t kMaxTimeoutMs = 7 * 24 * 3600 * int64_t{1000};
constexpr int64_t kNsPerMs = 1'000'000;

struct Environment {
  std::string folder;
  std::string interpreter;
};

Result<Environment> find_environment(const config::ModelConfig& config, const std::string& model_folder) {
  Environment environment;
  if (const auto given = config.parameters.find(std::string(kEnvironmentParameter)); given != config.parameters.end()) {
    environment.folder = given->second;
    if (const size_t at = environment.folder.find(kModelFolderVariable); at != std::string::npos)
      environment.folder.replace(at, kModelFolderVariable.size(), model_folder);
  }
  FW_ASSIGN_OR_RETURN(environment.interpreter, find_interpreter(environment.folder));
  return environment;
}

// 0: none.
Result<std::optional<int64_t>> find_timeout(const config::ModelConfig& config) {
  const auto given = config.parameters.find(std::string(kTimeoutParameter));
  if (given == config.parameters.end()) return std::optional<int64_t>();
  const std::string& text = given->second;
  int64_t ms = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || ms < 0 || ms > kMaxTimeoutMs)
    return invalid_argument(fmt::format("parameter {} of model '{}' is '{}', but must be milliseconds, at most {}",
                                        kTimeoutParameter, config.name, text, kMaxTimeoutMs));
  return std::optional<int64_t>(ms * kNsPerMs);
}

class PythonModel : public backend::OpenModel {
 public:
  PythonModel(PythonOptions options, const backend::ModelSource& source, config::ModelConfig written,
              std::string file_name, Environment environment, std::optional<int64_t> timeout_ns)
      : options_(std::move(options)),
        model_folder_(source.model_folder),
        version_folder_(source.version_folder()),
        version_(source.version),
        keep_going_(source.keep_going),
        written_(std::move(written)),
        file_name_(std::move(file_name)),
        environment_(std::move(environment)),
        timeout_ns_(timeout_ns) {}

  const config::ModelConfig* written() const override { return &written_; }
  // A model.py says nothing of its tensors that the configuration could be held against.
  config::ModelDescription description() const override {
    config::ModelDescription description = backend::describe_as_written(written_);
    description.backend = "python";
    description.model_filename = file_name_;
    return description;
  }
  Status configure(const config::ModelConfig& config) override {
    config_ = config;
    return {};
  }
  Result<std::unique_ptr<schedule::BatchExecutor>> create_instance(int index) override {
    ProcessOptions process;
    process.interpreter = environment_.interpreter;
    process.environment = environment_.folder;
    process.instance_name = instance_name(index);
    process.config = config_;
    process.caller = options_.caller;
    process.is_ready = options_.is_ready;
    process.start_message = fmt::format(
        R"({{"path":{},"model_folder":{},"decoupled":{},"args":{{"model_config":{},"model_instance_kind":"CPU",)"
        R"("model_instance_name":{},"model_instance_device_id":"0","model_repository":{},"model_version":"{}",)"
        R"("model_name":{}}}}})",
        json_quote(version_folder_ + "/" + file_name_), json_quote(model_folder_), config_.decoupled,
        json_quote(config::config_to_json(config_)), json_quote(process.instance_name), json_quote(model_folder_),
        version_, json_quote(config_.name));
    auto instance = std::make_unique<PythonProcess>(std::move(process));
    const Result<std::string> started = instance->wait_until_started(keep_going_);
    if (!started.is_ok()) return started.status();
    return std::unique_ptr<schedule::BatchExecutor>(std::move(instance));
  }
  int64_t execution_timeout_ns() const override { return timeout_ns_.value_or(OpenModel::execution_timeout_ns()); }

 private:
  // Of the group that the index falls into.
  std::string instance_name(int index) const {
    for (const config::InstanceGroup& group : config_.instance_groups) {
      if (index < group.count) return fmt::format("{}_{}", group.name, index);
      index -= group.count;
    }
    return fmt::format("{}_{}", config_.name, index);
  }

  const PythonOptions options_;
  const std::string model_folder_;
  const std::string version_folder_;
  const int64_t version_;
  const std::function<bool()> keep_going_;
  const config::ModelConfig written_;
  const std::string file_name_;
  const Environment environment_;
  const std::optional<int64_t> timeout_ns_;
  config::ModelConfig config_;
};

// Has the model's own auto_complete_config look at the configuration, in a process for that alone.
Result<config::ModelConfig> complete(const backend::ModelSource& source, const std::string& path,
                                     const Environment& environment) {
  ProcessOptions options;
  options.interpreter = environment.interpreter;
  options.environment = environment.folder;
  options.instance_name = source.parsed.name;
  options.start_kind = Kind::kComplete;
  options.finalize_timeout_ns = 0;
  options.start_message =
      fmt::format(R"({{"path":{},"model_folder":{},"config":{}}})", json_quote(path), json_quote(source.model_folder),
                  json_quote(config::config_to_json(source.parsed)));
  PythonProcess process(std::move(options));
  FW_ASSIGN_OR_RETURN(const std::string json, process.wait_until_started(source.keep_going));
  Result<config::ModelConfig> completed = config::parse_config_json(json, source.parsed.name);
  if (!completed.is_ok()) return completed.status().with_context("auto_complete_config");
  return completed;
}

}  // namespace

Result<std::shared_ptr<backend::OpenModel>> PythonBackend::open(const backend::ModelSource& source) const {
  const std::string file_name =
      source.parsed.default_model_filename.empty() ? "model.py" : source.parsed.default_model_filename;
  const std::string path = source.version_folder() + "/" + file_name;
  Result<std::string> text = read_text_file(path, kMaxSourceBytes);
  if (!text.is_ok()) return text.status();
  FW_ASSIGN_OR_RETURN(Environment environment, find_environment(source.parsed, source.model_folder));
  FW_ASSIGN_OR_RETURN(const std::optional<int64_t> timeout_ns, find_timeout(source.parsed));
  config::ModelConfig written = source.parsed;
  // Starting a process takes as long as importing what the model imports: not for a model that has nothing to say.
  const bool says_all = !written.inputs.empty() && !written.outputs.empty();
  if (source.auto_complete && (!says_all || text->find("auto_complete_config") != std::string::npos)) {
    FW_ASSIGN_OR_RETURN(written, complete(source, path, environment));
  }
  return std::shared_ptr<backend::OpenModel>(std::make_shared<PythonModel>(
      options_, source, std::move(written), file_name, std::move(environment), timeout_ns));
}

}  // namespace flywheel::python
