// SPDX-License-Identifier: Apache-2.0
// The steps in order, each shared out by units: a member makes its units of the new state for all rows and waits for
// the others. The f32 tactics and the reference differ in their numbers' type and in how they sum.
#include "kernels/recurrent/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/recurrent/recurrent_isa.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

constexpr int kMaxGates = 4;

int64_t blocks_of(int64_t hidden) { return (hidden + kRecurrentBlock - 1) / kRecurrentBlock; }
int64_t padded(int64_t hidden) { return blocks_of(hidden) * kRecurrentBlock; }

// The gates whose sums are made together: [first, first + count). A GRU's candidate comes after its reset gate, unless
// the reset is applied to the candidate's sum.
struct Group {
  int first, count;
};
int groups_of(const RecurrentParams& p, Group* groups) {
  if (p.cell == Cell::kGru && p.candidate_bias == 0) {
    groups[0] = {0, 2};
    groups[1] = {2, 1};
    return 2;
  }
  groups[0] = {0, p.gates()};
  return 1;
}

template <class T>
T activate(const RecurrentParams::Function& function, T x) {
  const T alpha = static_cast<T>(function.alpha), beta = static_cast<T>(function.beta);
  switch (function.kind) {
    case Activation::kSigmoid: return 1 / (1 + std::exp(-x));
    case Activation::kTanh: return std::tanh(x);
    case Activation::kRelu: return std::max<T>(x, 0);
    case Activation::kAffine: return alpha * x + beta;
    case Activation::kLeakyRelu: return x >= 0 ? x : alpha * x;
    case Activation::kThresholdedRelu: return x > alpha ? x : 0;
    case Activation::kScaledTanh: return alpha * std::tanh(beta * x);
    case Activation::kHardSigmoid: return std::clamp<T>(alpha * x + beta, 0, 1);
    case Activation::kElu: return x >= 0 ? x : alpha * (std::exp(x) - 1);
    case Activation::kSoftsign: return x / (1 + std::abs(x));
    case Activation::kSoftplus: return std::max<T>(x, 0) + std::log1p(std::exp(-std::abs(x)));
  }
  return x;
}

// Sums with doubles, from the weights as they are.
struct ReferenceSums {
  using Number = double;
  const RecurrentParams* p;

  void accumulate(const Operands& operands, Group group, int64_t first, int64_t last, const double* const* h,
                  double* const* out, int64_t stride, int rows) const {
    const auto* r = static_cast<const float*>(operands.inputs[1]);
    const int64_t end = std::min(last * kRecurrentBlock, p->hidden);
    for (int row = 0; row < rows; ++row) {
      for (int g = 0; g < group.count; ++g) {
        for (int64_t u = first * kRecurrentBlock; u < end; ++u) {
          const float* weights = r + ((group.first + g) * p->hidden + u) * p->hidden;
          double sum = 0;
          for (int64_t k = 0; k < p->hidden; ++k) sum += static_cast<double>(weights[k]) * h[row][k];
          out[row][(group.first + g) * stride + u] += sum;
        }
      }
    }
  }
  void apply(const RecurrentParams::Function& function, double* x, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) x[i] = activate(function, x[i]);
  }
};

// Sums with floats, from packed weights.
struct PackedSums {
  using Number = float;
  const RecurrentParams* p;
  const RecurrentLoops* loops;

  void accumulate(const Operands& operands, Group group, int64_t first, int64_t last, const float* const* h,
                  float* const* out, int64_t stride, int rows) const {
    const auto* packed = reinterpret_cast<const float*>(operands.packed) + group.first * padded(p->hidden) * p->hidden;
    float* at[kRecurrentRows];
    for (int row = 0; row < rows; ++row) at[row] = out[row] + group.first * stride;
    int row = 0;
    if (rows == kRecurrentRows) {
      loops->accumulate(packed, group.count, p->hidden, first, last, h, at, stride, rows);
      return;
    }
    for (; row < rows; ++row)
      loops->accumulate(packed, group.count, p->hidden, first, last, h + row, at + row, stride, 1);
  }
  void apply(const RecurrentParams::Function& function, float* x, int64_t count) const {
    if (function.kind == Activation::kSigmoid) return loops->sigmoid(x, count);
    if (function.kind == Activation::kTanh) return loops->tanh(x, count);
    for (int64_t i = 0; i < count; ++i) x[i] = activate(function, x[i]);
  }
};

