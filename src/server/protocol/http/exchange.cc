// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/exchange.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace flywheel::http {

thread_local std::vector<ExchangePtr>* Inbox::own_finished = nullptr;
thread_local Inbox* Inbox::own = nullptr;

Inbox::Inbox() : event_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Inbox::~Inbox() {
  close();
  if (event_fd_ >= 0) ::close(event_fd_);
}

void Inbox::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the reactor is awake anyway.
  [[maybe_unused]] ssize_t written = ::write(event_fd_, &one, sizeof one);
}

void Inbox::post(ExchangePtr exchange) {
  if (own == this) {
    own_finished->push_back(std::move(exchange));
    return;
  }
  bool signal = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;  // the reactor is gone, and with it the client
    exchanges_.push_back(std::move(exchange));
    signal = !signalled_;
    signalled_ = true;
  }
  // One wake-up for all answers of a batch.
  if (signal) wake();
}

void Inbox::adopt(int socket) {
  bool signal = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) {
      ::close(socket);
      return;
    }
    sockets_.push_back(socket);
    signal = !signalled_;
    signalled_ = true;
  }
  if (signal) wake();
}

void Inbox::drain(std::vector<ExchangePtr>& exchanges, std::vector<int>& sockets) {
  uint64_t count = 0;
  [[maybe_unused]] ssize_t got = ::read(event_fd_, &count, sizeof count);
  std::lock_guard lock(mutex_);
  signalled_ = false;
  for (ExchangePtr& exchange : exchanges_) exchanges.push_back(std::move(exchange));
  exchanges_.clear();
  sockets.insert(sockets.end(), sockets_.begin(), sockets_.end());
  sockets_.clear();
}

void Inbox::close() {
  std::vector<ExchangePtr> exchanges;
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (int socket : sockets_) ::close(socket);
  sockets_.clear();
  exchanges.swap(exchanges_);
}

void Exchange::respond(Response response) {
  response_ = std::move(response);
  rendered_ = true;
  inbox_->post(shared_from_this());
}

void Exchange::complete() { inbox_->post(shared_from_this()); }

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
