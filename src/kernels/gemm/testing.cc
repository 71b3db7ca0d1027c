// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/testing.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>

#include "kernels/gemm/reference_epilogue.h"

namespace flywheel::kernels::testing {
namespace {

constexpr size_t kPage = 4096;
constexpr int64_t kGuardElements = 64;
constexpr uint8_t kGuardByte = 0xa5;

int64_t span_of(const TensorDesc& desc) {
  int64_t last = 0;
  for (int d = 0; d < desc.rank(); ++d) {
    if (desc.dims[d] == 0) return 0;
    last += (desc.dims[d] - 1) * desc.strides[d];
  }
  return last + 1;
}

struct Ending {
  const char* name;
  const char* program;
  const char* operands;  // a letter each: b bias, r residual, g gate of image and channel, s scale of a row
};
constexpr Ending kEndings[] = {
    {"none", "", ""},
    {"bias", "r2 = add r0 r1 -> r2", "b"},
    {"bias_relu", "r2 = add r0 r1; r2 = relu r2 -> r2", "b"},
    {"bias_clip", "r2 = add r0 r1; r2 = clip r2 -0.5 0.75 -> r2", "b"},
    {"bias_res", "r3 = add r0 r1; r3 = add r3 r2 -> r3", "br"},
    {"bias_res_relu", "r3 = add r0 r1; r3 = add r2 r3; r3 = relu r3 -> r3", "br"},
    {"bias_gelu", "r2 = add r0 r1; r2 = gelu_erf r2 -> r2", "b"},
    {"bias_silu", "r2 = add r0 r1; r2 = silu r2 -> r2", "b"},
    {"bias_hswish", "r2 = add r0 r1; r2 = hard_swish r2 -> r2", "b"},
    {"bias_sigmoid", "r2 = add r0 r1; r2 = sigmoid r2 -> r2", "b"},
    {"gate", "r2 = mul r0 r1 -> r2", "g"},
    {"row_scale", "r2 = mul r0 r1 -> r2", "s"},
    {"scale_bias", "r3 = mul r0 r1; r3 = add r3 r2 -> r3", "bb"},
    {"res_bias", "r3 = add r0 r1; r3 = add r3 r2 -> r3", "rb"},
    {"relu_res", "r2 = relu r0; r2 = add r2 r1 -> r2", "r"},
};

}  // namespace

Tensor::Tensor(const TensorDesc& desc) : desc_(desc), span_(span_of(desc)) {
  const size_t size = dtype_size(desc.dtype), bytes = static_cast<size_t>(span_ + kGuardElements) * size;
  const size_t body = (bytes + kPage - 1) / kPage * kPage;
  mapping_bytes_ = body + kPage;
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) std::abort();
  mprotect(static_cast<std::byte*>(mapping_) + body, kPage, PROT_NONE);
  data_ = static_cast<std::byte*>(mapping_) + body - static_cast<size_t>(span_) * size;
}

Tensor::Tensor(Tensor&& other) noexcept
    : desc_(std::move(other.desc_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(other.mapping_bytes_),
      data_(other.data_),
      span_(other.span_) {}

Tensor::~Tensor() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

Tensor Tensor::random(const TensorDesc& desc, uint32_t seed) {
  Tensor tensor(desc);
  std::minstd_rand generator(seed * 2654435761u + 1);
  for (int64_t i = 0; i < tensor.span_; ++i) store_element(tensor.data_, desc.dtype, i, std::nan(""));
  const int64_t count = desc.elements();
  for (int64_t i = 0; i < count; ++i) {
    const double unit = static_cast<double>(generator() % 65536) / 32768.0 - 1.0;
    store_element(tensor.data_, desc.dtype, tensor.offset_of(i), is_float(desc.dtype) ? unit : std::floor(unit * 20));
  }
  return tensor;
}

Tensor Tensor::output(const TensorDesc& desc) {
  Tensor tensor(desc);
  const size_t size = dtype_size(desc.dtype);
  std::memset(tensor.data_ - kGuardElements * size, kGuardByte,
              static_cast<size_t>(tensor.span_ + kGuardElements) * size);
  return tensor;
}

int64_t Tensor::offset_of(int64_t linear) const {
  int64_t offset = 0;
  for (int d = desc_.rank() - 1; d >= 0; --d) {
    offset += linear % desc_.dims[d] * desc_.strides[d];
    linear /= desc_.dims[d];
  }
  return offset;
}

double Tensor::at(int64_t linear) const { return load_element(data_, desc_.dtype, offset_of(linear)); }

bool Tensor::gaps_are_intact() const {
  std::vector<bool> reached(static_cast<size_t>(span_), false);
  const int64_t count = desc_.elements();
  for (int64_t i = 0; i < count; ++i) reached[static_cast<size_t>(offset_of(i))] = true;
  const auto size = static_cast<int64_t>(dtype_size(desc_.dtype));
  for (int64_t i = -kGuardElements; i < span_; ++i) {
    if (i >= 0 && reached[static_cast<size_t>(i)]) continue;
    for (int64_t b = 0; b < size; ++b) {
      if (data_[i * size + b] != std::byte{kGuardByte}) return false;
    }
  }
  return true;
}

const std::vector<std::string>& ending_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Ending& ending : kEndings) names.emplace_back(ending.name);
    return names;
  }();
  return kNames;
}

