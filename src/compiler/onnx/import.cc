// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/import.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <xxhash.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "base/mapped_file.h"
#include "compiler/onnx/graph_importer.h"
#include "compiler/onnx/import_list.h"
#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

constexpr size_t kMaxModelBytes = std::numeric_limits<int32_t>::max();  // protobuf's own limit; weights can be external
constexpr int kMaxNesting = 100;                                        // of messages

Result<std::shared_ptr<ModelStorage>> parse(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxModelBytes) {
    return invalid_argument(
        fmt::format("it has {} bytes, more than the {} that an ONNX file can have; keep the weights as external data",
                    bytes.size(), kMaxModelBytes));
  }
  if (bytes.empty()) return invalid_argument("it is empty; an ONNX model is expected");
  auto storage = std::make_shared<ModelStorage>();
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(kMaxNesting);
  if (!storage->model.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return invalid_argument("it is not an ONNX model, or a damaged one: its protobuf encoding is broken");
  }
  const onnx_pb::ModelProto& model = storage->model;
  if (!model.has_graph() || !model.has_ir_version()) {
    return invalid_argument(
        fmt::format("it has no {}: it is not an ONNX model", model.has_graph() ? "ir_version" : "graph"));
  }
  if (model.ir_version() < 1) return invalid_argument(fmt::format("its ir_version is {}", model.ir_version()));
  if (model.ir_version() > kNewestIrVersion) {
    return unsupported(fmt::format(
        "its ir_version is {}; up to {} are supported. Save it with an older one (onnx.helper.make_model(..., "
        "ir_version={}))",
        model.ir_version(), kNewestIrVersion, kNewestIrVersion));
  }
  return storage;
}

Result<ImportedModel> import_checked(std::span<const std::byte> bytes, const std::string& folder, FileAccess access) {
  FW_ASSIGN_OR_RETURN(std::shared_ptr<ModelStorage> storage, parse(bytes));
  GraphImporter importer(storage, folder, access);
  FW_RETURN_IF_ERROR(importer.run());
  ImportedModel imported;
  imported.graph = importer.take_graph();
  imported.hash = XXH3_64bits_withSeed(bytes.data(), bytes.size(), importer.external_hash());
  imported.producer = printable(storage->model.producer_name());
  if (!storage->model.producer_version().empty())
    imported.producer += " " + printable(storage->model.producer_version());
  imported.opset = importer.opset();
  imported.node_count = storage->model.graph().node_size();
  return imported;
}

}  // namespace

Result<ImportedModel> import_bytes(std::span<const std::byte> bytes, const std::string& folder, FileAccess access) {
  try {
    return import_checked(bytes, folder, access);
  } catch (const std::bad_alloc&) {
    return out_of_memory(fmt::format("the system has not enough memory to read a model of {} bytes", bytes.size()));
  } catch (const std::exception& error) {  // std::filesystem, std::length_error
    return internal_error(fmt::format("reading the model failed: {}", error.what()));
  }
}

Result<ImportedModel> import_file(const std::string& path, FileAccess access) {
  FW_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path, access));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  auto imported = import_bytes(file.bytes(), folder.empty() ? "." : folder, access);
  if (!imported.is_ok()) return imported.status().with_context(fmt::format("'{}'", printable(path)));
  return imported;
}

}  // namespace flywheel::onnx_import
