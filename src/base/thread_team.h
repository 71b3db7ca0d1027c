// SPDX-License-Identifier: Apache-2.0
// A team of threads that runs one function on all of its members at once (SPMD). Whole models run inside one call: each
// step ends with Worker::barrier(), which spins (a crossing costs well under a microsecond; a futex costs 15), and idle
// members park on a futex after a short spin so that an idle server uses no CPU. No mutex anywhere.
// Owned by an execution context. run() may be called from any thread, one call at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "flywheel/status.h"

namespace flywheel {

class ThreadTeam;

// One member's view of the team, valid during the call that received it.
class Worker {
 public:
  int rank() const { return rank_; }
  int size() const { return size_; }
  // Returns when every member has called it. Writes before it are seen by all after it.
  void barrier();
  // This member's part [begin, end) of `count` equal pieces of work; contiguous, in rank order, differing by one at
  // most.
  struct Range {
    int64_t begin, end;
  };
  Range share(int64_t count) const { return {count * rank_ / size_, count * (rank_ + 1) / size_}; }
  // A team of one: barrier() returns at once. For tests and for running a kernel on the calling thread.
  static Worker alone() { return Worker(nullptr, 0, 1); }

 private:
  friend class ThreadTeam;
  Worker(ThreadTeam* team, int rank, int size) : team_(team), rank_(rank), size_(size) {}
  ThreadTeam* team_;
  int rank_, size_;
};

class ThreadTeam {
 public:
  // `size` members, the caller of run() included: size 1 starts no thread. Threads are named "fw-team-<rank>".
  static Result<std::unique_ptr<ThreadTeam>> create(int size);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // Calls body(worker) on every member and returns when all are done. Allocates nothing, locks nothing. `body` must not
  // throw. REQUIRES: no other run() of this team is in progress.
  template <class Body>
  void run(const Body& body) {
    run_erased([](const void* context, Worker& worker) { (*static_cast<const Body*>(context))(worker); }, &body);
  }

 private:
  friend class Worker;
  using Entry = void (*)(const void*, Worker&);
  explicit ThreadTeam(int size);
  void run_erased(Entry entry, const void* context);
  void member_loop(int rank);
  void wake_members();
  void cross_barrier();

  struct alignas(64) Line {
    std::atomic<uint32_t> value{0};
  };
  const int size_;
  Line generation_;       // a new value starts a run
  Line finished_;         // members that have left the current run
  Line barrier_arrived_;  // members that have reached the current barrier
  Line barrier_phase_;    // a new value opens the barrier
  Line parked_;           // members asleep on generation_
  std::atomic<bool> stopping_{false};
  Entry entry_ = nullptr;
  const void* context_ = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace flywheel