TensorDesc with_gap(Dims dims, int64_t gap) {
  TensorDesc desc = TensorDesc::contiguous(DType::kFloat32, std::move(dims));
  int64_t stride = 1;
  for (int d = desc.rank() - 1; d >= 0; --d) {
    desc.strides[d] = stride;
    stride = stride * desc.dims[d] + (d + 1 == desc.rank() ? gap : 0);
  }
  return desc;
}

bool add_ending(Problem& problem, const std::string& name) {
  for (const Ending& ending : kEndings) {
    if (name != ending.name) continue;
    const std::string_view operands = ending.operands;
    problem.constant.resize(problem.inputs.size(), false);
    for (char kind : operands) {
      Dims dims = problem.outputs[0].dims;
      const size_t rank = dims.size();
      if (kind == 'b') dims = {dims.back()};
      if (kind == 'g') std::fill(dims.begin() + (rank > 2 ? 1 : 0), dims.end() - 1, 1);
      if (kind == 's') dims.back() = 1;
      problem.inputs.push_back(kind == 'r' ? with_gap(dims, 3) : TensorDesc::contiguous(DType::kFloat32, dims));
      problem.constant.push_back(kind == 'b');
    }
    problem.program = {};
    problem.program.inputs = static_cast<uint8_t>(1 + operands.size());
    if (*ending.program != '\0') {
      problem.program = Program::parse(ending.program, static_cast<int>(1 + operands.size())).value();
    }
    return true;
  }
  return false;
}

std::vector<Tensor> random_inputs(const Problem& problem, uint32_t seed) {
  std::vector<Tensor> inputs;
  for (const TensorDesc& desc : problem.inputs) inputs.push_back(Tensor::random(desc, seed++));
  return inputs;
}

Result<Packed> pack(const Tactic& tactic, const Problem& problem, const std::vector<Tensor>& inputs) {
  Packed packed;
  packed.consumed.assign(inputs.size(), false);
  if (tactic.pack == nullptr) return packed;
  std::vector<const void*> constants;
  for (size_t i = 0; i < inputs.size(); ++i) constants.push_back(problem.constant[i] ? inputs[i].data() : nullptr);
  FW_ASSIGN_OR_RETURN(packed.bytes, tactic.pack(problem, constants, packed.consumed));
  return packed;
}

Result<Tensor> run(const Tactic& tactic, const Problem& problem, const std::vector<Tensor>& inputs,
                   const Packed& packed, int workers) {
  FW_ASSIGN_OR_RETURN(std::unique_ptr<BoundKernel> kernel, tactic.bind(problem, machine(), workers));
  FW_ASSIGN_OR_RETURN(AlignedBuffer workspace, AlignedBuffer::allocate(kernel->workspace_bytes(), "test workspace"));
  std::fill_n(reinterpret_cast<float*>(workspace.data()), workspace.size_bytes() / sizeof(float), std::nanf(""));
  std::vector<const void*> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) pointers.push_back(packed.consumed[i] ? nullptr : inputs[i].data());
  Tensor output = Tensor::output(problem.outputs[0]);
  void* out = output.data();
  std::atomic<uint32_t> faults{0};
  const Operands operands{pointers.data(), &out, packed.bytes.data(), workspace.data(), &faults};
  FW_ASSIGN_OR_RETURN(std::unique_ptr<ThreadTeam> team, ThreadTeam::create(workers));
  team->run([&](Worker& worker) { kernel->launch(operands, worker); });
  EXPECT_EQ(faults.load(), 0u);
  return output;
}

Result<Tensor> run(const Tactic& tactic, const Problem& problem, const std::vector<Tensor>& inputs, int workers) {
  FW_ASSIGN_OR_RETURN(const Packed packed, pack(tactic, problem, inputs));
  return run(tactic, problem, inputs, packed, workers);
}

