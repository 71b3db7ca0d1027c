// SPDX-License-Identifier: Apache-2.0
// TensorProto → ConstTensor in every encoding that ONNX has: raw bytes, typed fields, external files. Initializers and
// attributes are read through it. Where the bytes already lie as we need them they are not copied: the tensor then
// keeps the parsed model or the mapped file alive. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "compiler/ir/graph.h"
#include "compiler/onnx/external_data.h"
#include "onnx.pb.h"

namespace flywheel::onnx_import {

// The tensor's dims: kInvalidArgument when one is negative or the bytes overflow, kUnsupported past kMaxRank.
Result<Dims> tensor_dims(const onnx_pb::TensorProto& tensor, DType dtype);

class TensorReader {
 public:
  // `owner` keeps every tensor that read() is given alive.
  TensorReader(std::shared_ptr<const void> owner, std::string folder, FileAccess access = FileAccess::kMap)
      : owner_(std::move(owner)), external_(std::move(folder), access) {}

  // kUnsupported: an element type that we do not have, segments. kInvalidArgument, kNotFound: the data is not what the
  // type and dims say. Messages say what, not which tensor: the caller puts its name before them.
  Result<ir::ConstTensor> read(const onnx_pb::TensorProto& tensor);

  // Of the external bytes read so far, in the order of reading; 0 when there were none.
  uint64_t external_hash() const { return external_hash_; }

 private:
  Result<ir::ConstTensor> read_external(const onnx_pb::TensorProto& tensor, DType dtype, Dims dims);
  std::shared_ptr<const void> owner_;
  ExternalData external_;
  uint64_t external_hash_ = 0;
};

}  // namespace flywheel::onnx_import
