// SPDX-License-Identifier: Apache-2.0
// The compiler's graph: typed SSA over tensors with symbolic shapes. The importer builds it, passes rewrite it,
// lowering reads it.
//
// A Value is produced once: by a node, as a graph input, or as a constant. Nodes are kept in topological order.
// Everything is owned by its Graph; pointers stay valid until the thing is erased. Not thread-safe.
//
// Two dims that inference needs to be equal but cannot prove so (two symbols, say) become an entry of
// Graph::assumptions, which lowering hands to the engine to test when shapes are bound.
//
// Layout: tensors are row-major as their shape says. The NHWC pass gives convolutions, pools and resizes the attribute
// layout="NHWC" and makes layout changes explicit Transpose nodes; there is no hidden layout.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "flywheel/dtype.h"
#include "flywheel/status.h"
#include "kernels/program.h"
#include "tensor/dim_expr.h"
#include "tensor/shape.h"

namespace flywheel::ir {

class Graph;
class Node;

// Longer integer vectors are data, not shapes: Value::elements never holds more.
inline constexpr int64_t kMaxKnownElements = 64;

// Immutable tensor data; copies share the bytes. `data` may point into a mapped file or a parsed message that it keeps
// alive.
struct ConstTensor {
  DType dtype = DType::kFloat32;
  Dims dims;
  std::shared_ptr<const std::byte> data;

  int64_t elements() const { return element_count(dims); }
  size_t size_bytes() const { return static_cast<size_t>(elements()) * dtype_size(dtype); }
  template <class T>
  std::span<const T> as() const {  // REQUIRES: T fits dtype
    return {reinterpret_cast<const T*>(data.get()), static_cast<size_t>(elements())};
  }
  template <class T>
  static ConstTensor from(DType dtype, Dims dims, std::span<const T> values);
  static ConstTensor zeros(DType dtype, Dims dims);
  bool same_content(const ConstTensor& other) const;
  // Element i as double / int64, whatever the type.
  double as_double(int64_t i) const;
  int64_t as_int(int64_t i) const;
};

using Attribute =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, std::vector<std::string>,
                 SymShape, ConstTensor, kernels::Program, std::shared_ptr<Graph>>;

class Value {
 public:
  std::string name;  // unique in the graph; ONNX's where there is one
  DType dtype = DType::kFloat32;
  SymShape shape;
  std::optional<ConstTensor> constant;
  // For small integer tensors (rank 0 or 1) whose elements are known as expressions of dims: what Shape, Gather, Concat
  // ... of shapes give. Filled by shape inference. Constants have it implicitly: use known_elements().
  std::optional<std::vector<DimExpr>> elements;

  Node* producer() const { return producer_; }
  int producer_output() const { return producer_output_; }  // which output of producer()
  bool is_constant() const { return constant.has_value(); }
  bool is_graph_input() const { return producer_ == nullptr && !constant; }
  // (node, operand index) pairs in node order; a node that uses the value twice appears twice.
  struct Use {
    Node* node;
    int operand;
  };
  const std::vector<Use>& uses() const { return uses_; }
  bool is_graph_output() const { return graph_output_count_ > 0; }
  // The only user, or null when there are none, several, or it is a graph output.
  Node* single_user() const;
  // Elements as expressions, from `elements` or from an integer constant of rank <= 1 with at most 64 elements.
  std::optional<std::vector<DimExpr>> known_elements() const;
  int rank() const { return static_cast<int>(shape.size()); }

 private:
  friend class Graph;
  friend class Node;
  Node* producer_ = nullptr;
  int producer_output_ = 0;
  int graph_output_count_ = 0;
  Graph* graph_ = nullptr;
  size_t slot_ = 0;  // in Graph::values_
  std::vector<Use> uses_;
};

class Node {
 public:
  const std::string& op() const { return op_; }                  // an entry of ops/op_list.inc
  const std::vector<Value*>& inputs() const { return inputs_; }  // null: an optional input that is absent
  const std::vector<Value*>& outputs() const { return outputs_; }
  Value* input(size_t i) const { return i < inputs_.size() ? inputs_[i] : nullptr; }
  Value* output(size_t i = 0) const { return i < outputs_.size() ? outputs_[i] : nullptr; }
  std::map<std::string, Attribute, std::less<>> attributes;
  Graph* graph() const { return graph_; }
  std::vector<std::string> sources;  // names of the ONNX nodes that this computes, in graph order

