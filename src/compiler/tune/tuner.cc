// SPDX-License-Identifier: Apache-2.0
#include "compiler/tune/tuner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace flywheel::tune {
namespace {

// Two tactics nearer than this are a tie, which the list's order decides: noise must not change an engine.
constexpr double kTie = 0.02;
constexpr int kRounds = 5;
constexpr int kRoundsBeforeDropping = 2;
constexpr double kHopeless = 1.25;       // of the best, after kRoundsBeforeDropping
constexpr double kMinRoundMs = 0.3;      // short kernels are repeated within a round
constexpr double kMaxCandidateMs = 400;  // a candidate's rounds stop here

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void flush_from_caches(const std::byte* data, size_t bytes) {
#if defined(__x86_64__)
  for (size_t i = 0; i < bytes; i += 64) _mm_clflush(data + i);
  _mm_mfence();
#else
  (void)data;
  (void)bytes;
#endif
}

// Memory for one operand; `first` is where its element 0 is.
struct OperandBuffer {
  AlignedBuffer buffer;
  std::byte* first = nullptr;
};

Result<OperandBuffer> make_buffer(const TensorDesc& desc, bool fill) {
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < desc.dims.size(); ++d) {
    if (desc.dims[d] == 0) continue;
    (desc.strides[d] < 0 ? low : high) += (desc.dims[d] - 1) * desc.strides[d];
  }
  const auto size = static_cast<int64_t>(dtype_size(desc.dtype));
  OperandBuffer out;
  FW_ASSIGN_OR_RETURN(out.buffer,
                      AlignedBuffer::allocate(static_cast<size_t>((high - low + 1) * size), "a tuning buffer"));
  out.first = out.buffer.data() - low * size;
  if (fill && desc.dtype == DType::kFloat32) {
    auto* values = reinterpret_cast<float*>(out.buffer.data());
    uint32_t state = 1;
    for (int64_t i = 0; i < high - low + 1; ++i) {
      state = state * 1664525U + 1013904223U;
      values[i] = static_cast<float>(state >> 8) / 8388608.0F - 1.0F;
    }
  }
  return out;
}

}  // namespace

struct Tuner::Candidate {
  const kernels::Tactic* tactic = nullptr;
  AlignedBuffer packed, workspace;
  std::vector<bool> consumed;
  std::unique_ptr<kernels::BoundKernel> kernel;
  double best_ms = std::numeric_limits<double>::infinity();
  double spent_ms = 0;
  bool dropped = false;
};

Result<std::unique_ptr<Tuner>> Tuner::create(const Machine& machine, int threads, const TunerOptions& options,
                                             TimingCache* cache) {
  std::unique_ptr<Tuner> tuner(new Tuner(machine, options, cache));
  FW_ASSIGN_OR_RETURN(tuner->team_, ThreadTeam::create(threads));
  tuner->started_s_ = now_s();
  return tuner;
}

bool Tuner::budget_left() const { return options_.time_budget_s <= 0 || now_s() - started_s_ < options_.time_budget_s; }

Result<Choice> Tuner::choose(const kernels::Problem& problem, std::span<const void* const> constants) {
  Choice choice;
  std::vector<Candidate> candidates;
  for (const kernels::Tactic& tactic : kernels::tactics(problem.family)) {
    if (!machine_.has(tactic.isa)) {
      choice.rejected.push_back(fmt::format("{}: needs {}", tactic.name, isa_name(tactic.isa)));
      continue;
    }
    if (Status status = tactic.accepts(problem, machine_); !status.is_ok()) {
      choice.rejected.push_back(fmt::format("{}: {}", tactic.name, status.message()));
      continue;
    }
    candidates.emplace_back().tactic = &tactic;
  }
  if (candidates.empty()) {
    std::string why;
    for (const std::string& line : choice.rejected) why += "\n  " + line;
    return unsupported(fmt::format("no kernel computes {}:{}", problem.to_string(), why));
  }
  // The reference is the last resort: it is many times slower, so timing it would only cost time.
  if (candidates.size() > 1) candidates.pop_back();
  if (candidates.size() == 1 || !options_.measure) {
    choice.tactic = candidates.front().tactic;
    return choice;
  }
  const std::string key = fmt::format("{}; {} threads; {} weights; {}", machine_.fingerprint(), team_->size(),
                                      options_.cold_weights ? "cold" : "warm", problem.to_string());
  choice.from_cache = true;
  for (Candidate& candidate : candidates) {
    if (std::optional<double> ms = cache_->find(key, candidate.tactic->name)) {
      candidate.best_ms = *ms;
    } else {
      choice.from_cache = false;
    }
  }
  if (!choice.from_cache) {
    if (!budget_left()) {
      choice.tactic = candidates.front().tactic;
      return choice;
    }
    FW_RETURN_IF_ERROR(measure(problem, constants, candidates, choice.rejected));
    if (candidates.empty()) {
      return out_of_memory(
          fmt::format("no kernel for {} could be measured: {}", problem.to_string(), fmt::join(choice.rejected, "; ")));
    }
    for (Candidate& candidate : candidates) {
      cache_->record(key, candidate.tactic->name, candidate.best_ms);
      // Rounded, so that this build and one from the cache choose alike.
      candidate.best_ms = cache_->find(key, candidate.tactic->name).value_or(candidate.best_ms);
    }
  }
  double best = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) best = std::min(best, candidate.best_ms);
  for (const Candidate& candidate : candidates) {
    if (candidate.best_ms <= best * (1 + kTie)) {
      choice.tactic = candidate.tactic;
      choice.ms = candidate.best_ms;
      break;
    }
  }
  return choice;
}