template <class Sums>
class RecurrentKernel final : public BoundKernel {
 public:
  using Number = typename Sums::Number;
  RecurrentKernel(const RecurrentParams& params, Sums sums, int workers) : p_(params), sums_(sums), workers_(workers) {
    sums_.p = &p_;
    groups_ = groups_of(p_, group_);
  }

  // Two states, the cell's state or a GRU's z, the reset state; and the gates of the rows in hand for each member.
  size_t workspace_bytes() const override {
    const int64_t states = 4 * p_.batch * padded(p_.hidden);
    const int64_t gates = workers_ * kRecurrentRows * kMaxGates * padded(p_.hidden);
    return static_cast<size_t>(states + gates) * sizeof(Number);
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const int64_t stride = padded(p_.hidden), state = p_.batch * stride;
    auto* workspace = reinterpret_cast<Number*>(operands.workspace);
    Number* states[2] = {workspace, workspace + state};
    Number *cell = workspace + 2 * state, *reset = workspace + 3 * state;
    Number* gates = workspace + 4 * state + worker.rank() * kRecurrentRows * kMaxGates * stride;
    const Worker::Range blocks = worker.share(blocks_of(p_.hidden));
    const Units units{blocks.begin * kRecurrentBlock, std::min(blocks.end * kRecurrentBlock, p_.hidden)};
    if (worker.rank() == 0) check_lengths(operands);
    start(operands, units, states[0], cell, stride);
    worker.barrier();
    for (int64_t step = 0; step < p_.steps; ++step) {
      const Number* before = states[step % 2];
      Number* after = states[(step + 1) % 2];
      if (groups_ == 2) {
        // The candidate needs the reset state of all units.
        for_rows(operands, step, units, before, after, [&](int64_t first, int rows, const int64_t* times) {
          load_gates(operands, first, rows, times, units, gates, stride);
          sum(operands, group_[0], blocks, before, first, rows, gates, stride);
          for (int row = 0; row < rows; ++row) {
            Number *z = gates + row * kMaxGates * stride, *r = z + stride;
            finish(p_.f, z, units);
            finish(p_.f, r, units);
            const int64_t at = (first + row) * stride;
            for (int64_t u = units.begin; u < units.end; ++u) {
              cell[at + u] = z[u];
              reset[at + u] = r[u] * before[at + u];
            }
          }
        });
        worker.barrier();
      }
      for_rows(operands, step, units, before, after, [&](int64_t first, int rows, const int64_t* times) {
        load_gates(operands, first, rows, times, units, gates, stride);
        sum(operands, group_[groups_ - 1], blocks, groups_ == 2 ? reset : before, first, rows, gates, stride);
        for (int row = 0; row < rows; ++row) {
          const int64_t b = first + row;
          make_state(operands, gates + row * kMaxGates * stride, stride, units, before + b * stride, after + b * stride,
                     cell + b * stride);
          put(operands, times[row], b, units, after + b * stride);
        }
      });
      worker.barrier();
    }
    for (int64_t b = 0; b < p_.batch; ++b) {
      give(operands.outputs[1], b, units, states[p_.steps % 2] + b * stride);
      if (p_.cell == Cell::kLstm) give(operands.outputs[2], b, units, cell + b * stride);
    }
  }

 private:
  struct Units {
    int64_t begin, end;
  };

  const float* input(const Operands& operands, int place) const {
    return place == 0 ? nullptr : static_cast<const float*>(operands.inputs[place]);
  }

