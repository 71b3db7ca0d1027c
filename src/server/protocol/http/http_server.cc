// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/http_server.h"

#include <algorithm>
#include <utility>

#include "server/protocol/http/connection.h"
#include "server/schedule/timeline.h"

namespace flywheel::http {

HttpServer::HttpServer(const HttpOptions& options, std::shared_ptr<Handler> handler)
    : options_(options),
      handler_(std::move(handler)),
      budget_(std::make_shared<BodyBudget>(options.max_total_body_bytes)),
      answer_budget_(std::make_shared<BodyBudget>(options.max_total_answer_bytes)) {}

HttpServer::~HttpServer() { (void)stop(0); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options, std::shared_ptr<Handler> handler) {
  std::unique_ptr<HttpServer> server(new HttpServer(options, std::move(handler)));
  net::ListenerOptions listening;
  listening.name = options.name;
  listening.thread_name = "fw-http";
  listening.address = options.address;
  listening.port = options.port;
  listening.reuse_port = options.reuse_port;
  listening.threads = options.threads;
  listening.busy_poll_us = options.busy_poll_us;
  listening.max_connections = options.max_connections;
  listening.shortest_timeout_ms = std::min({options.head_timeout_ms, options.body_timeout_ms, options.write_timeout_ms,
                                            options.idle_timeout_ms, options.linger_timeout_ms});
  if (options.tls.enabled) {
    FW_ASSIGN_OR_RETURN(server->tls_, net::TlsContext::create(options.tls, options.name, "http/1.1"));
  }
  server->slow_lane_ = std::make_unique<SlowLane>(std::max(options.threads, 1));
  auto make_loop = [&](int) {
    server->counters_.push_back(std::make_unique<HttpCounters>());
    auto context = std::make_unique<ReactorContext>();
    context->options = &server->options_;
    context->handler = server->handler_.get();
    context->budget = server->budget_;
    context->answer_budget = server->answer_budget_;
    context->counters = server->counters_.back().get();
    context->slow_lane = server->slow_lane_.get();
    context->tls = server->tls_.get();
    return context;
  };
  FW_ASSIGN_OR_RETURN(server->listener_, net::Listener::start(listening, make_loop));
  return server;
}

void HttpServer::begin_drain() { listener_->begin_drain(); }

Status HttpServer::stop(int64_t timeout_ms) {
  std::lock_guard lock(stop_mutex_);
  if (stopped_) return {};
  stopped_ = true;
  if (listener_ == nullptr) return {};
  begin_drain();
  listener_->wait_until_drained(timeout_ms);
  const HttpCounts left = counts();
  listener_->stop_and_join();
  slow_lane_.reset();
  if (left.in_flight == 0) return {};
  return {Code::kDeadlineExceeded, options_.name + ": the exit timeout expired with " + std::to_string(left.in_flight) +
                                       " requests unanswered and " + std::to_string(left.connections_open) +
                                       " connections open; they were closed"};
}

HttpCounts HttpServer::counts() const {
  HttpCounts sum;
  auto read = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  for (const auto& each : counters_) {
    const HttpCounters& counters = *each;
    sum.connections_accepted += read(counters.connections_accepted);
    sum.connections_refused += read(counters.connections_refused);
    sum.connections_open += read(counters.connections_open);
    sum.requests += read(counters.requests);
    sum.responses_2xx += read(counters.responses_2xx);
    sum.responses_4xx += read(counters.responses_4xx);
    sum.responses_5xx += read(counters.responses_5xx);
    sum.parse_errors += read(counters.parse_errors);
    sum.timeouts += read(counters.timeouts);
    sum.disconnects += read(counters.disconnects);
    sum.received_bytes += read(counters.received_bytes);
    sum.sent_bytes += read(counters.sent_bytes);
    sum.in_flight += read(counters.in_flight);
  }
  sum.body_bytes = static_cast<uint64_t>(budget_->used_bytes());
  sum.answer_bytes = static_cast<uint64_t>(answer_budget_->used_bytes());
  return sum;
}

}  // namespace flywheel::http
