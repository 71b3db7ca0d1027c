// SPDX-License-Identifier: Apache-2.0
// Fuzz target: HTTP requests for inference, from the first byte of the head to the last tensor, and the other bodies.
// The first byte says in pieces of which size the rest arrives; whatever the size, the result must be the same. Heads,
// chunked bodies, compressed bodies and JSON all come from the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "server/config/model_config.h"
#include "server/protocol/http/body.h"
#include "server/protocol/http/content_coding.h"
#include "server/protocol/http/control_body.h"
#include "server/protocol/http/generate_body.h"
#include "server/protocol/http/infer_body.h"
#include "server/protocol/http/parser.h"
#include "server/repository/request_check.h"

namespace {

using namespace flywheel;  // NOLINT(google-build-using-namespace): a program of one file

constexpr size_t kMaxInputBytes = 1 << 20;

const config::ModelConfig& model() {
  static const config::ModelConfig config = [] {
    config::ModelConfig made;
    made.name = "m";
    made.max_batch_size = 8;
    made.inputs = {{"x", config::DataType::kFp32, {-1}, {}, {}},
                   {"i", config::DataType::kInt8, {2}, {}, {}},
                   {"s", config::DataType::kString, {-1}, {}, {}, true}};
    made.outputs = {{"y", config::DataType::kFp32, {4}, {}, {}}};
    return made;
  }();
  return config;
}

void require(bool holds) {
  if (!holds) std::abort();
}

size_t find_head(std::string_view bytes, size_t piece) {
  size_t scanned = 0;
  for (size_t length = piece;; length += piece) {
    const std::string_view arrived = bytes.substr(0, length);
    if (const size_t end = http::find_head_end(arrived, scanned); end != 0) return end;
    (void)http::check_partial_head(arrived, http::ParserLimits{});
    if (length >= bytes.size()) return 0;
  }
}

struct Chunked {
  std::string data;
  size_t consumed = 0;
  int status = 0;
  bool done = false;
  bool operator==(const Chunked&) const = default;
};

Chunked read_chunked(std::string_view bytes, size_t piece) {
  http::ChunkedDecoder decoder;
  Chunked result;
  while (result.consumed < bytes.size() && !result.done && result.status == 0) {
    const http::ChunkedDecoder::Step step = decoder.next(bytes.substr(result.consumed, piece));
    require(step.consumed > 0 || step.done || step.error);
    result.data += step.data;
    result.consumed += step.consumed;
    result.done = step.done;
    result.status = step.error.status;
  }
  if (result.status != 0) result.consumed = 0;  // where it stops within a bad piece is of no account
  return result;
}

void read_body(std::string_view text, size_t json_bytes) {
  auto budget = std::make_shared<http::BodyBudget>(int64_t{64} << 20);
  http::Body body;
  require(body.reserve(std::max<size_t>(text.size(), 1), json_bytes, budget) && body.append(text));
  schedule::InferRequest request;
  http::InferBody wishes;
  static const shared_memory::RegionRegistry regions;
  if (http::read_infer_body(body, std::min(json_bytes, text.size()), model(), kMaxInputBytes, regions, request, wishes)
          .is_ok()) {
    if (repository::check_request(model(), request).is_ok()) {
      require(request.batch_size >= 1 && request.batch_size <= 8);
      unsigned sum = 0;
      for (const schedule::InputView& input : request.inputs) {
        for (std::byte value : input.bytes) sum += std::to_integer<unsigned>(value);
      }
      require(sum != 1u << 31);  // reads every byte that an instance would
    }
  }
  schedule::InferRequest generated;
  if (http::read_generate_body(body, model(), kMaxInputBytes, generated).is_ok())
    (void)repository::check_request(model(), generated);
  (void)http::read_index_body(body);
  (void)http::read_load_body(body);
  (void)http::read_unload_body(body);
  (void)http::read_register_body(body);
  (void)http::read_trace_body(body);
  (void)http::read_log_body(body);
  (void)http::decompress(body.bytes(), kMaxInputBytes, 0, budget);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t piece = 1 + data[0] % 64;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t end = find_head(bytes, piece);
  require(end == find_head(bytes, bytes.size()));
  if (end == 0) {
    read_body(bytes, bytes.size());
    return 0;
  }
  http::RequestHead head;
  if (http::parse_head(std::string_view(bytes).substr(0, end), http::ParserLimits{}, head)) return 0;
  require(!head.path.empty() && !(head.chunked && head.content_length));
  std::string_view rest = std::string_view(bytes).substr(end);
  const Chunked chunked = read_chunked(rest, piece);
  require(chunked == read_chunked(rest, bytes.size() + 1));
  if (head.chunked) rest = chunked.data;
  const auto json_bytes = head.find("inference-header-content-length");
  read_body(rest, json_bytes ? std::strtoul(std::string(*json_bytes).c_str(), nullptr, 10) : rest.size());
  return 0;
}
