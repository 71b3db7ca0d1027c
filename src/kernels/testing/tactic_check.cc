// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/tactic_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/element.h"

namespace {
std::atomic<int64_t> g_allocations{0};
}  // namespace

// Counts every allocation of the program, so that a launch that allocates is seen. Sanitizers bring their own
// operators.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {
void* counted_allocation(size_t size, size_t alignment) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment + alignment);
  if (!p) std::abort();
  return p;
}
}  // namespace

void* operator new(size_t size) { return counted_allocation(size, alignof(std::max_align_t)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return counted_allocation(size, alignof(std::max_align_t));
}
void* operator new(size_t size, std::align_val_t alignment) {
  return counted_allocation(size, static_cast<size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
#endif

namespace flywheel::kernels::check {
namespace {

constexpr int64_t kGuardBytes = 256;
constexpr std::byte kGuard{0xA5};

// Memory for one operand with guards on both sides.
class OperandMemory {
 public:
  explicit OperandMemory(const TensorDesc& desc) : desc_(desc), size_(static_cast<int64_t>(dtype_size(desc.dtype))) {
    int64_t low = 0, high = 0;
    for (int d = 0; d < desc.rank(); ++d) {
      const int64_t reach = (desc.dims[d] - 1) * desc.strides[d];
      if (desc.dims[d] > 1) (reach < 0 ? low : high) += reach;
    }
    const int64_t bytes = desc.elements() == 0 ? 0 : (high - low + 1) * size_;
    memory_.assign(static_cast<size_t>(bytes + 2 * kGuardBytes), kGuard);
    first_ = kGuardBytes - low * size_;
    offsets_.reserve(static_cast<size_t>(desc.elements()));
    add_offsets(0, 0);
  }

  std::byte* first() { return memory_.data() + first_; }

  template <class Visit>
  void for_each(const Visit& visit) {
    for (size_t i = 0; i < offsets_.size(); ++i) visit(i, first() + offsets_[i] * size_);
  }

  void fill(const std::vector<double>& values) {
    ASSERT_EQ(static_cast<int64_t>(values.size()), desc_.elements());
    for_each([&](size_t i, std::byte* element) { store_element(desc_.dtype, element, values[i]); });
  }

  std::vector<double> values() {
    std::vector<double> values(static_cast<size_t>(desc_.elements()));
    for_each([&](size_t i, std::byte* element) { values[i] = load_element<double>(desc_.dtype, element); });
    return values;
  }

  // Nothing but the view's elements was written.
  bool guards_hold() {
    for_each([&](size_t, std::byte* element) { std::fill(element, element + size_, kGuard); });
    return std::all_of(memory_.begin(), memory_.end(), [](std::byte b) { return b == kGuard; });
  }

  bool operator==(const OperandMemory& other) const { return memory_ == other.memory_; }

 private:
  void add_offsets(int dim, int64_t offset) {
    if (desc_.elements() == 0) return;
    if (dim == desc_.rank()) {
      offsets_.push_back(offset);
      return;
    }
    for (int64_t i = 0; i < desc_.dims[dim]; ++i) add_offsets(dim + 1, offset + i * desc_.strides[dim]);
  }

  TensorDesc desc_;
  int64_t size_, first_ = 0;
  std::vector<int64_t> offsets_;  // of the elements in row-major order of the dims
  std::vector<std::byte> memory_;
};

const Machine& machine() {
  static const Machine kMachine = [] {
    Machine m = detect_machine().value();
    m.isa = m.hardware_isa;
    return m;
  }();
  return kMachine;
}

ThreadTeam& team(int size) {
  static std::vector<std::unique_ptr<ThreadTeam>> teams(8);
  if (!teams[size]) teams[size] = ThreadTeam::create(size).value();
  return *teams[size];
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void expect_close(const std::vector<double>& found, const std::vector<double>& expected, Tolerance tolerance,
                  const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    if (same(found[i], expected[i])) continue;
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    ASSERT_LE(std::abs(found[i] - expected[i]), allowed)
        << what << ": element " << i << " is " << found[i] << ", expected " << expected[i];
  }
}

}  // namespace

TensorDesc dense(DType dtype, Dims dims) { return TensorDesc::contiguous(dtype, std::move(dims)); }

TensorDesc laid_out(DType dtype, const Dims& dims, const std::vector<int>& order, int64_t gap) {
  TensorDesc desc{dtype, dims, Dims(dims.size())};
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    desc.strides[order[i]] = stride;
    stride = stride * dims[order[i]] + (i + 1 == order.size() ? gap : 0);
  }
  return desc;
}

Dims random_dims(std::mt19937& random, int rank, int64_t largest) {
  Dims dims;
  for (int d = 0; d < rank; ++d) dims.push_back(1 + static_cast<int64_t>(random()) % (random() % 3 == 0 ? largest : 9));
  while (element_count(dims) > 8000) {
    for (int64_t& extent : dims) extent = (extent + 1) / 2;
  }
  return dims;
}

Values random_values(const Problem& problem, uint32_t seed) {
  std::mt19937 random(seed);
  Values all;
  for (const TensorDesc& desc : problem.inputs) {
    std::vector<double> values(static_cast<size_t>(desc.elements()));
    for (double& value : values) {
      const auto draw = static_cast<double>(random() >> 8) * 0x1p-24;  // [0, 1)
      if (desc.dtype == DType::kBool) {
        value = draw < 0.5 ? 0 : 1;
      } else if (is_float(desc.dtype)) {
        // Rounded here, so that the values read back from any float type are those that were meant.
        std::byte element[8];
        store_element(desc.dtype, element, draw * 4 - 2);
        value = load_element<double>(desc.dtype, element);
      } else {
        value = desc.dtype >= DType::kUInt8 ? std::floor(draw * 4) : std::floor(draw * 7) - 3;
      }
    }
    all.push_back(std::move(values));
  }
  return all;
}

Outcome run_tactic(const Tactic& tactic, const Problem& problem, const Values& inputs, int workers) {
  Outcome outcome;
  auto bound = tactic.bind(problem, machine(), workers);
  EXPECT_TRUE(bound.is_ok()) << tactic.name << " " << problem.to_string() << ": " << bound.status().to_string();
  if (!bound.is_ok()) return outcome;
  std::vector<OperandMemory> memory;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    memory.emplace_back(problem.inputs[i]);
    memory.back().fill(inputs[i]);
  }
  const std::vector<OperandMemory> before = memory;
  OperandMemory output(problem.outputs[0]);
  std::vector<const void*> in;
  for (OperandMemory& operand : memory) in.push_back(operand.first());
  void* out = output.first();
  const size_t workspace_bytes = (*bound)->workspace_bytes();
  AlignedBuffer workspace = AlignedBuffer::allocate(workspace_bytes + kGuardBytes, "workspace").value();
  std::fill(workspace.data(), workspace.data() + workspace_bytes + kGuardBytes, kGuard);
  std::atomic<uint32_t> faults{0};
  const Operands operands{in.data(), &out, nullptr, workspace.data(), &faults};
  const BoundKernel& kernel = **bound;
  ThreadTeam& members = team(workers);
  const int64_t allocations = g_allocations.load();
  members.run([&](Worker& worker) { kernel.launch(operands, worker); });
  EXPECT_EQ(g_allocations.load(), allocations) << tactic.name << " allocates in launch: " << problem.to_string();
  outcome.faults = faults.load();
  outcome.values = output.values();
  EXPECT_TRUE(output.guards_hold()) << tactic.name << " writes outside its output: " << problem.to_string();
  EXPECT_TRUE(memory == before) << tactic.name << " changes its inputs: " << problem.to_string();
  EXPECT_TRUE(std::all_of(workspace.data() + workspace_bytes, workspace.data() + workspace_bytes + kGuardBytes,
                          [](std::byte b) { return b == kGuard; }))
      << tactic.name << " writes beyond its workspace: " << problem.to_string();
  return outcome;
}

Outcome run_reference(const Problem& problem, const Values& inputs) {
  return run_tactic(tactics(problem.family).back(), problem, inputs, 1);
}

int expect_tactics_match(const Problem& problem, const Values& inputs, Tolerance tolerance,
                         std::initializer_list<int> workers) {
  const auto list = tactics(problem.family);
  const Status valid = list.back().accepts(problem, machine());
  EXPECT_TRUE(valid.is_ok()) << valid.to_string() << " " << problem.to_string();
  if (!valid.is_ok()) return 0;
  const Outcome reference = run_reference(problem, inputs);
  int compared = 0;
  for (const Tactic& tactic : list) {
    if (!machine().has(tactic.isa) || !tactic.accepts(problem, machine()).is_ok()) continue;
    Outcome first;
    for (int size : workers) {
      const std::string what =
          std::string(tactic.name) + " with " + std::to_string(size) + " workers, " + problem.to_string();
      const Outcome outcome = run_tactic(tactic, problem, inputs, size);
      if (size == *workers.begin()) {
        first = outcome;
        expect_close(outcome.values, reference.values, tolerance, what);
        EXPECT_EQ(outcome.faults, reference.faults) << what;
      }
      EXPECT_TRUE(
          std::equal(outcome.values.begin(), outcome.values.end(), first.values.begin(), first.values.end(), same))
          << what << ": the result depends on the team's size";
      if (::testing::Test::HasFailure()) return compared;
    }
    if (&tactic != &list.back()) ++compared;
  }
  return compared;
}

void expect_values(const Problem& problem, const Values& inputs, const std::vector<double>& expected,
                   Tolerance tolerance) {
  expect_close(run_reference(problem, inputs).values, expected, tolerance, "reference, " + problem.to_string());
  expect_tactics_match(problem, inputs, tolerance);
}

void expect_invalid(const Problem& problem) {
  for (const Tactic& tactic : tactics(problem.family)) {
    EXPECT_FALSE(tactic.accepts(problem, machine()).is_ok()) << tactic.name << " accepts " << problem.to_string();
    EXPECT_FALSE(tactic.bind(problem, machine(), 1).is_ok()) << tactic.name << " binds " << problem.to_string();
  }
}

}  // namespace flywheel::kernels::check
