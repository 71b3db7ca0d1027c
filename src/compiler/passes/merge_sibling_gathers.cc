// SPDX-License-Identifier: Apache-2.0
// merge_sibling_gathers: rows of several constant tables that are concatenated side by side (the embeddings of a
// recommender) are taken by one Gather from one table. Indices are moved to their table's part of it; one that its own
// table does not have is moved out of the joined table, too, so that it is still found out at run time.
//   Concat(..., Gather(t0, i0), Gather(t1, i1), ...)
// with t [R, D], i [B], a part being [B, D], or [B, 1, D] by a Reshape.
#include <algorithm>

#include "compiler/ops/infer.h"
#include "compiler/passes/constant_eval.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

constexpr size_t kFewest = 4;                   // parts that are worth it
constexpr double kMostBytes = 4.0 * (1 << 30);  // of joined tables: they are copied
constexpr int64_t kNowhere = int64_t{1} << 40;  // larger than any table

// The Gather that makes a part, through the Reshape to [B, 1, D] alone; null for another part.
Node* gather_of(const Value& part, const Node& concat) {
  if (part.single_user() != &concat) return nullptr;
  Node* gather = part.producer();
  if (gather && gather->op() == "Reshape") {
    const Value* rows = gather->input(0);
    const bool adds_dim = part.rank() == 3 && rows->rank() == 2 && part.shape[0] == rows->shape[0] &&
                          part.shape[1] == DimExpr(1) && part.shape[2] == rows->shape[1];
    if (!adds_dim || !rows->single_user()) return nullptr;
    gather = rows->producer();
  }
  if (!gather || gather->op() != "Gather" || gather->int_or("axis", 0) != 0) return nullptr;
  const Value &table = *gather->input(0), &indices = *gather->input(1);
  if (!table.is_constant() || !table.single_user() || table.rank() != 2 || indices.rank() != 1) return nullptr;
  if (indices.dtype != DType::kInt64 && indices.dtype != DType::kInt32) return nullptr;
  return gather;
}

bool same_kind(const Node& a, const Node& b) {
  return a.input(0)->dtype == b.input(0)->dtype && a.input(0)->shape[1] == b.input(0)->shape[1] &&
         a.input(1)->dtype == b.input(1)->dtype && a.output()->shape == b.output()->shape;
}

// The column `i` of x when the value is Reshape(Slice(x, i..i+1)); null otherwise.
Value* column_of(const Value& indices, int64_t& column) {
  const Node* reshape = made_by(&indices, "Reshape");
  const Node* slice = reshape ? made_by(reshape->input(0), "Slice") : nullptr;
  if (!slice || slice->input(0)->rank() != 2 || slice->output()->shape[1] != DimExpr(1)) return nullptr;
  std::optional<SymShape> starts = ops::dims_attribute(*slice, "starts");
  if (!starts || starts->size() != 1 || !(*starts)[0].constant() ||
      slice->ints_or("axes", {}) != std::vector<int64_t>{1} || slice->ints_or("steps", {}) != std::vector<int64_t>{1} ||
      slice->input(0)->shape[0] != indices.shape[0]) {
    return nullptr;
  }
  column = *(*starts)[0].constant();
  return column < 0 ? nullptr : slice->input(0);
}

class Merger {
 public:
  Merger(Graph& graph, Node* before, std::vector<Node*> gathers)
      : graph_(graph), before_(before), gathers_(std::move(gathers)) {}

  // [B, N, D].
  Result<Value*> run() {
    const Value& first_table = *gathers_[0]->input(0);
    std::vector<ir::ConstTensor> tables;
    std::vector<double> rows, offsets;
    double total = 0;
    for (const Node* gather : gathers_) {
      tables.push_back(*gather->input(0)->constant);
      rows.push_back(static_cast<double>(tables.back().dims[0]));
      offsets.push_back(total);
      total += rows.back();
    }
    FW_ASSIGN_OR_RETURN(Value * indices, joined_indices());
    FW_ASSIGN_OR_RETURN(indices, add("Cast", {indices}, {{"to", static_cast<int64_t>(DType::kInt64)}}));
    FW_ASSIGN_OR_RETURN(Value * sizes, row_constant("table_sizes", rows));
    FW_ASSIGN_OR_RETURN(Value * starts, row_constant("table_starts", offsets));
    Value* zero = add_scalar(graph_, DType::kInt64, 0, "zero");
    Value* nowhere = add_scalar(graph_, DType::kInt64, static_cast<double>(kNowhere), "nowhere");
    FW_ASSIGN_OR_RETURN(Value * from_end, add("Less", {indices, zero}));
    FW_ASSIGN_OR_RETURN(Value * wrapped, add("Add", {indices, sizes}));
    FW_ASSIGN_OR_RETURN(Value * own, add("Where", {from_end, wrapped, indices}));
    FW_ASSIGN_OR_RETURN(Value * below, add("Less", {own, zero}));
    FW_ASSIGN_OR_RETURN(Value * above, add("GreaterOrEqual", {own, sizes}));
    FW_ASSIGN_OR_RETURN(Value * outside, add("Or", {below, above}));
    FW_ASSIGN_OR_RETURN(Value * moved, add("Add", {own, starts}));
    FW_ASSIGN_OR_RETURN(Value * places, add("Where", {outside, nowhere, moved}));
    Value* table = graph_.add_constant(first_table.name + ".joined", concatenated(tables, 0));
    return add("Gather", {table, places}, {{"axis", int64_t{0}}});
  }

