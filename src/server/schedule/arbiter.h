// SPDX-License-Identifier: Apache-2.0
// One arbiter a device decides which model's batch runs next: by priority class, then by weighted fairness (the client
// that has used the least device time for its weight), then by order of arrival. A scheduler asks once it has something
// to run and forms the batch only when the device is its own, so that a batch keeps growing while it waits. Clients may
// also need named resources, of which there is so much; one that waits for a resource is not overtaken by others that
// need it. Threads: all of it may be called from any thread; acquire blocks. Clients and leases must end before the
// arbiter.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "flywheel/status.h"
#include "server/schedule/timeline.h"

namespace flywheel::schedule {

class DeviceArbiter {
 public:
  // `slots`: how many batches may run on the device at once. `clock`: monotonic nanoseconds.
  explicit DeviceArbiter(int slots = 1, std::function<int64_t()> clock = monotonic_now_ns);
  DeviceArbiter(const DeviceArbiter&) = delete;
  DeviceArbiter& operator=(const DeviceArbiter&) = delete;

  class Client;
  class Lease;

  // What a client's executions need besides a slot, when the server limits rates. See limit().
  struct Needs {
    std::map<std::string, uint32_t> resources;
    double turn_cost = 0;    // each execution counts as so much use, however long it takes; 0: its time counts
    bool needs_slot = true;  // false: resources alone
  };
  // A model, for as long as the pointer lives. Lower classes go first. `weight` > 0 is its share within its class.
  std::shared_ptr<Client> add_client(int priority_class, double weight) {
    return add_client(priority_class, weight, {});
  }
  std::shared_ptr<Client> add_client(int priority_class, double weight, Needs needs);

  // How much there is of each resource. Of one that is not named there is as much as the client that needs most of it
  // needs. REQUIRES: no client yet.
  void limit(std::map<std::string, uint32_t> resources);
  // Not ok when a client with such needs could never run.
  Status check(const Needs& needs) const;

  // Waits for a slot. The lease is empty if the client was cancelled.
  Lease acquire(const std::shared_ptr<Client>& client);
  // Empty if that would wait.
  Lease try_acquire(const std::shared_ptr<Client>& client);
  // For a model that stops: its waiting and future calls of acquire return at once, with nothing.
  void cancel(const std::shared_ptr<Client>& client);

  int waiting() const;

 private:
  struct Waiter;
  void add_active_locked(Client& client);
  void take_slot_locked(const Client& client);
  bool can_run_locked(const Client& client) const;
  std::list<Waiter*>::iterator next_locked();
  Lease lease_locked(const std::shared_ptr<Client>& client);
  void grant_locked();
  void release(Client& client, int64_t held_ns);

  mutable std::mutex mutex_;
  int free_slots_;
  std::list<Waiter*> waiters_;          // in order of arrival
  std::map<int, double> virtual_time_;  // by class, the service of the client served last: where an idle one resumes
  std::map<std::string, uint32_t> limits_;      // those that were named
  std::map<std::string, int64_t> free_;         // of each resource that some client needs
  std::map<std::string, uint32_t> capacities_;  // likewise
  bool limited_ = false;                        // some client needs a resource, or no slot
  const std::function<int64_t()> clock_;
};

class DeviceArbiter::Client {
 public:
  Client(int priority_class, double weight, Needs needs)
      : priority_class(priority_class), weight(weight), needs(std::move(needs)) {}
  const int priority_class;
  const double weight;
  const Needs needs;

 private:
  friend class DeviceArbiter;
  double service = 0;  // device time used, divided by weight
  int active = 0;      // leases held and waiting
  bool cancelled = false;
};

// The right to run one batch; gives it back when destroyed or released.
class DeviceArbiter::Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }
  void release();
  bool is_held() const { return arbiter_ != nullptr; }

 private:
  friend class DeviceArbiter;
  DeviceArbiter* arbiter_ = nullptr;
  std::shared_ptr<Client> client_;
  int64_t since_ns_ = 0;
};

}  // namespace flywheel::schedule
