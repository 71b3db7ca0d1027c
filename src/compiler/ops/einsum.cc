// SPDX-License-Identifier: Apache-2.0
// Einsum{equation}: "bij,bjk->bik", with "..." and without "->" as ONNX and NumPy define. It decomposes to sums over
// labels that one operand alone has, products pair by pair from the left (MatMul where a label is summed over, else
// Mul), and a last transpose. A label twice in one operand (a diagonal) has no form here.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/ops/decompose.h"
#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

using Labels = std::vector<int>;  // letters as characters; dims of "..." as kEllipsis - k, k = 0 for the last one

constexpr int kEllipsis = 1000;

struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

bool contains(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// `ellipsis`: how many dims "..." stands for.
Result<Labels> read_term(std::string_view term, size_t ellipsis) {
  Labels labels;
  bool seen_ellipsis = false;
  for (size_t i = 0; i < term.size(); ++i) {
    char c = term[i];
    if (c == ' ') continue;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      labels.push_back(c);
    } else if (term.substr(i, 3) == "..." && !seen_ellipsis) {
      for (size_t k = ellipsis; k-- > 0;) labels.push_back(kEllipsis - static_cast<int>(k));
      seen_ellipsis = true;
      i += 2;
    } else {
      return invalid_argument(fmt::format("attribute equation has the term \"{}\"", term));
    }
  }
  return labels;
}

Result<Equation> read_equation(const ir::Node& node) {
  std::string text = node.string_or("equation", "");
  size_t arrow = text.find("->");
  std::string_view left = std::string_view(text).substr(0, arrow);
  std::vector<std::string_view> terms;
  for (size_t start = 0; start <= left.size();) {
    size_t end = std::min(left.find(',', start), left.size());
    terms.push_back(left.substr(start, end - start));
    start = end + 1;
  }
  if (terms.size() != node.inputs().size()) {
    return invalid_argument(fmt::format("attribute equation \"{}\" has {} terms for {} operands", text, terms.size(),
                                        node.inputs().size()));
  }
  Equation equation;
  std::map<int, int> uses;
  size_t widest = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!node.input(i)) return invalid_argument(fmt::format("operand {} is absent", i));
    FW_ASSIGN_OR_RETURN(Labels letters, read_term(terms[i], 0));
    size_t rank = node.input(i)->shape.size();
    bool open = terms[i].find("...") != std::string_view::npos;
    if (letters.size() > rank || (!open && letters.size() != rank)) {
      return invalid_argument(fmt::format("the term \"{}\" of its equation does not fit shape {}", terms[i],
                                          sym_shape_to_string(node.input(i)->shape)));
    }
    if (open) widest = std::max(widest, rank - letters.size());
    FW_ASSIGN_OR_RETURN(Labels labels, read_term(terms[i], rank - letters.size()));
    for (int label : labels) ++uses[label];
    equation.operands.push_back(std::move(labels));
  }
  if (arrow != std::string::npos) {
    std::string_view term = std::string_view(text).substr(arrow + 2);
    FW_ASSIGN_OR_RETURN(equation.result, read_term(term, widest));
    std::set<int> seen;
    for (int label : equation.result) {
      if (!uses.contains(label) || !seen.insert(label).second) {
        return invalid_argument(
            fmt::format("the result \"{}\" of its equation repeats a label or has an unknown one", term));
      }
    }
  } else {  // the ellipsis, then every letter that occurs once
    for (size_t k = widest; k-- > 0;) equation.result.push_back(kEllipsis - static_cast<int>(k));
    for (const auto& [label, count] : uses) {
      if (count == 1 && label < 256) equation.result.push_back(label);
    }
  }
  return equation;
}

Status infer_einsum(ir::Node& node) {
  FW_RETURN_IF_ERROR(require_same_dtype(node));
  FW_ASSIGN_OR_RETURN(Equation equation, read_equation(node));
  std::map<int, DimExpr> extents;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    for (size_t d = 0; d < equation.operands[i].size(); ++d) {
      const DimExpr& dim = node.input(i)->shape[d];
      auto [it, is_new] = extents.emplace(equation.operands[i][d], dim);
      if (is_new || dim == DimExpr(1)) continue;
      if (it->second != DimExpr(1)) FW_RETURN_IF_ERROR(require_equal(node, it->second, dim, "extents of one label"));
      if (it->second == DimExpr(1) || dim.is_constant()) it->second = dim;
    }
  }
  SymShape shape;
  for (int label : equation.result) shape.push_back(extents.at(label));
  set_output(node, 0, node.input(0)->dtype, std::move(shape));
  return Status::ok();
}

struct Term {
  ir::Value* value;
  Labels labels;
};