  void start(const Operands& operands, Units units, Number* h, Number* c, int64_t stride) const {
    const float *h0 = input(operands, p_.h0), *c0 = input(operands, p_.c0);
    for (int64_t b = 0; b < p_.batch; ++b) {
      for (int64_t u = units.begin; u < units.end; ++u) {
        h[b * stride + u] = h0 != nullptr ? h0[b * p_.hidden + u] : 0;
        c[b * stride + u] = c0 != nullptr ? c0[b * p_.hidden + u] : 0;
      }
    }
  }

  void check_lengths(const Operands& operands) const {
    if (p_.lengths == 0) return;
    const auto* lengths = static_cast<const int32_t*>(operands.inputs[p_.lengths]);
    for (int64_t b = 0; b < p_.batch; ++b) {
      if (lengths[b] < 0 || lengths[b] > p_.steps)
        operands.faults->fetch_or(kIndexOutOfRange, std::memory_order_relaxed);
    }
  }

  int64_t length(const Operands& operands, int64_t b) const {
    if (p_.lengths == 0) return p_.steps;
    return std::clamp<int64_t>(static_cast<const int32_t*>(operands.inputs[p_.lengths])[b], 0, p_.steps);
  }

  // Calls `work` for runs of up to kRecurrentRows rows that are in their sequence, with the time of each; the state of
  // others stays, and Y is 0 for them.
  template <class Work>
  void for_rows(const Operands& operands, int64_t step, Units units, const Number* before, Number* after,
                const Work& work) const {
    const int64_t stride = padded(p_.hidden);
    auto* y = static_cast<float*>(operands.outputs[0]);
    int64_t first = 0, times[kRecurrentRows];
    int rows = 0;
    for (int64_t b = 0; b < p_.batch; ++b) {
      const int64_t steps = length(operands, b);
      if (step >= steps) {
        if (rows > 0) work(first, rows, times);
        rows = 0;
        for (int64_t u = units.begin; u < units.end; ++u) {
          after[b * stride + u] = before[b * stride + u];
          y[(step * p_.batch + b) * p_.hidden + u] = 0;
        }
        continue;
      }
      if (rows == 0) first = b;
      times[rows++] = p_.reverse ? steps - 1 - step : step;
      if (rows == kRecurrentRows) {
        work(first, rows, times);
        rows = 0;
      }
    }
    if (rows > 0) work(first, rows, times);
  }

  void load_gates(const Operands& operands, int64_t first, int rows, const int64_t* times, Units units, Number* gates,
                  int64_t stride) const {
    const auto* pre = static_cast<const float*>(operands.inputs[0]);
    for (int row = 0; row < rows; ++row) {
      const float* from = pre + (times[row] * p_.batch + first + row) * p_.gates() * p_.hidden;
      for (int g = 0; g < p_.gates(); ++g) {
        // With a candidate bias its product is kept apart from the input's.
        const bool apart = p_.candidate_bias != 0 && g == 2;
        Number* to = gates + (row * kMaxGates + g) * stride;
        Number* aside = gates + (row * kMaxGates + 3) * stride;
        const float* bias = input(operands, p_.candidate_bias);
        for (int64_t u = units.begin; u < units.end; ++u) {
          to[u] = apart ? bias[u] : from[g * p_.hidden + u];
          if (apart) aside[u] = from[g * p_.hidden + u];
        }
        // What is behind the last unit is summed and never read.
        for (int64_t u = units.end; u < std::min(stride, units.end + kRecurrentBlock); ++u) to[u] = 0;
      }
    }
  }

  void sum(const Operands& operands, Group group, Worker::Range blocks, const Number* h, int64_t first, int rows,
           Number* gates, int64_t stride) const {
    const Number* from[kRecurrentRows];
    Number* to[kRecurrentRows];
    for (int row = 0; row < rows; ++row) {
      from[row] = h + (first + row) * stride;
      to[row] = gates + row * kMaxGates * stride;
    }
    if (blocks.begin < blocks.end) sums_.accumulate(operands, group, blocks.begin, blocks.end, from, to, stride, rows);
  }

