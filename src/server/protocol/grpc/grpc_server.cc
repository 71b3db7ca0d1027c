// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/grpc_server.h"

#include <algorithm>
#include <utility>

#include "server/protocol/grpc/loop.h"

namespace flywheel::grpc {

GrpcServer::GrpcServer(const GrpcOptions& options, std::shared_ptr<Service> service)
    : options_(options),
      service_(std::move(service)),
      budget_(std::make_shared<http::BodyBudget>(options.max_total_message_bytes)) {}

GrpcServer::~GrpcServer() { (void)stop(0); }

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(const GrpcOptions& options, std::shared_ptr<Service> service) {
  std::unique_ptr<GrpcServer> server(new GrpcServer(options, std::move(service)));
  net::ListenerOptions listening;
  listening.name = options.name;
  listening.thread_name = "fw-grpc";
  listening.address = options.address;
  listening.port = options.port;
  listening.reuse_port = options.reuse_port;
  listening.threads = options.threads;
  listening.busy_poll_us = options.busy_poll_us;
  listening.max_connections = options.max_connections;
  listening.shortest_timeout_ms =
      std::min({options.handshake_timeout_ms, options.message_timeout_ms, options.write_timeout_ms,
                options.linger_timeout_ms, options.keepalive_time_ms, options.keepalive_timeout_ms});
  if (options.tls.enabled) {
    FW_ASSIGN_OR_RETURN(server->tls_, net::TlsContext::create(options.tls, options.name, "h2"));
  }
  server->slow_lane_ = std::make_unique<http::SlowLane>(std::max(options.threads, 1));
  auto make_loop = [&](int) -> std::unique_ptr<net::Loop> {
    server->counters_.push_back(std::make_unique<GrpcCounters>());
    auto loop = std::make_unique<GrpcLoop>(server->options_, *server->service_, server->budget_,
                                           *server->counters_.back(), *server->slow_lane_);
    loop->tls = server->tls_.get();
    return loop;
  };
  FW_ASSIGN_OR_RETURN(server->listener_, net::Listener::start(listening, make_loop));
  return server;
}

void GrpcServer::begin_drain() { listener_->begin_drain(); }

Status GrpcServer::stop(int64_t timeout_ms) {
  std::lock_guard lock(stop_mutex_);
  if (stopped_ || listener_ == nullptr) return {};
  stopped_ = true;
  begin_drain();
  listener_->wait_until_drained(timeout_ms);
  const GrpcCounts left = counts();
  listener_->stop_and_join();
  slow_lane_.reset();
  if (left.in_flight == 0) return {};
  return {Code::kDeadlineExceeded, options_.name + ": the exit timeout expired with " + std::to_string(left.in_flight) +
                                       " calls unanswered and " + std::to_string(left.connections_open) +
                                       " connections open; they were closed"};
}

GrpcCounts GrpcServer::counts() const {
  GrpcCounts sum;
  auto read = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  for (const auto& each : counters_) {
    sum.connections_accepted += read(each->connections_accepted);
    sum.connections_refused += read(each->connections_refused);
    sum.connections_open += read(each->connections_open);
    sum.calls += read(each->calls);
    for (size_t i = 0; i < kStatusCodes; ++i) sum.calls_by_status[i] += read(each->calls_by_status[i]);
    sum.calls_abandoned += read(each->calls_abandoned);
    sum.messages_received += read(each->messages_received);
    sum.messages_sent += read(each->messages_sent);
    sum.protocol_errors += read(each->protocol_errors);
    sum.timeouts += read(each->timeouts);
    sum.received_bytes += read(each->received_bytes);
    sum.sent_bytes += read(each->sent_bytes);
    sum.in_flight += read(each->in_flight);
  }
  sum.message_bytes = static_cast<uint64_t>(budget_->used_bytes());
  return sum;
}

}  // namespace flywheel::grpc