Status sum_out(Decomposer& d, Term& term, const std::set<int>& keep) {
  std::vector<int64_t> axes;
  Labels left;
  for (size_t i = 0; i < term.labels.size(); ++i) {
    if (keep.contains(term.labels[i])) {
      left.push_back(term.labels[i]);
    } else {
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  if (axes.empty()) return Status::ok();
  FW_ASSIGN_OR_RETURN(term.value,
                      d.add("ReduceSum", {term.value}, {{"axes", std::move(axes)}, {"keepdims", int64_t{0}}}));
  term.labels = std::move(left);
  return Status::ok();
}

Status put_in_order(Decomposer& d, Term& term, const Labels& order) {
  std::vector<int64_t> perm;
  for (int label : order)
    perm.push_back(std::find(term.labels.begin(), term.labels.end(), label) - term.labels.begin());
  FW_ASSIGN_OR_RETURN(term.value, d.transpose(term.value, std::move(perm)));
  term.labels = order;
  return Status::ok();
}

Labels joined(std::initializer_list<Labels> parts) {
  Labels out;
  for (const Labels& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

// The product of two terms that have summed out what only they have; labels outside `keep` that both have are
// contracted.
Result<Term> multiply(Decomposer& d, Term a, Term b, const std::set<int>& keep) {
  Labels batch, contracted, rows, columns;
  for (int label : a.labels) {
    if (!contains(b.labels, label)) {
      rows.push_back(label);
    } else {
      (keep.contains(label) ? batch : contracted).push_back(label);
    }
  }
  for (int label : b.labels) {
    if (!contains(a.labels, label)) columns.push_back(label);
  }
  FW_RETURN_IF_ERROR(put_in_order(d, a, joined({batch, rows, contracted})));
  FW_RETURN_IF_ERROR(put_in_order(d, b, joined({batch, contracted, columns})));
  Term product{nullptr, joined({batch, rows, columns})};
  const SymShape &sa = a.value->shape, &sb = b.value->shape;
  const size_t n = batch.size();
  SymShape left(sa.begin(), sa.begin() + static_cast<ptrdiff_t>(n)),
      right(sb.begin(), sb.begin() + static_cast<ptrdiff_t>(n));
  if (contracted.empty()) {
    left.insert(left.end(), sa.begin() + static_cast<ptrdiff_t>(n), sa.end());
    left.insert(left.end(), columns.size(), DimExpr(1));
    right.insert(right.end(), rows.size(), DimExpr(1));
    right.insert(right.end(), sb.begin() + static_cast<ptrdiff_t>(n), sb.end());
    FW_ASSIGN_OR_RETURN(ir::Value * x, d.reshape(a.value, left));
    FW_ASSIGN_OR_RETURN(ir::Value * y, d.reshape(b.value, right));
    FW_ASSIGN_OR_RETURN(product.value, d.add("Mul", {x, y}));
    return product;
  }
  for (size_t i = 0; i < contracted.size(); ++i) {
    const DimExpr &p = sa[n + rows.size() + i], &q = sb[n + i];
    if (p != q && (p == DimExpr(1) || q == DimExpr(1)))
      return unsupported("its equation sums over a label that broadcasts");
  }
  left.push_back(ops::product(sa, n, n + rows.size()));
  left.push_back(ops::product(sa, n + rows.size()));
  right.push_back(ops::product(sb, n, n + contracted.size()));
  right.push_back(ops::product(sb, n + contracted.size()));
  FW_ASSIGN_OR_RETURN(ir::Value * x, d.reshape(a.value, left));
  FW_ASSIGN_OR_RETURN(ir::Value * y, d.reshape(b.value, right));
  FW_ASSIGN_OR_RETURN(ir::Value * z, d.add("MatMul", {x, y}));
  SymShape apart(z->shape.begin(), z->shape.begin() + static_cast<ptrdiff_t>(n));
  apart.insert(apart.end(), sa.begin() + static_cast<ptrdiff_t>(n),
               sa.begin() + static_cast<ptrdiff_t>(n + rows.size()));
  apart.insert(apart.end(), sb.begin() + static_cast<ptrdiff_t>(n + contracted.size()), sb.end());
  FW_ASSIGN_OR_RETURN(product.value, d.reshape(z, std::move(apart)));
  return product;
}

Status decompose_einsum(ir::Graph& graph, ir::Node* node) {
  FW_ASSIGN_OR_RETURN(Equation equation, read_equation(*node));
  std::vector<Term> terms;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    const Labels& labels = equation.operands[i];
    if (std::set<int>(labels.begin(), labels.end()).size() != labels.size())
      return unsupported("its equation takes a diagonal");
    terms.push_back({node->input(i), labels});
  }
  Decomposer d(graph, node);
  auto wanted_after = [&](size_t next) {  // labels that the result or operands from `next` on have
    std::set<int> keep(equation.result.begin(), equation.result.end());
    for (size_t i = next; i < terms.size(); ++i) keep.insert(terms[i].labels.begin(), terms[i].labels.end());
    return keep;
  };
  Term total = terms[0];
  FW_RETURN_IF_ERROR(sum_out(d, total, wanted_after(1)));
  for (size_t i = 1; i < terms.size(); ++i) {
    Term next = terms[i];
    std::set<int> keep = wanted_after(i + 1), keep_next = keep;
    keep_next.insert(total.labels.begin(), total.labels.end());
    FW_RETURN_IF_ERROR(sum_out(d, next, keep_next));
    FW_ASSIGN_OR_RETURN(total, multiply(d, std::move(total), std::move(next), keep));
  }
  FW_RETURN_IF_ERROR(put_in_order(d, total, equation.result));
  if (total.value->shape != node->output()->shape)
    return unsupported("extents of its labels are equal by assumption only");
  return d.replace_with(total.value);
}

}  // namespace

extern const Op kEinsum{"Einsum", 1, -1, 1, 1, {"equation"}, infer_einsum, nullptr, true, decompose_einsum};

}  // namespace flywheel::ops