  void finish(const RecurrentParams::Function& function, Number* x, Units units) const {
    if (p_.clip > 0) {
      const Number clip = static_cast<Number>(p_.clip);
      for (int64_t u = units.begin; u < units.end; ++u) x[u] = std::clamp(x[u], -clip, clip);
    }
    // Whole blocks: lines are padded.
    const int64_t count = (units.end - units.begin + kRecurrentBlock - 1) / kRecurrentBlock * kRecurrentBlock;
    if (units.begin < units.end) sums_.apply(function, x + units.begin, count);
  }

  void make_state(const Operands& operands, Number* gates, int64_t stride, Units units, const Number* before,
                  Number* after, Number* cell) const {
    if (p_.cell == Cell::kRnn) {
      finish(p_.f, gates, units);
      for (int64_t u = units.begin; u < units.end; ++u) after[u] = gates[u];
      return;
    }
    if (p_.cell == Cell::kGru) {
      Number *z = groups_ == 2 ? cell : gates, *r = gates + stride, *n = gates + 2 * stride;
      const Number* aside = gates + 3 * stride;
      if (groups_ == 1) {
        finish(p_.f, z, units);
        finish(p_.f, r, units);
        for (int64_t u = units.begin; u < units.end; ++u) n[u] = aside[u] + r[u] * n[u];
      }
      finish(p_.g, n, units);
      for (int64_t u = units.begin; u < units.end; ++u) after[u] = (1 - z[u]) * n[u] + z[u] * before[u];
      return;
    }
    Number *i = gates, *o = gates + stride, *f = gates + 2 * stride, *c = gates + 3 * stride;
    const float* peepholes = input(operands, p_.peepholes);
    if (peepholes != nullptr) {
      for (int64_t u = units.begin; u < units.end; ++u) {
        i[u] += peepholes[u] * cell[u];
        f[u] += peepholes[2 * p_.hidden + u] * cell[u];
      }
    }
    finish(p_.f, i, units);
    finish(p_.f, f, units);
    finish(p_.g, c, units);
    for (int64_t u = units.begin; u < units.end; ++u) {
      const Number forget = p_.input_forget ? 1 - i[u] : f[u];
      cell[u] = forget * cell[u] + i[u] * c[u];
      if (peepholes != nullptr) o[u] += peepholes[p_.hidden + u] * cell[u];
      c[u] = cell[u];
    }
    finish(p_.f, o, units);
    const int64_t count = (units.end - units.begin + kRecurrentBlock - 1) / kRecurrentBlock * kRecurrentBlock;
    if (units.begin < units.end) sums_.apply(p_.h, c + units.begin, count);
    for (int64_t u = units.begin; u < units.end; ++u) after[u] = o[u] * c[u];
  }

  void put(const Operands& operands, int64_t time, int64_t b, Units units, const Number* h) const {
    float* y = static_cast<float*>(operands.outputs[0]) + (time * p_.batch + b) * p_.hidden;
    for (int64_t u = units.begin; u < units.end; ++u) y[u] = static_cast<float>(h[u]);
  }
  void give(void* output, int64_t b, Units units, const Number* state) const {
    for (int64_t u = units.begin; u < units.end; ++u)
      static_cast<float*>(output)[b * p_.hidden + u] = static_cast<float>(state[u]);
  }

  const RecurrentParams p_;
  Sums sums_;
  int workers_;
  Group group_[2];
  int groups_ = 1;
};

Status accepts_reference(const Problem& problem, const Machine&) { return RecurrentParams::from(problem).status(); }

Status accepts_f32(const Problem& problem, const Machine&) {
  FW_RETURN_IF_ERROR(RecurrentParams::from(problem).status());
  return problem.constant.size() > 1 && problem.constant[1] ? Status::ok() : unsupported("R is not constant");
}

Status check_size(const RecurrentParams& p, int workers) {
  const int64_t rows = std::max<int64_t>(p.batch, int64_t{workers} * kRecurrentRows);
  if (p.hidden > 0 && rows > INT64_MAX / 64 / padded(p.hidden))
    return out_of_memory("recurrent: the states are too large");
  return {};
}

