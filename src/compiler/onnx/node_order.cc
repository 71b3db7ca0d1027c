// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/node_order.h"

#include <fmt/format.h>

#include <map>
#include <queue>

#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

using Reads = std::set<std::string, std::less<>>;

// What a subgraph reads and does not give itself.
void collect_captures(const onnx_pb::GraphProto& graph, Reads* reads) {
  Reads inside;
  for (const auto& node : graph.node()) collect_reads(node, &inside);
  for (const auto& output : graph.output()) inside.insert(output.name());
  for (const auto& input : graph.input()) inside.erase(input.name());
  for (const auto& tensor : graph.initializer()) inside.erase(tensor.name());
  for (const auto& node : graph.node()) {
    for (const auto& output : node.output()) inside.erase(output);
  }
  reads->merge(inside);
}

std::string describe(const onnx_pb::NodeProto& node, const std::string& source) {
  return fmt::format("node '{}' ({})", printable(source), printable(node.op_type()));
}

// Nodes of one cycle among those that could not be ordered.
Status cycle_message(NodeList nodes, std::span<const std::string> sources, const std::vector<std::vector<int>>& needs,
                     const std::vector<bool>& done) {
  int at = 0;
  while (done[at]) ++at;
  std::vector<int> path;
  std::map<int, size_t> position;
  while (position.emplace(at, path.size()).second) {
    path.push_back(at);
    for (int need : needs[at]) {
      if (!done[need]) {
        at = need;
        break;
      }
    }
  }
  std::string text;
  constexpr size_t kShown = 8;
  const size_t begin = position[at];
  for (size_t i = begin; i < path.size() && i < begin + kShown; ++i) {
    text += fmt::format("{}{}", i == begin ? "" : " needs ", describe(*nodes[path[i]], sources[path[i]]));
  }
  if (path.size() - begin > kShown) text += " needs ...";
  return invalid_argument(fmt::format("the graph has a cycle: {} needs the first", text));
}

}  // namespace

void collect_reads(const onnx_pb::NodeProto& node, Reads* reads) {
  for (const auto& input : node.input()) {
    if (!input.empty()) reads->insert(input);
  }
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) collect_captures(attribute.g(), reads);
    for (const auto& graph : attribute.graphs()) collect_captures(graph, reads);
  }
}

Result<std::vector<int>> order_nodes(NodeList nodes, std::span<const std::string> sources,
                                     const std::function<Known(std::string_view)>& known) {
  const int count = static_cast<int>(nodes.size());
  std::map<std::string_view, int> producers;
  for (int i = 0; i < count; ++i) {
    for (const auto& output : nodes[i]->output()) {
      if (output.empty()) continue;
      const auto [it, is_new] = producers.emplace(output, i);
      if (!is_new || known(output) == Known::kHere) {
        const std::string other =
            is_new ? "an input or initializer" : describe(*nodes[it->second], sources[it->second]);
        return invalid_argument(fmt::format("{} gives '{}', which {} gives already; each name may be given once",
                                            describe(*nodes[i], sources[i]), printable(output), other));
      }
    }
  }

  std::vector<std::vector<int>> needs(nodes.size()), users(nodes.size());
  std::vector<int> waiting(nodes.size());
  for (int i = 0; i < count; ++i) {
    Reads reads;
    collect_reads(*nodes[i], &reads);
    for (const auto& name : reads) {
      const auto it = producers.find(name);
      if (it == producers.end()) continue;
      needs[i].push_back(it->second);
      users[it->second].push_back(i);
      ++waiting[i];
    }
    for (const auto& name : nodes[i]->input()) {
      if (name.empty() || producers.contains(name) || known(name) != Known::kNo) continue;
      return invalid_argument(fmt::format("{} reads '{}', which no input, initializer or node gives",
                                          describe(*nodes[i], sources[i]), printable(name)));
    }
  }

  std::priority_queue<int, std::vector<int>, std::greater<>> ready;  // the file's order among those that may come next
  for (int i = 0; i < count; ++i) {
    if (waiting[i] == 0) ready.push(i);
  }
  std::vector<int> order;
  std::vector<bool> done(nodes.size());
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    done[i] = true;
    order.push_back(i);
    for (int user : users[i]) {
      if (--waiting[user] == 0) ready.push(user);
    }
  }
  if (order.size() != nodes.size()) return cycle_message(nodes, sources, needs, done);
  return order;
}

}  // namespace flywheel::onnx_import
