// SPDX-License-Identifier: Apache-2.0
// One inference between its request and its answer: keeps what is needed to render the answer, takes the scheduler's
// result on the instance's thread, and renders on the connection's reactor. Owned by the exchange.
#pragma once

#include <memory>
#include <string>

#include "server/protocol/http/content_coding.h"
#include "server/protocol/http/exchange.h"
#include "server/protocol/http/infer_body.h"
#include "server/repository/served_model.h"
#include "server/schedule/request.h"
#include "server/settings/request_trace.h"
#include "server/settings/tracer.h"

namespace flywheel::http {

class InferJob : public Job {
 public:
  InferJob(repository::ServedModelPtr model, const schedule::RequestPtr& request, InferBody wishes, Coding coding,
           settings::TracePtr trace)
      : model_(std::move(model)),
        id_(request->id),
        request_(request),
        wishes_(std::move(wishes)),
        coding_(coding),
        trace_(std::move(trace)) {}

  Response render() override;
  bool is_slow() const override;
  void abandon() override;
  // The scheduler's answer; before Exchange::complete().
  void set_response(const schedule::InferRequest& request, schedule::InferResponse response);

 private:
  Result<Response> render_outputs();

  const repository::ServedModelPtr model_;
  const std::string id_;
  const std::weak_ptr<schedule::InferRequest> request_;  // only to cancel it
  const InferBody wishes_;
  const Coding coding_;
  schedule::InferResponse response_;
  settings::TracePtr trace_;  // null: not traced
};

// What a trace has to say of a request before it is handed to the model.
void trace_arrival(settings::Trace& trace, const Exchange& exchange, const repository::ServedModel& model,
                   const schedule::InferRequest& request);
// The response holds the trace until it is sent.
void trace_sending(settings::TracePtr trace, Response& response);

// Leaves the job with the exchange and hands the request to the model.
void start_inference(const ExchangePtr& exchange, repository::ServedModelPtr model, schedule::RequestPtr request,
                     InferBody wishes, Coding coding, settings::TracePtr trace);

}  // namespace flywheel::http
