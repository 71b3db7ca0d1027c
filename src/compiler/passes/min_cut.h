// SPDX-License-Identifier: Apache-2.0
// Minimum s-t cut (Dinic): two-way labelling at the lowest total cost, as the layout pass needs it. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flywheel::passes {

class MinCut {
 public:
  static constexpr int64_t kInfinite = int64_t{1} << 60;

  MinCut();
  int source() const { return 0; }
  int sink() const { return 1; }
  int add_vertex();
  // Costs `cost` when `from` ends on the source's side and `to` on the sink's.
  void add_edge(int from, int to, int64_t cost);
  // For each vertex whether it lies on the source's side; of all minimum cuts the one with the smallest such side. Call
  // once.
  std::vector<bool> solve();

 private:
  struct Edge {
    int to;
    int64_t capacity;
  };
  bool find_levels();
  int64_t push(int vertex, int64_t limit);

  std::vector<Edge> edges_;  // 2k and 2k+1 are each other's reverse
  std::vector<std::vector<int>> out_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace flywheel::passes
