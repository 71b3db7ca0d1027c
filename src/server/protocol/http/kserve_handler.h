// SPDX-License-Identifier: Apache-2.0
// The KServe v2 protocol with Triton's extensions over HTTP: which request is which route, and what each answers. The
// server gives one to its HttpServer.
// Ownership: the repository outlives it and every exchange it was given. Threads: reactors and the slow lane call at
// once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/protocol/http/exchange.h"
#include "server/repository/model_repository.h"

namespace flywheel::http {

struct KServeOptions {
  std::string server_name = "flywheel";
  std::string server_version = "0.1.0";
  // JSON bodies, raw tensors and anything decompressed: Triton's --http-max-input-size.
  uint64_t max_input_bytes = 64 << 20;
  // Bodies with binary tensors behind their JSON, which need no more memory than they are long.
  uint64_t max_binary_body_bytes = uint64_t{1} << 30;
};

class KServeHandler : public Handler {
 public:
  KServeHandler(repository::ModelRepository& repository, KServeOptions options)
      : repository_(repository), options_(std::move(options)) {}

  BodyPlan plan_body(const RequestHead& head) override;
  Response body_too_large(const RequestHead& head, uint64_t body_bytes) override;
  bool is_slow(const Exchange& exchange) override;
  void handle(const ExchangePtr& exchange) override;

 private:
  Response route(const ExchangePtr& exchange, bool& answered_later);
  Response route_model(const ExchangePtr& exchange, const std::vector<std::string>& segments, bool& answered_later);
  Response route_repository(const ExchangePtr& exchange, const std::vector<std::string>& segments,
                            bool& answered_later);
  Response metadata(std::string_view name, int64_t version);
  Response statistics(std::string_view name, int64_t version);
  // Nothing when the answer comes later.
  Status infer(const ExchangePtr& exchange, std::string_view name, int64_t version);

  repository::ModelRepository& repository_;
  const KServeOptions options_;
};

}  // namespace flywheel::http
