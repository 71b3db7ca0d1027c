// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/reflection_calls.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>
#include <utility>

#include "server/protocol/grpc/health.pb.h"
#include "server/protocol/grpc/inference_service.pb.h"
#include "server/protocol/grpc/reflection_v1.pb.h"
#include "server/protocol/grpc/reflection_v1alpha.pb.h"

namespace flywheel::grpc {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using ::grpc::reflection::v1::ServerReflectionRequest;
using ::grpc::reflection::v1::ServerReflectionResponse;

constexpr const char* kServices[] = {"inference.GRPCInferenceService", "grpc.health.v1.Health",
                                     "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"};

// The generated files register themselves when somebody names them.
const DescriptorPool& pool() {
  static const bool registered = [] {
    (void)inference::ServerLiveRequest::descriptor();
    (void)::grpc::health::v1::HealthCheckRequest::descriptor();
    (void)::grpc::reflection::v1alpha::ServerReflectionRequest::descriptor();
    return true;
  }();
  (void)registered;
  return *DescriptorPool::generated_pool();
}

// The file after all that it imports.
void add_file(const FileDescriptor* file, std::set<std::string>& added, ServerReflectionResponse& response) {
  if (!added.insert(file->name()).second) return;
  for (int i = 0; i < file->dependency_count(); ++i) add_file(file->dependency(i), added, response);
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  response.mutable_file_descriptor_response()->add_file_descriptor_proto(proto.SerializeAsString());
}

void give_file(const FileDescriptor* file, const std::string& what, ServerReflectionResponse& response) {
  if (file == nullptr) {
    response.mutable_error_response()->set_error_code(static_cast<int>(StatusCode::kNotFound));
    response.mutable_error_response()->set_error_message(what + " is not known");
    return;
  }
  std::set<std::string> added;
  add_file(file, added, response);
}

void reflect(const ServerReflectionRequest& request, ServerReflectionResponse& response) {
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const char* name : kServices) response.mutable_list_services_response()->add_service()->set_name(name);
      return;
    case ServerReflectionRequest::kFileByFilename:
      return give_file(pool().FindFileByName(request.file_by_filename()), "the file " + request.file_by_filename(),
                       response);
    case ServerReflectionRequest::kFileContainingSymbol:
      return give_file(pool().FindFileContainingSymbol(request.file_containing_symbol()),
                       "the symbol " + request.file_containing_symbol(), response);
    case ServerReflectionRequest::kFileContainingExtension: return give_file(nullptr, "the extension", response);
    case ServerReflectionRequest::kAllExtensionNumbersOfType: {
      const std::string& name = request.all_extension_numbers_of_type();
      if (pool().FindMessageTypeByName(name) == nullptr) return give_file(nullptr, "the type " + name, response);
      response.mutable_all_extension_numbers_response()->set_base_type_name(name);
      return;
    }
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET: break;
  }
  response.mutable_error_response()->set_error_code(static_cast<int>(StatusCode::kInvalidArgument));
  response.mutable_error_response()->set_error_message("the request asks for nothing that is known");
}

class ReflectionHandler : public CallHandler {
 public:
  explicit ReflectionHandler(Call& call) : call_(call) {}

  bool on_message(http::Body message) override {
    ServerReflectionRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      call_.finish({StatusCode::kInternal, "the request cannot be parsed"});
      return false;
    }
    ServerReflectionResponse response;
    reflect(request, response);
    OutMessage out;
    response.AppendToString(&out.text);
    out.seal(false);
    return call_.send(std::move(out));
  }
  bool is_slow(const http::Body&) const override { return false; }
  void on_half_close() override { call_.finish({}); }
  void on_abandoned() override {}
  void on_drain() override { call_.finish({StatusCode::kUnavailable, "the server is shutting down"}); }

 private:
  Call& call_;  // which owns this
};

}  // namespace

std::unique_ptr<CallHandler> open_reflection(Call& call) { return std::make_unique<ReflectionHandler>(call); }

}  // namespace flywheel::grpc
