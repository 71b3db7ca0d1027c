// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/arbiter.h"

#include <algorithm>
#include <utility>

namespace flywheel::schedule {

struct DeviceArbiter::Waiter {
  Client* client = nullptr;
  std::condition_variable changed_cv;
  bool granted = false;
};

DeviceArbiter::DeviceArbiter(int slots, std::function<int64_t()> clock)
    : free_slots_(slots > 0 ? slots : 1), clock_(std::move(clock)) {}

std::shared_ptr<DeviceArbiter::Client> DeviceArbiter::add_client(int priority_class, double weight) {
  return std::make_shared<Client>(priority_class, weight > 0 ? weight : 1);
}

// Time that a client did not use is not saved up: it comes back at the level of those that stayed.
void DeviceArbiter::add_active_locked(Client& client) {
  if (client.active == 0) client.service = std::max(client.service, virtual_time_[client.priority_class]);
  ++client.active;
}

DeviceArbiter::Lease DeviceArbiter::lease_locked(const std::shared_ptr<Client>& client) {
  Lease lease;
  lease.arbiter_ = this;
  lease.client_ = client;
  lease.since_ns_ = clock_();
  return lease;
}

DeviceArbiter::Lease DeviceArbiter::acquire(const std::shared_ptr<Client>& client) {
  Waiter waiter;
  waiter.client = client.get();
  std::unique_lock lock(mutex_);
  if (client->cancelled) return {};
  add_active_locked(*client);
  waiters_.push_back(&waiter);
  grant_locked();
  waiter.changed_cv.wait(lock, [&] { return waiter.granted || client->cancelled; });
  if (waiter.granted) return lease_locked(client);
  waiters_.remove(&waiter);
  --client->active;
  return {};
}

DeviceArbiter::Lease DeviceArbiter::try_acquire(const std::shared_ptr<Client>& client) {
  std::lock_guard lock(mutex_);
  if (client->cancelled || free_slots_ == 0 || !waiters_.empty()) return {};
  add_active_locked(*client);
  take_slot_locked(*client);
  return lease_locked(client);
}

void DeviceArbiter::take_slot_locked(const Client& client) {
  --free_slots_;
  double& virtual_time = virtual_time_[client.priority_class];
  virtual_time = std::max(virtual_time, client.service);
}

void DeviceArbiter::grant_locked() {
  while (free_slots_ > 0 && !waiters_.empty()) {
    // Ties keep the order of arrival: min_element takes the first of equals.
    auto best = std::min_element(waiters_.begin(), waiters_.end(), [](const Waiter* a, const Waiter* b) {
      return std::pair(a->client->priority_class, a->client->service) <
             std::pair(b->client->priority_class, b->client->service);
    });
    Waiter* waiter = *best;
    waiters_.erase(best);
    take_slot_locked(*waiter->client);
    waiter->granted = true;
    waiter->changed_cv.notify_one();
  }
}

void DeviceArbiter::release(Client& client, int64_t held_ns) {
  std::lock_guard lock(mutex_);
  client.service += static_cast<double>(held_ns) / client.weight;
  --client.active;
  ++free_slots_;
  grant_locked();
}

void DeviceArbiter::cancel(const std::shared_ptr<Client>& client) {
  std::lock_guard lock(mutex_);
  client->cancelled = true;
  for (Waiter* waiter : waiters_)
    if (waiter->client == client.get()) waiter->changed_cv.notify_one();
}

int DeviceArbiter::waiting() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(waiters_.size());
}

DeviceArbiter::Lease& DeviceArbiter::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  release();
  arbiter_ = std::exchange(other.arbiter_, nullptr);
  client_ = std::move(other.client_);
  since_ns_ = other.since_ns_;
  return *this;
}

void DeviceArbiter::Lease::release() {
  if (arbiter_ == nullptr) return;
  DeviceArbiter* arbiter = std::exchange(arbiter_, nullptr);
  arbiter->release(*client_, arbiter->clock_() - since_ns_);
  client_.reset();
}

}  // namespace flywheel::schedule
