// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/external_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> parse_number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [folder_end, path_end] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return folder_end == folder.end() && path_end != path.end();
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> ExternalData::open(const std::string& location) {
  if (auto it = files_.find(location); it != files_.end()) return it->second;
  const std::string shown = printable(location);
  if (folder_.empty()) {
    return invalid_argument(fmt::format(
        "its data is in the file '{}', but a model from memory has no folder to look in; import it from its file",
        shown));
  }
  if (location.empty() || location.size() > kMaxNameBytes || location.find('\0') != std::string::npos) {
    return invalid_argument(fmt::format("its external data has no usable location ('{}')", shown));
  }
  const fs::path relative(location);
  if (relative.is_absolute() || std::find(relative.begin(), relative.end(), "..") != relative.end()) {
    return invalid_argument(
        fmt::format("its external data is at '{}'; only paths inside the model's folder are followed", shown));
  }
  std::error_code error;
  const fs::path folder = fs::canonical(folder_, error);
  if (error) return not_found(fmt::format("the model's folder '{}': {}", folder_, error.message()));
  const fs::path path = fs::canonical(folder / relative, error);
  if (error) {
    return not_found(fmt::format("its external data '{}' cannot be found in '{}' ({}); put the file beside the model",
                                 shown, folder_, error.message()));
  }
  if (!is_inside(path, folder)) {
    return invalid_argument(
        fmt::format("its external data '{}' is a link to '{}', outside the model's folder; copy the file there", shown,
                    printable(path.string())));
  }
  if (!fs::is_regular_file(path, error)) {
    return invalid_argument(fmt::format("its external data '{}' is not a regular file", shown));
  }
  FW_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path.string(), access_));
  auto file = std::make_shared<const MappedFile>(std::move(mapped));
  files_.emplace(location, file);
  return file;
}

Result<std::shared_ptr<const std::byte>> ExternalData::read(const Record& record, uint64_t size_bytes) {
  const std::optional<uint64_t> offset = record.offset.empty() ? 0 : parse_number(record.offset);
  const std::optional<uint64_t> length = record.length.empty() ? size_bytes : parse_number(record.length);
  if (!offset || !length) {
    return invalid_argument(fmt::format("its external data has offset '{}' and length '{}'; both must be plain numbers",
                                        printable(record.offset), printable(record.length)));
  }
  if (*length != size_bytes) {
    return invalid_argument(
        fmt::format("its external data has {} bytes where its type and dims need {}", *length, size_bytes));
  }
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, open(record.location));
  const auto bytes = file->bytes();
  if (*offset > bytes.size() || size_bytes > bytes.size() - *offset) {
    return invalid_argument(
        fmt::format("its external data is {} bytes at offset {} of '{}', which has {} bytes; the file is cut short",
                    size_bytes, *offset, printable(record.location), bytes.size()));
  }
  return std::shared_ptr<const std::byte>(file, bytes.data() + *offset);
}

}  // namespace flywheel::onnx_import
