// SPDX-License-Identifier: Apache-2.0
// From a received message to a request that a model can take, and from a model's response to a message, for ModelInfer
// and ModelStreamInfer alike. Thread safety: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"
#include "server/protocol/grpc/call.h"
#include "server/protocol/grpc/infer_wire.h"
#include "server/protocol/http/body.h"
#include "server/repository/model_repository.h"
#include "server/schedule/request.h"
#include "server/settings/access.h"
#include "server/settings/request_trace.h"
#include "server/shared_memory/region_registry.h"

namespace flywheel::grpc {

// What the protocol has to remember of a request until it is answered.
struct InferWishes {
  std::string id;
  std::string model_name, model_version;  // as the client gave them
  // By requested output, or empty: > 0: the k best classes instead of the values; where the values go instead of the
  // message.
  std::vector<uint64_t> classes;
  std::vector<shared_memory::OutputPlace> places;
  bool empty_final_response = false;  // decoupled models: tell the end even if nothing is left to say
};

// "7"; empty: -1, the newest.
Result<int64_t> parse_model_version(std::string_view text);
bool is_decoupled(const repository::ServedModel& model);
// Whether reading the message takes long (milliseconds): it has much that is not raw.
bool is_slow_infer_request(const http::Body& message);

// What inference needs of the server.
struct InferSources {
  repository::ModelRepository& repository;
  std::shared_ptr<shared_memory::RegionRegistry> shared_memory;  // null: clients may register none
  std::shared_ptr<settings::Tracer> tracer;                      // null: nothing is traced
  settings::HeaderPattern forwarded_fields;                      // metadata that becomes parameters
};

// What was found out even if the message cannot be served: enough to answer and to count the failure.
struct InferParts {
  repository::ServedModelPtr model;
  schedule::RequestPtr request;
  InferWishes wishes;
  settings::TracePtr trace;  // null: not traced
};
// Fills in as much as it gets to, and prepares the request for the model.
Status read_infer_message(const http::Body& message, const InferSources& sources, const CallHead& head,
                          InferParts& out);

// A response of the model's, as the message of ModelInfer or within that of ModelStreamInfer.
struct InferMessageOptions {
  bool stream = false;
  std::optional<bool> final_response;
  http::Coding coding = http::Coding::kIdentity;
};
Result<OutMessage> make_infer_message(const repository::ServedModel& model, const InferWishes& wishes,
                                      schedule::InferResponse& response, const InferMessageOptions& options);
// What a stream says of a request that failed, or that ended without a response.
OutMessage make_stream_notice(const InferWishes& wishes, std::string_view error, bool with_model, bool final_response);

// Compresses and closes the message.
void seal_message(OutMessage& message, http::Coding coding);

}  // namespace flywheel::grpc