 private:
  Result<Value*> add(std::string_view op, std::vector<Value*> inputs, Attributes attributes = {}) {
    if (op == "Cast" && inputs[0]->dtype == DType::kInt64) return inputs[0];
    FW_ASSIGN_OR_RETURN(Node * node, ops::add(graph_, op, std::move(inputs), std::move(attributes), before_, 1, {}));
    for (const Node* gather : gathers_) add_sources(*node, gather->sources);
    return node->output();
  }

  Result<Value*> row_constant(std::string_view name, const std::vector<double>& values) {
    FW_ASSIGN_OR_RETURN(ir::ConstTensor tensor,
                        from_doubles(DType::kInt64, {static_cast<int64_t>(values.size())}, values));
    return graph_.add_constant(name, std::move(tensor));
  }

  // [B, N]: columns that lie side by side are taken at once.
  Result<Value*> joined_indices() {
    Value* from = nullptr;
    int64_t first = 0;
    bool neighbours = true;
    for (size_t i = 0; i < gathers_.size() && neighbours; ++i) {
      int64_t column = 0;
      Value* x = column_of(*gathers_[i]->input(1), column);
      if (i == 0) from = x, first = column;
      neighbours = x && x == from && column == first + static_cast<int64_t>(i);
    }
    const auto count = static_cast<int64_t>(gathers_.size());
    if (neighbours && constant_dim(*from, 1) == count) return from;
    if (neighbours) {
      return add("Slice", {from},
                 {{"starts", SymShape{first}},
                  {"ends", SymShape{first + count}},
                  {"axes", std::vector<int64_t>{1}},
                  {"steps", std::vector<int64_t>{1}}});
    }
    std::vector<Value*> columns;
    for (const Node* gather : gathers_) {
      Value* indices = gather->input(1);
      FW_ASSIGN_OR_RETURN(indices, add("Reshape", {indices}, {{"shape", SymShape{indices->shape[0], 1}}}));
      columns.push_back(indices);
    }
    return add("Concat", std::move(columns), {{"axis", int64_t{1}}});
  }

  Graph& graph_;
  Node* before_;
  std::vector<Node*> gathers_;
};

Result<bool> merge_in(Graph& graph, Node* concat) {
  const int rank = concat->output()->rank();
  if ((rank != 2 && rank != 3) || normalized_axis(concat->int_or("axis", 0), static_cast<size_t>(rank)) != 1)
    return false;
  std::vector<Value*> parts;
  bool merged = false;
  for (size_t i = 0; i < concat->inputs().size();) {
    std::vector<Node*> run;
    double bytes = 0;
    for (size_t k = i; k < concat->inputs().size(); ++k) {
      Node* gather = gather_of(*concat->input(k), *concat);
      if (!gather || (!run.empty() && !same_kind(*run.front(), *gather))) break;
      bytes += static_cast<double>(gather->input(0)->constant->size_bytes());
      run.push_back(gather);
    }
    if (run.size() < kFewest || bytes > kMostBytes) {
      const size_t kept = std::max<size_t>(run.size(), 1);
      parts.insert(parts.end(), concat->inputs().begin() + static_cast<ptrdiff_t>(i),
                   concat->inputs().begin() + static_cast<ptrdiff_t>(i + kept));
      i += kept;
      continue;
    }
    FW_ASSIGN_OR_RETURN(Value * rows, Merger(graph, concat, run).run());
    if (rank == 2) {
      SymShape flat = run.front()->output()->shape;
      flat[1] = flat[1] * DimExpr(static_cast<int64_t>(run.size()));
      FW_ASSIGN_OR_RETURN(rows, add_reshape(graph, concat, rows, flat));
    }
    parts.push_back(rows);
    merged = true;
    i += run.size();
  }
  if (!merged) return false;
  FW_ASSIGN_OR_RETURN(Value * made, add_before(graph, concat, "Concat", std::move(parts), concat->attributes));
  FW_RETURN_IF_ERROR(replace_node(graph, concat, made));
  return true;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false;
  for (Node* node : node_list(graph)) {
    if (node->op() != "Concat") continue;
    FW_ASSIGN_OR_RETURN(bool merged, merge_in(graph, node));
    changed |= merged;
  }
  if (changed) graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kMergeSiblingGathers{"merge_sibling_gathers", run, false};

}  // namespace flywheel::passes