std::vector<std::string> expect_tactics_match(const Problem& problem, uint32_t seed, const std::vector<int>& workers) {
  std::vector<std::string> ran;
  const std::vector<Tensor> inputs = random_inputs(problem, seed);
  const std::span<const Tactic> list = tactics(problem.family);
  Result<Tensor> want = run(list.back(), problem, inputs, 1);
  EXPECT_TRUE(want.is_ok()) << want.status().to_string() << "\n" << problem.to_string();
  if (!want.is_ok()) return ran;
  const int64_t count = problem.outputs[0].elements();
  double largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(want->at(i)));
  for (const Tactic& tactic : list.first(list.size() - 1)) {
    if (!machine().has(tactic.isa) || !tactic.accepts(problem, machine()).is_ok()) continue;
    ran.emplace_back(tactic.name);
    const Tolerance tolerance = tolerance_of(tactic);
    Result<Packed> packed = pack(tactic, problem, inputs);
    EXPECT_TRUE(packed.is_ok()) << packed.status().to_string();
    if (!packed.is_ok()) continue;
    std::vector<double> first;
    for (int size : workers) {
      SCOPED_TRACE(std::string(tactic.name) + ", " + std::to_string(size) + " workers, " + problem.to_string());
      Result<Tensor> got = run(tactic, problem, inputs, *packed, size);
      EXPECT_TRUE(got.is_ok()) << got.status().to_string();
      if (!got.is_ok()) break;
      EXPECT_TRUE(got->gaps_are_intact()) << "wrote outside the output";
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) {
        const double value = got->at(i);
        if (!tolerance.holds(value, want->at(i), largest)) {
          if (++wrong <= 3) ADD_FAILURE() << "element " << i << " is " << value << ", expected " << want->at(i);
        }
        if (size == workers.front()) {
          first.push_back(value);
        } else if (value != first[static_cast<size_t>(i)] &&
                   !(std::isnan(value) && std::isnan(first[static_cast<size_t>(i)]))) {
          if (++wrong <= 3) ADD_FAILURE() << "element " << i << " depends on the number of workers";
        }
      }
      EXPECT_EQ(wrong, 0) << "of " << count << " elements";
      if (wrong != 0) break;
    }
  }
  return ran;
}

void expect_batch_invariant(const std::function<Problem(int64_t)>& problem_of_rows, const std::vector<int64_t>& rows,
                            uint32_t seed) {
  const Problem most = problem_of_rows(*std::max_element(rows.begin(), rows.end()));
  const std::vector<Tensor> inputs = random_inputs(most, seed);
  for (const Tactic& tactic : tactics(most.family)) {
    if (!machine().has(tactic.isa) || !tactic.accepts(most, machine()).is_ok()) continue;
    // The packed form does not depend on the number of rows, so one serves all.
    Result<Packed> packed = pack(tactic, most, inputs);
    ASSERT_TRUE(packed.is_ok()) << packed.status().to_string();
    Result<Tensor> all = run(tactic, most, inputs, *packed, 2);
    ASSERT_TRUE(all.is_ok()) << all.status().to_string();
    for (int64_t count : rows) {
      const Problem problem = problem_of_rows(count);
      for (int workers : {1, 2}) {
        // The larger problem's operands begin with the smaller's: same seeds, same strides, fewer rows.
        std::vector<Tensor> fewer;
        for (size_t i = 0; i < problem.inputs.size(); ++i) {
          fewer.push_back(Tensor::random(problem.inputs[i], seed + static_cast<uint32_t>(i)));
        }
        Result<Tensor> got = run(tactic, problem, fewer, *packed, workers);
        ASSERT_TRUE(got.is_ok()) << got.status().to_string();
        for (int64_t i = 0; i < problem.outputs[0].elements(); ++i) {
          const auto small = static_cast<float>(got->at(i)), large = static_cast<float>(all->at(i));
          ASSERT_EQ(std::memcmp(&small, &large, sizeof small), 0)
              << tactic.name << ": element " << i << " is " << small << " in a batch of " << count << " (" << workers
              << " workers) and " << large << " in a larger one; " << problem.to_string();
        }
      }
    }
  }
}

Tolerance tolerance_of(const Tactic& tactic) {
  const std::string_view name = tactic.name;
  if (name.find("winograd4") != std::string_view::npos) return kWinograd4Tolerance;
  if (name.find("winograd2") != std::string_view::npos) return kWinograd2Tolerance;
  return kDirectTolerance;
}

const Machine& machine() {
  static const Machine kMachine = detect_machine().value();
  return kMachine;
}

}  // namespace flywheel::kernels::testing
