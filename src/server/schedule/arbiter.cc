// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/arbiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace flywheel::schedule {

struct DeviceArbiter::Waiter {
  Client* client = nullptr;
  std::condition_variable changed_cv;
  bool granted = false;
};

DeviceArbiter::DeviceArbiter(int slots, std::function<int64_t()> clock)
    : free_slots_(slots > 0 ? slots : 1), clock_(std::move(clock)) {}

std::shared_ptr<DeviceArbiter::Client> DeviceArbiter::add_client(int priority_class, double weight, Needs needs) {
  std::lock_guard lock(mutex_);
  limited_ = limited_ || !needs.resources.empty() || !needs.needs_slot;
  for (const auto& [name, count] : needs.resources) {
    const auto named = limits_.find(name);
    uint32_t& capacity = capacities_[name];
    const uint32_t wanted = named != limits_.end() ? named->second : std::max(capacity, count);
    free_[name] += static_cast<int64_t>(wanted) - static_cast<int64_t>(capacity);
    capacity = wanted;
  }
  return std::make_shared<Client>(priority_class, weight > 0 ? weight : 1, std::move(needs));
}

void DeviceArbiter::limit(std::map<std::string, uint32_t> resources) {
  std::lock_guard lock(mutex_);
  limits_ = std::move(resources);
}

Status DeviceArbiter::check(const Needs& needs) const {
  std::lock_guard lock(mutex_);
  for (const auto& [name, count] : needs.resources) {
    const auto named = limits_.find(name);
    if (named == limits_.end() || count <= named->second) continue;
    return invalid_argument(fmt::format(
        "Resource count for \"{}\" is limited to {} which will prevent scheduling of one or more model instances, the "
        "minimum required count is {}",
        name, named->second, count));
  }
  return {};
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
  if (client->cancelled || !can_run_locked(*client) || !waiters_.empty()) return {};
  add_active_locked(*client);
  take_slot_locked(*client);
  return lease_locked(client);
}

void DeviceArbiter::take_slot_locked(const Client& client) {
  if (client.needs.needs_slot) --free_slots_;
  for (const auto& [name, count] : client.needs.resources) free_[name] -= count;
  double& virtual_time = virtual_time_[client.priority_class];
  virtual_time = std::max(virtual_time, client.service);
}

bool DeviceArbiter::can_run_locked(const Client& client) const {
  if (client.needs.needs_slot && free_slots_ == 0) return false;
  return std::all_of(client.needs.resources.begin(), client.needs.resources.end(),
                     [&](const auto& need) { return free_.at(need.first) >= need.second; });
}

std::list<DeviceArbiter::Waiter*>::iterator DeviceArbiter::next_locked() {
  const auto before = [](const Waiter* a, const Waiter* b) {
    return std::pair(a->client->priority_class, a->client->service) <
           std::pair(b->client->priority_class, b->client->service);
  };
  if (!limited_) {
    if (free_slots_ == 0) return waiters_.end();
    // Ties keep the order of arrival: min_element takes the first of equals.
    return std::min_element(waiters_.begin(), waiters_.end(), before);
  }
  std::vector<std::list<Waiter*>::iterator> order;
  for (auto it = waiters_.begin(); it != waiters_.end(); ++it) order.push_back(it);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return before(*a, *b); });
  std::set<std::string_view> awaited;  // by those before
  for (const auto it : order) {
    const Client& client = *(*it)->client;
    const bool overtakes = std::any_of(client.needs.resources.begin(), client.needs.resources.end(),
                                       [&](const auto& need) { return awaited.contains(need.first); });
    if (!overtakes && can_run_locked(client)) return it;
    for (const auto& [name, count] : client.needs.resources) awaited.insert(name);
  }
  return waiters_.end();
}

void DeviceArbiter::grant_locked() {
  while (!waiters_.empty()) {
    const auto best = next_locked();
    if (best == waiters_.end()) return;
    Waiter* waiter = *best;
    waiters_.erase(best);
    take_slot_locked(*waiter->client);
    waiter->granted = true;
    waiter->changed_cv.notify_one();
  }
}

void DeviceArbiter::release(Client& client, int64_t held_ns) {
  std::lock_guard lock(mutex_);
  const double used = client.needs.turn_cost > 0 ? client.needs.turn_cost : static_cast<double>(held_ns);
  client.service += used / client.weight;
  --client.active;
  if (client.needs.needs_slot) ++free_slots_;
  for (const auto& [name, count] : client.needs.resources) free_[name] += count;
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
