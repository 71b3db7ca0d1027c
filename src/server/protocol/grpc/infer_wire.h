// SPDX-License-Identifier: Apache-2.0
// The messages of inference on the wire, read and written by hand: a request is a view of the bytes that were received,
// so that raw tensors are never copied and no message costs more memory than it is long. What it accepts is what
// protobuf's own parser accepts for these messages, up to limits on the number of parts; a fuzz target compares them.
// Thread safety: pure functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "flywheel/status.h"
#include "server/config/data_type.h"
#include "server/schedule/request.h"

namespace flywheel::grpc {

using WireBytes = std::span<const std::byte>;

// InferParameter; monostate: none of the choices is set.
using WireValue = std::variant<std::monostate, bool, int64_t, std::string_view, double, uint64_t>;

struct WireParameter {
  std::string_view key;
  WireValue value;
};

struct WireInput {
  std::string_view name, datatype;
  std::vector<int64_t> shape;
  std::vector<WireParameter> parameters;
  std::vector<WireBytes> contents;  // InferTensorContents, in as many pieces as it came; none: absent
};

struct WireOutput {
  std::string_view name;
  std::vector<WireParameter> parameters;
};

// ModelInferRequest. Everything points into the message.
struct WireRequest {
  std::string_view model_name, model_version, id;
  std::vector<WireParameter> parameters;  // of equal keys the last
  std::vector<WireInput> inputs;
  std::vector<WireOutput> outputs;
  std::vector<WireBytes> raw_contents;

  void clear();  // keeps a little memory
};

Status read_infer_request(WireBytes message, WireRequest& out);

// Where in the message the first raw tensor's bytes begin, as far as its first bytes tell; 0 if they do not.
size_t find_raw_contents(WireBytes beginning);

// A tensor's explicit contents as the bytes of its type: in `owned`, or in the message where they are the same.
struct TensorBytes {
  WireBytes bytes;
  std::unique_ptr<std::byte[]> owned;
};
Result<TensorBytes> read_contents(const WireInput& input, config::DataType type, std::string_view model_name);

// -----------------------------------------------------------------------------------------------------------------------
// ModelInferResponse.

struct WireResponse {
  std::string_view model_name, model_version, id;
  const schedule::Parameters* parameters = nullptr;
  std::optional<bool> final_response;  // streams: the parameter triton_final_response
  std::span<const schedule::OutputTensor> outputs;
};

// Where in the text the bytes of an output belong that were left out of it.
struct RawPlace {
  size_t output = 0;
  size_t at = 0;
};

// Appends the message, without the outputs of more than `max_copied_bytes`, for which it leaves places.
void append_infer_response(const WireResponse& response, size_t max_copied_bytes, std::string& text,
                           std::vector<RawPlace>& places);

void append_varint(std::string& text, uint64_t value);
void append_bytes_field(std::string& text, uint32_t field, std::string_view value);

}  // namespace flywheel::grpc
