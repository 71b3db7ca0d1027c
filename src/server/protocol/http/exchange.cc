// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/exchange.h"

#include "server/protocol/http/connection.h"
#include "server/protocol/http/slow_lane.h"

namespace flywheel::http {

void Exchange::respond(Response response) {
  response_ = std::move(response);
  rendered_ = true;
  inbox_->post(shared_from_this());
}

void Exchange::begin_stream(Response head) {
  {
    std::lock_guard lock(stream_mutex_);
    stream_pieces_ = std::move(head.body);
    head.body.clear();
    response_ = std::move(head);
    streaming_ = true;
  }
  inbox_->post(shared_from_this());
}

void Exchange::stream(std::string_view piece) {
  {
    std::lock_guard lock(stream_mutex_);
    // What piled up is on its way already.
    const bool posted = !stream_pieces_.empty();
    stream_pieces_ += piece;
    if (posted) return;
  }
  inbox_->post(shared_from_this());
}

void Exchange::end_stream(std::shared_ptr<const void> held_until_sent) {
  {
    std::lock_guard lock(stream_mutex_);
    response_.held_until_sent = std::move(held_until_sent);
    stream_ended_ = true;
  }
  inbox_->post(shared_from_this());
}

void Exchange::complete() { inbox_->post(shared_from_this()); }

void Exchange::on_reactor() {
  if (connection_ == nullptr) return;  // the client is gone
  const auto self = shared_from_this();
  {
    std::lock_guard lock(stream_mutex_);
    if (streaming_) return connection_->on_progress();
  }
  if (!rendered_) {
    if (job_->is_slow()) {
      connection_->slow_lane().post([self] {
        self->response_ = self->job_->render();
        self->rendered_ = true;
        self->complete();
      });
      return;
    }
    response_ = job_->render();
    rendered_ = true;
  }
  connection_->on_finished(self);
}

void Exchange::set_job(std::unique_ptr<Job> job) {
  std::lock_guard lock(job_mutex_);
  job_ = std::move(job);
  if (abandoned_) job_->abandon();
}

void Exchange::abandon() {
  std::lock_guard lock(job_mutex_);
  abandoned_ = true;
  if (job_ != nullptr) job_->abandon();
}

}  // namespace flywheel::http
