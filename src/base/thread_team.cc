// SPDX-License-Identifier: Apache-2.0
#include "base/thread_team.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <system_error>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace flywheel {
namespace {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About 100 us of pauses on current x86: longer than the gap between back-to-back runs, shorter than a scheduler tick.
constexpr int kSpinsBeforeParking = 4000;
// A barrier may wait for a member that lost its core; after this many pauses give the core away.
constexpr int kSpinsBeforeYield = 20000;

}  // namespace

void Worker::barrier() {
  if (size_ > 1) team_->cross_barrier();
}

Result<std::unique_ptr<ThreadTeam>> ThreadTeam::create(int size) {
  if (size < 1 || size > 1024) {
    return invalid_argument(fmt::format("a thread team needs 1 to 1024 threads, not {}", size));
  }
  std::unique_ptr<ThreadTeam> team(new ThreadTeam(size));
  try {
    for (int rank = 1; rank < size; ++rank) {
      team->threads_.emplace_back([raw = team.get(), rank] { raw->member_loop(rank); });
    }
  } catch (const std::system_error& error) {
    return out_of_memory(
        fmt::format("could not start {} threads: {}; ask for fewer threads or raise the limit (ulimit -u)", size - 1,
                    error.what()));
  }
  return team;
}

ThreadTeam::ThreadTeam(int size) : size_(size) {}

ThreadTeam::~ThreadTeam() {
  stopping_.store(true);
  wake_members();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::run_erased(Entry entry, const void* context) {
  if (size_ == 1) {
    Worker self(this, 0, 1);
    entry(context, self);
    return;
  }
  entry_ = entry;
  context_ = context;
  finished_.value.store(0, std::memory_order_relaxed);
  wake_members();
  Worker self(this, 0, size_);
  entry(context, self);
  const auto others = static_cast<uint32_t>(size_ - 1);
  for (int spins = 0; finished_.value.load(std::memory_order_acquire) != others;) {
    relax();
    if (++spins == kSpinsBeforeYield) {
      std::this_thread::yield();
      spins = 0;
    }
  }
}

void ThreadTeam::wake_members() {
  // seq_cst on both sides: either a member that is about to park sees the new generation, or we see it parked.
  generation_.value.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.value.load(std::memory_order_seq_cst) > 0) {
    syscall(SYS_futex, &generation_.value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
}

void ThreadTeam::member_loop(int rank) {
  pthread_setname_np(pthread_self(), fmt::format("fw-team-{}", rank).c_str());
  uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (generation_.value.load(std::memory_order_acquire) == seen && spins < kSpinsBeforeParking) {
      relax();
      ++spins;
    }
    if (generation_.value.load(std::memory_order_acquire) == seen) {
      parked_.value.fetch_add(1, std::memory_order_seq_cst);
      // The futex sleeps only if the generation is still the one seen; a wake-up without a new generation sleeps again.
      while (generation_.value.load(std::memory_order_seq_cst) == seen) {
        syscall(SYS_futex, &generation_.value, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
      }
      parked_.value.fetch_sub(1, std::memory_order_relaxed);
    }
    seen = generation_.value.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    Worker self(this, rank, size_);
    entry_(context_, self);
    finished_.value.fetch_add(1, std::memory_order_release);
  }
}

void ThreadTeam::cross_barrier() {
  const uint32_t phase = barrier_phase_.value.load(std::memory_order_relaxed);
  const auto members = static_cast<uint32_t>(size_);
  if (barrier_arrived_.value.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
    barrier_arrived_.value.store(0, std::memory_order_relaxed);
    barrier_phase_.value.store(phase + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; barrier_phase_.value.load(std::memory_order_acquire) == phase;) {
    relax();
    if (++spins == kSpinsBeforeYield) {
      std::this_thread::yield();
      spins = 0;
    }
  }
}

}  // namespace flywheel
