// SPDX-License-Identifier: Apache-2.0
// Tensor data that a model keeps in files beside it: finds, checks and maps them. The importer has one for each model.
// A location comes from the model and is not trusted: it must name a regular file inside the model's folder, also after
// links are followed. Not thread-safe; the bytes that it gives out keep their mapping alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "flywheel/status.h"

namespace flywheel::onnx_import {

class ExternalData {
 public:
  // `folder`: where the model lies; "" refuses every location.
  explicit ExternalData(std::string folder, FileAccess access = FileAccess::kMap)
      : folder_(std::move(folder)), access_(access) {}

  struct Record {  // as in TensorProto.external_data
    std::string location, offset, length;
  };
  // The `size_bytes` bytes that the record names. kInvalidArgument when the location leaves the folder, when the
  // numbers are damaged, the length is not size_bytes or the range leaves the file; kNotFound when there is no such
  // file.
  Result<std::shared_ptr<const std::byte>> read(const Record& record, uint64_t size_bytes);

 private:
  Result<std::shared_ptr<const MappedFile>> open(const std::string& location);
  std::string folder_;
  FileAccess access_;
  std::map<std::string, std::shared_ptr<const MappedFile>, std::less<>> files_;  // by location
};

}  // namespace flywheel::onnx_import
