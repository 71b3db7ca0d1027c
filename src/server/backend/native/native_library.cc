// SPDX-License-Identifier: Apache-2.0
#include "server/backend/native/native_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "server/backend/native/native_request.h"

namespace flywheel::native {

Result<std::shared_ptr<const NativeLibrary>> NativeLibrary::load(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = ::dlerror();
    return invalid_argument(fmt::format("cannot load the backend '{}': {}", path, error == nullptr ? "" : error));
  }
  std::shared_ptr<NativeLibrary> library(new NativeLibrary(path, handle));
  using Entry = const flywheel_backend* (*)(const flywheel_host*);
  const auto entry = reinterpret_cast<Entry>(::dlsym(handle, "flywheel_backend_entry"));
  if (entry == nullptr)
    return invalid_argument(fmt::format("'{}' is no backend: it does not export flywheel_backend_entry", path));
  const flywheel_backend* given = entry(&host());
  if (given == nullptr) return incompatible(fmt::format("the backend '{}' cannot work with this server", path));
  if (given->abi_version != FLYWHEEL_BACKEND_ABI_VERSION) {
    return incompatible(
        fmt::format("the backend '{}' is made for version {} of flywheel/backend.h, but this server has {}", path,
                    given->abi_version, FLYWHEEL_BACKEND_ABI_VERSION));
  }
  std::memcpy(&library->functions_, given, std::min<size_t>(given->size_bytes, sizeof(flywheel_backend)));
  const flywheel_backend& functions = library->functions_;
  if (functions.open_model == nullptr || functions.close_model == nullptr || functions.create_instance == nullptr ||
      functions.destroy_instance == nullptr || functions.execute == nullptr)
    return invalid_argument(fmt::format("the backend '{}' lacks a function of flywheel/backend.h", path));
  return std::shared_ptr<const NativeLibrary>(std::move(library));
}

NativeLibrary::~NativeLibrary() { ::dlclose(handle_); }

Status to_status(int code, const std::string& error) {
  const std::string message = error.empty() ? fmt::format("the backend failed with code {}", code) : error;
  switch (code) {
    case FLYWHEEL_OK: return {};
    case FLYWHEEL_INVALID_ARGUMENT: return invalid_argument(message);
    case FLYWHEEL_NOT_FOUND: return not_found(message);
    case FLYWHEEL_UNSUPPORTED: return unsupported(message);
    case FLYWHEEL_UNAVAILABLE: return unavailable(message);
    case FLYWHEEL_OUT_OF_MEMORY: return out_of_memory(message);
    default: return internal_error(message);
  }
}

}  // namespace flywheel::native
