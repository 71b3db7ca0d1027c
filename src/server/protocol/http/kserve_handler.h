// SPDX-License-Identifier: Apache-2.0
// The KServe v2 protocol with Triton's extensions over HTTP: which request is which route, and what each answers. The
// server gives one to its HttpServer.
// Ownership: the repository outlives it and every exchange it was given. Threads: reactors and the slow lane call at
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/protocol/http/exchange.h"
#include "server/protocol/http/routes.h"
#include "server/repository/model_repository.h"
#include "server/settings/access.h"
#include "server/settings/tracer.h"
#include "server/shared_memory/region_registry.h"

namespace flywheel::http {

struct KServeOptions {
  std::string server_name = "flywheel";
  // JSON bodies, raw tensors and anything decompressed: Triton's --http-max-input-size.
  uint64_t max_input_bytes = 64 << 20;
  // Bodies with binary tensors behind their JSON, which need no more memory than they are long.
  uint64_t max_binary_body_bytes = uint64_t{1} << 30;
  // Shared with gRPC. Null: clients may register no memory, and nothing is traced.
  std::shared_ptr<shared_memory::RegionRegistry> shared_memory;
  std::shared_ptr<settings::Tracer> tracer;
  settings::RestrictedApis restricted;
  settings::HeaderPattern forwarded_headers;  // become parameters of inference requests
};

class KServeHandler : public Handler {
 public:
  KServeHandler(repository::ModelRepository& repository, KServeOptions options);

  BodyPlan plan_body(const RequestHead& head) override;
  Response body_too_large(const RequestHead& head, uint64_t body_bytes) override;
  bool is_slow(const Exchange& exchange) override;
  void handle(const ExchangePtr& exchange) override;

 private:
  Response route(const ExchangePtr& exchange, bool& answered_later);
  Response model_route(const ExchangePtr& exchange, const RouteMatch& match, bool& answered_later);
  Response metadata(std::string_view name, int64_t version);
  Response statistics(std::string_view name, int64_t version);
  // OK when the answer comes later.
  Status infer(const ExchangePtr& exchange, std::string_view name, int64_t version);
  Status generate(const ExchangePtr& exchange, std::string_view name, int64_t version, bool streaming);
  Status forward_headers(const RequestHead& head, schedule::InferRequest& request) const;

  repository::ModelRepository& repository_;
  const KServeOptions options_;
};

}  // namespace flywheel::http