  template <class T>
  const T* find(std::string_view name) const {
    auto it = attributes.find(name);
    return it == attributes.end() ? nullptr : std::get_if<T>(&it->second);
  }
  int64_t int_or(std::string_view name, int64_t fallback) const;
  double float_or(std::string_view name, double fallback) const;
  std::string string_or(std::string_view name, std::string fallback) const;
  std::vector<int64_t> ints_or(std::string_view name, std::vector<int64_t> fallback) const;
  // "Conv 'conv1' (%x, %w)": how messages name it.
  std::string describe() const;

 private:
  friend class Graph;
  std::string op_;
  Graph* graph_ = nullptr;
  int64_t order_ = 0;  // ascends along the list
  std::vector<Value*> inputs_, outputs_;
  std::list<std::unique_ptr<Node>>::iterator position_;
};

class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::string name = "graph";
  // The outer graph's values that a subgraph may use are found by walking up. A subgraph belongs to one node's
  // attribute and does not outlive its parent.
  Graph* parent = nullptr;

  // Pairs of dims that must turn out equal at run time. assume() drops what is there already and what holds anyway.
  const std::vector<std::pair<DimExpr, DimExpr>>& assumptions() const { return assumptions_; }
  void assume(const DimExpr& a, const DimExpr& b);
  bool assumes(const DimExpr& a, const DimExpr& b) const;
  void keep_assumptions(size_t count);  // forgets those after the first `count`

  // Values. Names are made unique by a suffix.
  Value* add_input(std::string_view name, DType dtype, SymShape shape);
  Value* add_constant(std::string_view name, ConstTensor tensor);
  void add_output(Value* value, std::string_view output_name);
  const std::vector<Value*>& inputs() const { return inputs_; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  void replace_output(size_t i, Value* value);
  Value* find_value(std::string_view name) const;  // here or in a parent; null when absent
  void rename(Value* value, std::string_view name);

  // Nodes, in topological order. New nodes go at the end, or before `before`. Outputs are made with empty type and
  // shape, to be filled by ops::infer(); their names derive from `output_names` or, when absent, from the op.
  Node* add_node(std::string_view op, std::vector<Value*> inputs, int output_count, Node* before = nullptr,
                 std::vector<std::string> output_names = {});
  const std::list<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  Node* next(const Node* node) const;  // null at the end

  void set_input(Node* node, size_t operand, Value* value);  // grows the operand list when needed
  void remove_input(Node* node, size_t operand);
  // All uses of `from`, graph outputs included, become uses of `to`. If `from` was a graph output, `to` carries it from
  // now on.
  void replace_uses(Value* from, Value* to);
  // REQUIRES: no output is used. Its outputs go with it.
  void erase(Node* node);
  // Erases nodes and constants that nothing uses; returns how many.
  int erase_dead();
  // REQUIRES: acyclic. Restores topological order after rewiring that moved a use before its producer.
  void sort();

  std::vector<Value*> values() const;  // inputs, constants, node outputs: deterministic order

 private:
  Value* new_value(std::string_view wanted_name);
  std::string unique_name(std::string_view wanted_name);
  void delete_value(Value* value);
  void renumber();
  static void add_use(Value* value, Node* node, size_t operand);
  static void drop_use(Value* value, Node* node, size_t operand);
  bool is_own_use(const Value::Use& use) const { return use.node->graph_ == this; }
  static bool use_before(const Value::Use& a, const Value::Use& b);

  std::list<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Value>> values_;  // erased ones leave a null, until delete_value() closes the gaps
  size_t erased_values_ = 0;
  std::map<std::string, Value*, std::less<>> by_name_;
  std::map<std::string, int64_t, std::less<>> next_suffix_;  // so that many equal names stay cheap
  std::vector<std::pair<DimExpr, DimExpr>> assumptions_;
  std::set<std::pair<DimExpr, DimExpr>> assumption_set_;
  std::vector<Value*> inputs_, outputs_;
  std::vector<std::string> output_names_;
};

template <class T>
ConstTensor ConstTensor::from(DType dtype, Dims dims, std::span<const T> values) {
  std::shared_ptr<std::byte> bytes(
      static_cast<std::byte*>(::operator new (values.size_bytes() + 1, std::align_val_t{64})),
      [](std::byte* p) { ::operator delete (p, std::align_val_t{64}); });
  std::copy_n(reinterpret_cast<const std::byte*>(values.data()), values.size_bytes(), bytes.get());
  return {dtype, std::move(dims), std::move(bytes)};
}

}  // namespace flywheel::ir
