// SPDX-License-Identifier: Apache-2.0
// One client's connection: bytes in, exchanges to the handler, answers out in order. A reactor owns it and calls it
// from its thread alone. Idle connections hold no buffers; small requests are parsed where they were received, and
// large bodies are received straight into their final place.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "server/protocol/http/exchange.h"
#include "server/protocol/http/options.h"
#include "server/protocol/net/connection.h"
#include "server/protocol/net/transport.h"

namespace flywheel::http {

class SlowLane;

// What connections of one reactor share; owned by the reactor.
struct ReactorContext : net::Loop {
  const HttpOptions* options = nullptr;
  Handler* handler = nullptr;
  std::shared_ptr<BodyBudget> budget, answer_budget;
  HttpCounters* counters = nullptr;
  SlowLane* slow_lane = nullptr;
  net::TlsContext* tls = nullptr;  // null: plain connections

  std::unique_ptr<net::Connection> connect(int socket) override;
  void refuse(int socket) override;
};

class Connection : public net::Connection {
 public:
  Connection(int socket, ReactorContext& context);
  ~Connection() override;  // closes
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void on_events(uint32_t events) override;
  // The exchange's answer is ready; it is sent by the next flush().
  void on_finished(const ExchangePtr& exchange);
  // A stream has something new to send.
  void on_progress();
  // Sends all that is ready and its turn.
  void flush() override;
  // Closes what took too long.
  void check_deadlines() override;
  void on_drain() override;
  bool is_idle() const override;
  int64_t idle_since_ns() const override { return since_ns_; }
  void close_now() override;
  bool closed() const override { return closed_; }
  SlowLane& slow_lane() const { return *context_.slow_lane; }

 private:
  enum class State : uint8_t { kHead, kBody, kChunked, kDiscard };
  struct Outgoing {
    std::string text;
    std::string body;  // apart from `text` when it is large
    std::vector<Response::Blob> blobs;
    BudgetShare share;
    std::vector<std::shared_ptr<const void>> held;  // until it is sent
    size_t total_bytes() const;
  };

  void read_socket();
  void process(std::string_view bytes);
  void begin_request(std::string_view head);
  bool prepare_body(const BodyPlan& plan);
  std::string_view take_fixed_body(std::string_view bytes);
  std::string_view take_chunked_body(std::string_view bytes);
  void dispatch();
  void answer_and_close(Response response);
  void answer_no_memory();
  void on_end_of_input();
  void queue_response(Exchange& exchange, bool last);
  void count_response(int status);
  bool is_last(const Exchange& exchange) const;
  void finish_after_last();
  Outgoing& outgoing_for_text();
  // Queues what the stream at the front has. True: it has ended.
  bool queue_stream(Exchange& exchange);
  bool write_output();
  void after_output_drained();
  void resume_reading();
  void send_interim_continue();
  void update_interest();
  bool has_too_much_in_hand(size_t divisor) const;
  bool unsent_or_unanswered() const { return !queue_.empty() || !outgoing_.empty(); }

  ReactorContext& context_;
  int socket_;
  net::Transport transport_;
  State state_ = State::kHead;
  bool closed_ = false;
  bool end_of_input_ = false;  // the client sends no more
  bool paused_ = false;        // too much in hand: not reading
  bool closing_ = false;       // the last answer is queued
  bool lingering_ = false;     // the last answer is sent
  bool wants_continue_ = false;
  bool in_flush_list_ = false;
  uint32_t interest_ = 0;
  int64_t since_ns_ = 0;             // when the present state began
  int64_t write_since_ns_ = 0;       // when unsent output began to wait
  uint64_t write_progress_ = 0;      // bytes sent since then
  uint64_t write_period_bytes_ = 0;  // of these, before the period in which the rate is being watched
  uint64_t read_period_bytes_ = 0;   // the same of the body, or of what is discarded
  size_t head_scanned_ = 0;
  std::string pending_;   // received, not yet processed: a part of a head, or what came while paused
  ExchangePtr incoming_;  // head parsed, body on its way
  uint64_t body_limit_ = 0;
  uint64_t discarded_bytes_ = 0;
  ChunkedDecoder chunks_;
  std::deque<ExchangePtr> queue_;  // requests in hand, in order
  std::deque<Outgoing> outgoing_;
  size_t outgoing_offset_ = 0;  // sent of the first
  size_t unsent_bytes_ = 0;     // of all
};

}  // namespace flywheel::http
