// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/generate_job.h"

#include <string>
#include <utility>

#include "server/config/json_writer.h"
#include "server/protocol/http/generate_body.h"
#include "server/protocol/http/infer_job.h"
#include "server/repository/request_check.h"

namespace flywheel::http {
namespace {

constexpr size_t kSlowJsonBytes = 64 << 10;

class GenerateJob : public Job {
 public:
  GenerateJob(Exchange* exchange, repository::ServedModelPtr model, const schedule::RequestPtr& request, bool streaming,
              settings::TracePtr trace)
      : exchange_(exchange),
        model_(std::move(model)),
        id_(request->id),
        request_(request),
        streaming_(streaming),
        trace_(std::move(trace)) {}

  void abandon() override {
    if (const schedule::RequestPtr request = request_.lock()) request->cancel();
  }
  bool is_slow() const override {
    size_t bytes = 0;
    for (const schedule::OutputTensor& output : response_.outputs) bytes += output.bytes.size();
    return bytes > kSlowJsonBytes;
  }
  Response render() override;
  // One thread at a time: the model's.
  void on_response(const schedule::InferRequest& request, schedule::InferResponse response);

 private:
  void send_event(const schedule::InferResponse& response);

  Exchange* const exchange_;  // owns this
  const repository::ServedModelPtr model_;
  const std::string id_;
  const std::weak_ptr<schedule::InferRequest> request_;  // only to cancel it
  const bool streaming_;
  settings::TracePtr trace_;
  bool begun_ = false;
  size_t responses_ = 0;
  schedule::InferResponse response_;
};

void GenerateJob::on_response(const schedule::InferRequest& request, schedule::InferResponse response) {
  if (trace_ != nullptr) settings::trace_response(*trace_, request, response);
  const bool final = response.final;
  // A decoupled model may say that it has ended with an empty response.
  const bool empty_end = final && response.status.is_ok() && response.outputs.empty() && model_->config().decoupled;
  if (!empty_end) {
    ++responses_;
    if (streaming_) {
      send_event(response);
    } else {
      response_ = std::move(response);
    }
  }
  if (!final) return;
  if (!streaming_) return exchange_->complete();
  if (!begun_) {
    Response head;
    head.content_type = kEventStream;
    exchange_->begin_stream(std::move(head));
  }
  Response sending;
  if (trace_ != nullptr) trace_sending(std::move(trace_), sending);
  exchange_->end_stream(std::move(sending.held_until_sent));
}

void GenerateJob::send_event(const schedule::InferResponse& response) {
  std::string event = "data: ";
  Status status = response.status.is_ok() ? append_generate_response(event, *model_, id_, response) : response.status;
  if (!status.is_ok()) {
    event = "data: {\"error\":";
    config::append_json_string(event, status.message());
    event += '}';
  }
  event += "\n\n";
  if (begun_) return exchange_->stream(event);
  begun_ = true;
  Response head;
  // What comes first decides the answer's status; later faults can only be told as events.
  head.status = status.is_ok() ? 200 : http_status(status.code());
  head.content_type = kEventStream;
  head.body = std::move(event);
  exchange_->begin_stream(std::move(head));
}

Response GenerateJob::render() {
  Response answer;
  if (!response_.status.is_ok()) {
    answer = error_response(response_.status);
  } else if (responses_ != 1) {
    answer = error_response(500,
                            "generate expects model to produce exactly 1 response, use generate stream for model that "
                            "generates various number of responses");
  } else {
    std::string json;
    const Status status = append_generate_response(json, *model_, id_, response_);
    answer = status.is_ok() ? json_response(std::move(json)) : error_response(status);
  }
  if (trace_ != nullptr) trace_sending(std::move(trace_), answer);
  return answer;
}

}  // namespace

void start_generate(const ExchangePtr& exchange, repository::ServedModelPtr model, schedule::RequestPtr request,
                    bool streaming, settings::TracePtr trace) {
  if (trace != nullptr) trace_arrival(*trace, *exchange, *model, *request);
  auto job = std::make_unique<GenerateJob>(exchange.get(), model, request, streaming, std::move(trace));
  // The exchange owns the job and outlives this call: the closure holds it.
  request->on_response = [exchange, job = job.get()](schedule::InferRequest& answered,
                                                     schedule::InferResponse response) {
    job->on_response(answered, std::move(response));
  };
  exchange->set_job(std::move(job));
  const repository::ServedModel& target = *model;
  target.infer(std::move(request));
}

}  // namespace flywheel::http
