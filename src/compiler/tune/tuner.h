// SPDX-License-Identifier: Apache-2.0
// Chooses a tactic for a problem: lists those that accept it, measures them on this machine with the team that will run
// them, keeps the times in a cache. Equal problems are measured once. One thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "base/thread_team.h"
#include "compiler/tune/timing_cache.h"
#include "kernels/tactic.h"

namespace flywheel::tune {

struct TunerOptions {
  bool measure = true;       // false: the first tactic of the list that accepts
  double time_budget_s = 0;  // 0: unlimited. When it is used up, the rest is chosen by list order
  // Weights are flushed from the caches before each run, as they would be in a model whose weights exceed the
  // last-level cache.
  bool cold_weights = false;
};

struct Choice {
  const kernels::Tactic* tactic = nullptr;
  double ms = 0;  // 0: not measured
  bool from_cache = false;
  std::vector<std::string> rejected;  // "<tactic>: <why it does not apply>"
};

class Tuner {
 public:
  // `cache` outlives the tuner and receives what is measured.
  static Result<std::unique_ptr<Tuner>> create(const Machine& machine, int threads, const TunerOptions& options,
                                               TimingCache* cache);

  // `constants[i]`: data of input i, null when it is computed.
  Result<Choice> choose(const kernels::Problem& problem, std::span<const void* const> constants);

 private:
  struct Candidate;
  Tuner(const Machine& machine, const TunerOptions& options, TimingCache* cache)
      : machine_(machine), options_(options), cache_(cache) {}
  bool budget_left() const;
  Status prepare(const kernels::Problem& problem, std::span<const void* const> constants, Candidate& candidate);
  // Removes those that cannot be prepared here.
  Status measure(const kernels::Problem& problem, std::span<const void* const> constants,
                 std::vector<Candidate>& candidates, std::vector<std::string>& rejected);

  Machine machine_;
  TunerOptions options_;
  TimingCache* cache_;
  std::unique_ptr<ThreadTeam> team_;
  double started_s_ = 0;
};

}  // namespace flywheel::tune
