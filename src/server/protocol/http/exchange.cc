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

void Exchange::complete() { inbox_->post(shared_from_this()); }

void Exchange::on_reactor() {
  if (connection_ == nullptr) return;  // the client is gone
  const auto self = shared_from_this();
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
