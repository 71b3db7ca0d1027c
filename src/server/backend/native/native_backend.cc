// SPDX-License-Identifier: Apache-2.0
#include "server/backend/native/native_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "server/backend/native/native_library.h"
#include "server/backend/native/native_request.h"
#include "server/backend/written_description.h"
#include "server/config/parse_config.h"

namespace flywheel::native {
namespace {

// Where the library writes why it failed.
class ErrorText {
 public:
  char* data() { return text_.data(); }
  std::string text() const { return {text_.data(), ::strnlen(text_.data(), text_.size())}; }

 private:
  std::array<char, FLYWHEEL_ERROR_BYTES> text_{};
};

// The library's model, closed after its last instance.
class LibraryModel {
 public:
  LibraryModel(std::shared_ptr<const NativeLibrary> library, void* handle)
      : library_(std::move(library)), handle_(handle) {}
  ~LibraryModel() { library_->functions().close_model(handle_); }
  LibraryModel(const LibraryModel&) = delete;
  LibraryModel& operator=(const LibraryModel&) = delete;
  const flywheel_backend& functions() const { return library_->functions(); }
  void* handle() const { return handle_; }

 private:
  const std::shared_ptr<const NativeLibrary> library_;
  void* const handle_;
};

class NativeInstance : public schedule::BatchExecutor {
 public:
  NativeInstance(std::shared_ptr<const LibraryModel> model, void* handle, const config::ModelConfig& config)
      : model_(std::move(model)), handle_(handle), config_(config) {}
  ~NativeInstance() override { model_->functions().destroy_instance(handle_); }

  Status execute(schedule::Batch& batch) override {
    std::deque<flywheel_request> requests;  // which stay where they are
    std::vector<flywheel_request*> pointers;
    for (schedule::BatchItem& item : batch.items) pointers.push_back(&requests.emplace_back(config_, item));
    batch.input_done_ns = schedule::monotonic_now_ns();
    ErrorText error;
    const int code =
        model_->functions().execute(handle_, pointers.data(), static_cast<uint32_t>(pointers.size()), error.data());
    batch.compute_done_ns = schedule::monotonic_now_ns();
    if (code != FLYWHEEL_OK) return to_status(code, error.text());
    for (flywheel_request& request : requests) request.finish();
    return {};
  }

 private:
  const std::shared_ptr<const LibraryModel> model_;
  void* const handle_;
  const config::ModelConfig config_;
};

class NativeModel : public backend::OpenModel {
 public:
  NativeModel(std::shared_ptr<const NativeLibrary> library, const backend::ModelSource& source)
      : library_(std::move(library)),
        written_(source.parsed),
        model_folder_(source.model_folder),
        version_folder_(source.version_folder()),
        version_(source.version) {}

  config::ModelDescription description() const override {
    config::ModelDescription description = backend::describe_as_written(written_);
    description.backend = written_.backend;
    description.model_filename.clear();
    return description;
  }
  Status configure(const config::ModelConfig& config) override {
    if (config.decoupled)
      return unsupported(fmt::format(
          "'model_transaction_policy.decoupled' of model '{}' is not supported: a native backend gives exactly one "
          "response to each request; remove it",
          config.name));
    config_ = config;
    const std::string json = config::config_to_json(config);
    const flywheel_model_info info = {.size_bytes = sizeof(flywheel_model_info),
                                      .name = config_.name.c_str(),
                                      .version = version_,
                                      .model_folder = model_folder_.c_str(),
                                      .version_folder = version_folder_.c_str(),
                                      .config_json = json.c_str()};
    ErrorText error;
    void* handle = nullptr;
    const int code = library_->functions().open_model(&info, &handle, error.data());
    FW_RETURN_IF_ERROR(to_status(code, error.text()).with_context(library_->path()));
    model_ = std::make_shared<LibraryModel>(library_, handle);
    return {};
  }
  Result<std::unique_ptr<schedule::BatchExecutor>> create_instance(int index) override {
    const std::string name = fmt::format("{}_{}", config_.name, index);
    const flywheel_instance_info info = {
        .size_bytes = sizeof(flywheel_instance_info), .name = name.c_str(), .index = index};
    ErrorText error;
    void* handle = nullptr;
    const int code = library_->functions().create_instance(model_->handle(), &info, &handle, error.data());
    FW_RETURN_IF_ERROR(to_status(code, error.text()).with_context(library_->path()));
    return std::unique_ptr<schedule::BatchExecutor>(std::make_unique<NativeInstance>(model_, handle, config_));
  }

 private:
  const std::shared_ptr<const NativeLibrary> library_;
  const config::ModelConfig written_;
  const std::string model_folder_;
  const std::string version_folder_;
  const int64_t version_;
  config::ModelConfig config_;
  std::shared_ptr<const LibraryModel> model_;
};

}  // namespace

Result<std::string> NativeBackend::find_library(const backend::ModelSource& source) const {
  const std::string& backend = source.parsed.backend;
  const bool is_name = !backend.empty() && std::all_of(backend.begin(), backend.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
  if (!is_name) return invalid_argument(fmt::format("'{}' is no name of a backend", backend));
  const std::string file = fmt::format("libflywheel_{}.so", backend);
  std::vector<std::string> paths = {source.version_folder() + "/" + file, source.model_folder + "/" + file};
  if (!folder_.empty()) {
    paths.push_back(folder_ + "/" + file);
    paths.push_back(folder_ + "/" + backend + "/" + file);
  }
  std::error_code ignored;
  for (const std::string& path : paths) {
    if (std::filesystem::is_regular_file(path, ignored)) return std::filesystem::absolute(path).string();
  }
  return not_found(fmt::format(
      "unable to find backend library for backend '{}' of model '{}': there is no {} in the version's folder, "
      "the model's folder{}. Without a backend of its own a model is a model.engine, model.onnx or model.py: "
      "leave 'platform' and 'backend' out then",
      backend, source.parsed.name, file,
      folder_.empty() ? " (and no --backend-directory was given)" : " or '" + folder_ + "'"));
}

Result<std::shared_ptr<backend::OpenModel>> NativeBackend::open(const backend::ModelSource& source) const {
  FW_ASSIGN_OR_RETURN(const std::string path, find_library(source));
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const NativeLibrary> library, NativeLibrary::load(path));
  return std::shared_ptr<backend::OpenModel>(std::make_shared<NativeModel>(std::move(library), source));
}

}  // namespace flywheel::native
