// SPDX-License-Identifier: Apache-2.0
// A backend's shared library while it is loaded, and what the server does for it. Owned together by the models that it
// runs. Thread safety: immutable once loaded.
#pragma once

#include <memory>
#include <string>

#include "flywheel/backend.h"
#include "flywheel/status.h"

namespace flywheel::native {

class NativeLibrary {
 public:
  // The message of a failure names the file.
  static Result<std::shared_ptr<const NativeLibrary>> load(const std::string& path);
  ~NativeLibrary();
  NativeLibrary(const NativeLibrary&) = delete;
  NativeLibrary& operator=(const NativeLibrary&) = delete;

  const flywheel_backend& functions() const { return functions_; }
  const std::string& path() const { return path_; }

 private:
  NativeLibrary(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}
  const std::string path_;
  void* const handle_;
  flywheel_backend functions_{};
};

// Of a function of the library's; `error` is what it wrote.
Status to_status(int code, const std::string& error);

}  // namespace flywheel::native