Result<std::unique_ptr<BoundKernel>> bind_reference(const Problem& problem, const Machine&, int workers) {
  FW_ASSIGN_OR_RETURN(const RecurrentParams p, RecurrentParams::from(problem));
  FW_RETURN_IF_ERROR(check_size(p, workers));
  return std::unique_ptr<BoundKernel>(
      std::make_unique<RecurrentKernel<ReferenceSums>>(p, ReferenceSums{nullptr}, workers));
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind_f32(const Problem& problem, const Machine& machine, int workers) {
  FW_RETURN_IF_ERROR(accepts_f32(problem, machine));
  FW_ASSIGN_OR_RETURN(const RecurrentParams p, RecurrentParams::from(problem));
  FW_RETURN_IF_ERROR(check_size(p, workers));
  const RecurrentLoops* loops = &portable::recurrent_loops;
#if defined(__x86_64__)
  if (kIsa == Isa::kAvx512) loops = &avx512::recurrent_loops;
  if (kIsa == Isa::kAvx2) loops = &avx2::recurrent_loops;
#endif
  return std::unique_ptr<BoundKernel>(
      std::make_unique<RecurrentKernel<PackedSums>>(p, PackedSums{nullptr, loops}, workers));
}

uint64_t packed_bytes(const Problem& problem) {
  const Result<RecurrentParams> p = RecurrentParams::from(problem);
  return p.is_ok() ? static_cast<uint64_t>(p->gates() * padded(p->hidden) * p->hidden) * sizeof(float) : 0;
}

// [group][block][k][gate of the group][unit of the block]; 0 behind the last unit.
Result<AlignedBuffer> pack(const Problem& problem, std::span<const void* const> constants,
                           std::vector<bool>& consumed) {
  FW_ASSIGN_OR_RETURN(const RecurrentParams p, RecurrentParams::from(problem));
  FW_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::allocate(packed_bytes(problem), "packed recurrent weights"));
  const auto* r = static_cast<const float*>(constants[1]);
  auto* out = reinterpret_cast<float*>(buffer.data());
  Group groups[2];
  const int count = groups_of(p, groups);
  for (int i = 0; i < count; ++i) {
    for (int64_t block = 0; block < blocks_of(p.hidden); ++block) {
      for (int64_t k = 0; k < p.hidden; ++k) {
        for (int g = 0; g < groups[i].count; ++g) {
          for (int64_t u = block * kRecurrentBlock; u < (block + 1) * kRecurrentBlock; ++u)
            *out++ = u < p.hidden ? r[((groups[i].first + g) * p.hidden + u) * p.hidden + k] : 0;
        }
      }
    }
  }
  consumed.assign(problem.inputs.size(), false);
  consumed[1] = true;
  return buffer;
}

}  // namespace

#if defined(__x86_64__)
extern const Tactic recurrent_f32_avx512;
constinit const Tactic recurrent_f32_avx512{"recurrent_f32_avx512", Family::kRecurrent, Isa::kAvx512, accepts_f32, pack,
                                            bind_f32<Isa::kAvx512>, packed_bytes};
extern const Tactic recurrent_f32_avx2;
constinit const Tactic recurrent_f32_avx2{"recurrent_f32_avx2", Family::kRecurrent, Isa::kAvx2, accepts_f32, pack,
                                          bind_f32<Isa::kAvx2>, packed_bytes};
#endif
extern const Tactic recurrent_f32_portable;
constinit const Tactic recurrent_f32_portable{
    "recurrent_f32_portable", Family::kRecurrent, Isa::kPortable, accepts_f32, pack,
    bind_f32<Isa::kPortable>, packed_bytes};
extern const Tactic recurrent_reference;
constinit const Tactic recurrent_reference{
    "recurrent_reference", Family::kRecurrent, Isa::kPortable, accepts_reference, nullptr, bind_reference};

}  // namespace flywheel::kernels
