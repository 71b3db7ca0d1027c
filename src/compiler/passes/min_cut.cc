// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/min_cut.h"

#include <algorithm>

namespace flywheel::passes {

MinCut::MinCut() : out_(2) {}

int MinCut::add_vertex() {
  out_.emplace_back();
  return static_cast<int>(out_.size()) - 1;
}

void MinCut::add_edge(int from, int to, int64_t cost) {
  if (from == to || cost <= 0) return;
  out_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, cost});
  out_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinCut::find_levels() {
  level_.assign(out_.size(), -1);
  level_[0] = 0;
  std::vector<int> queue{source()};
  for (size_t head = 0; head < queue.size(); ++head) {
    const int vertex = queue[head];
    for (int e : out_[static_cast<size_t>(vertex)]) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.capacity == 0 || level_[static_cast<size_t>(edge.to)] >= 0) continue;
      level_[static_cast<size_t>(edge.to)] = level_[static_cast<size_t>(vertex)] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[1] >= 0;
}

// One augmenting path of the level graph, walked with an explicit stack: graphs can be thousands of nodes deep.
int64_t MinCut::push(int vertex, int64_t limit) {
  std::vector<int> path;  // edges
  int at = vertex;
  while (at != sink()) {
    size_t& next = next_[static_cast<size_t>(at)];
    const std::vector<int>& out = out_[static_cast<size_t>(at)];
    while (next < out.size()) {
      const Edge& edge = edges_[static_cast<size_t>(out[next])];
      if (edge.capacity > 0 && level_[static_cast<size_t>(edge.to)] == level_[static_cast<size_t>(at)] + 1) break;
      ++next;
    }
    if (next < out.size()) {
      path.push_back(out[next]);
      at = edges_[static_cast<size_t>(out[next])].to;
      continue;
    }
    if (path.empty()) return 0;
    at = edges_[static_cast<size_t>(path.back() ^ 1)].to;  // a dead end: back, and past that edge
    path.pop_back();
    ++next_[static_cast<size_t>(at)];
  }
  for (int e : path) limit = std::min(limit, edges_[static_cast<size_t>(e)].capacity);
  for (int e : path) {
    edges_[static_cast<size_t>(e)].capacity -= limit;
    edges_[static_cast<size_t>(e ^ 1)].capacity += limit;
  }
  return limit;
}

std::vector<bool> MinCut::solve() {
  // Graphs of models take a handful of rounds; one made to take very many gets a valid cut that is not the smallest.
  constexpr int kMostRounds = 2000;
  for (int round = 0; find_levels(); ++round) {
    if (round == kMostRounds) {
      std::vector<bool> all(out_.size(), true);
      all[static_cast<size_t>(sink())] = false;
      return all;
    }
    next_.assign(out_.size(), 0);
    while (push(source(), kInfinite) > 0) {}
  }
  std::vector<bool> side(out_.size());
  for (size_t i = 0; i < side.size(); ++i) side[i] = level_[i] >= 0;
  return side;
}

}  // namespace flywheel::passes
