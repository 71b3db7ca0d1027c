// SPDX-License-Identifier: Apache-2.0
// Proves that a run in steady state neither allocates nor takes a lock: this program's malloc and pthread_mutex_lock
// count.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>

#include "engine/test_plan.h"
#include "runtime/engine_impl.h"

namespace {
std::atomic<bool> g_counting{false};
std::atomic<int> g_allocations{0}, g_locks{0};
}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);

void* malloc(size_t size) {
  if (g_counting.load(std::memory_order_relaxed)) g_allocations.fetch_add(1);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (g_counting.load(std::memory_order_relaxed)) g_allocations.fetch_add(1);
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  if (g_counting.load(std::memory_order_relaxed)) g_allocations.fetch_add(1);
  return __libc_realloc(old, size);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static Lock real = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  if (g_counting.load(std::memory_order_relaxed)) g_locks.fetch_add(1);
  return real(mutex);
}
}

namespace flywheel::runtime {
namespace {

TEST(SteadyState, CountersCount) {
  g_allocations = g_locks = 0;
  g_counting = true;
  delete new int(3);
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
  void* block = malloc(17);
  g_counting = false;
  free(block);
  EXPECT_GE(g_allocations.load(), 1);
  EXPECT_GE(g_locks.load(), 1);
}

TEST(SteadyState, RunsNeitherAllocateNorLock) {
  auto engine = EngineImpl::from_plan(engine::copy_plan(4096), {});
  ASSERT_TRUE(engine.is_ok());
  ContextOptions options;
  options.threads = 2;
  auto context = (*engine)->create_context(options);
  ASSERT_TRUE(context.is_ok());
  std::vector<float> x(16384, 2.0F), y(16384, 0.0F);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  auto run_all = [&] {
    for (int64_t n : {1, 4096, 3}) {  // by one worker and by the team
      ASSERT_TRUE((*context)->set_shape(0, {n, 4}).is_ok());
      ASSERT_TRUE((*context)->run(inputs, outputs).is_ok());
    }
  };
  run_all();  // binds the three shapes
  g_allocations = g_locks = 0;
  g_counting = true;
  for (int round = 0; round < 100; ++round) run_all();
  g_counting = false;
  EXPECT_EQ(g_allocations.load(), 0);
  EXPECT_EQ(g_locks.load(), 0);
  EXPECT_EQ(y[16383], 2.0F);
}

}  // namespace
}  // namespace flywheel::runtime
