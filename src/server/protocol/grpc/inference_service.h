// SPDX-License-Identifier: Apache-2.0
// All that the server says over gRPC: inference.GRPCInferenceService, health and reflection. The server gives one to
// its GrpcServer. Ownership: the repository outlives it and every call. Threads: all reactors call at once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "server/protocol/grpc/call.h"
#include "server/protocol/grpc/infer_request.h"
#include "server/protocol/grpc/options.h"
#include "server/repository/model_repository.h"
#include "server/settings/access.h"
#include "server/settings/tracer.h"
#include "server/shared_memory/region_registry.h"

namespace flywheel::grpc {

struct ServiceOptions {
  std::string server_name = "flywheel";
  // Shared with HTTP. Null: clients may register no memory, and nothing is traced.
  std::shared_ptr<shared_memory::RegionRegistry> shared_memory;
  std::shared_ptr<settings::Tracer> tracer;
  settings::RestrictedApis restricted;
  settings::HeaderPattern forwarded_fields;  // become parameters of inference requests
};

class InferenceService : public Service {
 public:
  InferenceService(repository::ModelRepository& repository, ServiceOptions options, const GrpcOptions& grpc_options);

  std::unique_ptr<CallHandler> open(Call& call) override;

 private:
  using Opener = std::function<std::unique_ptr<CallHandler>(Call&)>;
  struct Method {
    Opener open;
    std::optional<settings::ApiCategory> category;  // none: nobody may restrict it
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  void add_model_methods();
  void add_memory_methods();
  void add_setting_methods();
  void add_other_services();
  void set_categories();

  // From a function of (request, response) to a method that is answered at once.
  template <class Request, class Response>
  void add(const std::string& name, std::function<Status(const Request&, Response&)> method);

  repository::ModelRepository& repository_;
  const ServiceOptions options_;
  const GrpcOptions grpc_options_;
  const InferSources sources_;
  std::unordered_map<std::string, Method, Hash, std::equal_to<>> methods_;  // by path
};

}  // namespace flywheel::grpc