Status Tuner::prepare(const kernels::Problem& problem, std::span<const void* const> constants, Candidate& candidate) {
  candidate.consumed.assign(problem.inputs.size(), false);
  if (candidate.tactic->pack != nullptr) {
    FW_ASSIGN_OR_RETURN(candidate.packed, candidate.tactic->pack(problem, constants, candidate.consumed));
  }
  FW_ASSIGN_OR_RETURN(candidate.kernel, candidate.tactic->bind(problem, machine_, team_->size()));
  FW_ASSIGN_OR_RETURN(candidate.workspace,
                      AlignedBuffer::allocate(candidate.kernel->workspace_bytes(), "a tuning workspace"));
  return Status::ok();
}

Status Tuner::measure(const kernels::Problem& problem, std::span<const void* const> constants,
                      std::vector<Candidate>& candidates, std::vector<std::string>& rejected) {
  std::vector<OperandBuffer> inputs, outputs;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    if (constants[i] != nullptr) {
      inputs.emplace_back();
      inputs.back().first = static_cast<std::byte*>(const_cast<void*>(constants[i]));
      continue;
    }
    FW_ASSIGN_OR_RETURN(OperandBuffer buffer, make_buffer(problem.inputs[i], true));
    inputs.push_back(std::move(buffer));
  }
  for (const TensorDesc& desc : problem.outputs) {
    FW_ASSIGN_OR_RETURN(OperandBuffer buffer, make_buffer(desc, false));
    outputs.push_back(std::move(buffer));
  }
  std::erase_if(candidates, [&](Candidate& candidate) {
    const Status status = prepare(problem, constants, candidate);
    if (!status.is_ok()) rejected.push_back(fmt::format("{}: {}", candidate.tactic->name, status.message()));
    return !status.is_ok();
  });

  std::vector<const void*> input_pointers(inputs.size());
  std::vector<void*> output_pointers;
  for (const OperandBuffer& buffer : outputs) output_pointers.push_back(buffer.first);
  std::atomic<uint32_t> faults{0};
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round <= kRounds; ++round) {  // round 0 warms up
    for (Candidate& candidate : candidates) {
      if (candidate.dropped) continue;
      for (size_t i = 0; i < inputs.size(); ++i) input_pointers[i] = candidate.consumed[i] ? nullptr : inputs[i].first;
      const kernels::Operands operands{input_pointers.data(), output_pointers.data(), candidate.packed.data(),
                                       candidate.workspace.data(), &faults};
      double round_best = std::numeric_limits<double>::infinity(), round_spent = 0;
      do {
        if (options_.cold_weights) flush_from_caches(candidate.packed.data(), candidate.packed.size_bytes());
        const double start = now_s();
        team_->run([&](Worker& worker) {
          candidate.kernel->launch(operands, worker);
          worker.barrier();
        });
        const double ms = (now_s() - start) * 1e3;
        round_best = std::min(round_best, ms);
        round_spent += ms;
      } while (round > 0 && round_spent < kMinRoundMs);
      if (round == 0) continue;
      candidate.best_ms = std::min(candidate.best_ms, round_best);
      candidate.spent_ms += round_spent;
      if (candidate.spent_ms > kMaxCandidateMs && round >= kRoundsBeforeDropping) candidate.dropped = true;
    }
    for (const Candidate& candidate : candidates) best = std::min(best, candidate.best_ms);
    if (round >= kRoundsBeforeDropping) {
      for (Candidate& candidate : candidates) candidate.dropped |= candidate.best_ms > best * kHopeless;
    }
  }
  return Status::ok();
}

}  // namespace flywheel::tune
