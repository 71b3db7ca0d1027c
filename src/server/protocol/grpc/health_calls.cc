// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/health_calls.h"

#include <optional>
#include <utility>

#include "server/protocol/grpc/health.pb.h"
#include "server/protocol/grpc/unary.h"

namespace flywheel::grpc {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;

// Tells the state when asked, and whenever a look at it finds it changed.
class WatchHandler : public CallHandler {
 public:
  WatchHandler(Call& call, repository::ModelRepository& repository) : call_(call), repository_(repository) {}

  bool on_message(http::Body message) override {
    HealthCheckRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      call_.finish({StatusCode::kInternal, "the request cannot be parsed"});
      return false;
    }
    asked_ = true;
    on_tick();
    return false;
  }
  bool is_slow(const http::Body&) const override { return false; }
  void on_half_close() override {
    if (!asked_) call_.finish({StatusCode::kInternal, "the call has no request"});
  }
  void on_abandoned() override {}
  void on_drain() override {
    stopping_ = true;
    on_tick();
    call_.finish({StatusCode::kUnavailable, "the server is shutting down"});
  }
  void on_tick() override {
    const bool ready = !stopping_ && repository_.is_ready();
    if (!asked_ || told_ == ready) return;
    told_ = ready;
    HealthCheckResponse response;
    response.set_status(ready ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
    OutMessage message;
    response.AppendToString(&message.text);
    message.seal(false);
    call_.send(std::move(message));
  }

 private:
  Call& call_;  // which owns this
  repository::ModelRepository& repository_;
  bool asked_ = false;
  bool stopping_ = false;
  std::optional<bool> told_;
};

}  // namespace

std::unique_ptr<CallHandler> open_health_check(Call& call, repository::ModelRepository& repository) {
  return std::make_unique<ProtoHandler<HealthCheckRequest, HealthCheckResponse>>(
      call, [&repository](const HealthCheckRequest&, HealthCheckResponse& response) -> Status {
        response.set_status(repository.is_ready() ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
        return {};
      });
}

std::unique_ptr<CallHandler> open_health_watch(Call& call, repository::ModelRepository& repository) {
  return std::make_unique<WatchHandler>(call, repository);
}

}  // namespace flywheel::grpc
