// SPDX-License-Identifier: Apache-2.0
// RNN, GRU and LSTM: one product of all steps' inputs with their weights and a Recurrent for each direction. Called
// through import_list.inc.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "compiler/onnx/import_functions.h"
#include "kernels/recurrent/recurrent.h"

namespace flywheel::onnx_import {
namespace {

using kernels::Activation;
using Ints = std::vector<int64_t>;

struct ActivationRow {
  std::string_view name;  // in lower case
  Activation kind;
  int parameters;  // 1: alpha, 2: beta, too
  double alpha, beta;
};
constexpr ActivationRow kActivationRows[] = {
    {"sigmoid", Activation::kSigmoid, 0, 0, 0},
    {"tanh", Activation::kTanh, 0, 0, 0},
    {"relu", Activation::kRelu, 0, 0, 0},
    {"affine", Activation::kAffine, 2, 1, 0},
    {"leakyrelu", Activation::kLeakyRelu, 1, 0.01, 0},
    {"thresholdedrelu", Activation::kThresholdedRelu, 1, 1, 0},
    {"scaledtanh", Activation::kScaledTanh, 2, 1, 1},
    {"hardsigmoid", Activation::kHardSigmoid, 2, 0.2, 0.5},
    {"elu", Activation::kElu, 1, 1, 0},
    {"softsign", Activation::kSoftsign, 0, 0, 0},
    {"softplus", Activation::kSoftplus, 0, 0, 0},
};

struct Functions {
  Ints kinds;
  std::vector<double> alphas, betas;
};

// Three functions for each direction; what a cell does not use is a sigmoid. Parameters are given in order to the
// functions that have them.
Result<std::vector<Functions>> read_activations(NodeContext& node, size_t directions) {
  const std::string& cell = node.op_type();
  const size_t used = cell == "LSTM" ? 3 : cell == "GRU" ? 2 : 1;
  std::vector<std::string> names = node.get_strings("activations").value_or(std::vector<std::string>());
  const std::vector<double> alphas = node.get_floats("activation_alpha").value_or(std::vector<double>()),
                            betas = node.get_floats("activation_beta").value_or(std::vector<double>());
  if (names.empty()) {
    for (size_t d = 0; d < directions; ++d) {
      if (cell != "RNN") names.emplace_back("Sigmoid");
      names.insert(names.end(), cell == "LSTM" ? 2 : 1, "Tanh");
    }
  }
  if (names.size() != used * directions) {
    return invalid_argument(fmt::format("it has {} activations; {} are expected", names.size(), used * directions));
  }
  std::vector<Functions> functions(directions);
  size_t next_alpha = 0, next_beta = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    std::string name = names[i];
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto* row = std::find_if(std::begin(kActivationRows), std::end(kActivationRows),
                                   [&](const ActivationRow& each) { return each.name == name; });
    if (row == std::end(kActivationRows)) return unsupported(fmt::format("its activation '{}' is unknown", names[i]));
    Functions& own = functions[i / used];
    own.kinds.push_back(static_cast<int64_t>(row->kind));
    const bool has_alpha = row->parameters > 0 && next_alpha < alphas.size();
    const bool has_beta = row->parameters > 1 && next_beta < betas.size();
    own.alphas.push_back(has_alpha ? alphas[next_alpha++] : row->alpha);
    own.betas.push_back(has_beta ? betas[next_beta++] : row->beta);
  }
  for (Functions& own : functions) {
    own.kinds.resize(3, static_cast<int64_t>(Activation::kSigmoid));
    own.alphas.resize(3, 0);
    own.betas.resize(3, 0);
  }
  return functions;
}

// What every direction shares, and the shapes of its weights.
class Recurrent {
 public:
  explicit Recurrent(NodeContext& node)
      : node_(node),
        gates_(node.op_type() == "LSTM"  ? 4
               : node.op_type() == "GRU" ? 3
                                         : 1) {}

  Status run() {
    FW_RETURN_IF_ERROR(read());
    std::vector<ir::Value*> all, last, cells;
    for (size_t d = 0; d < directions_; ++d) {
      FW_ASSIGN_OR_RETURN(const std::vector<ir::Value*> made, direction(d));
      FW_ASSIGN_OR_RETURN(ir::Value * y, node_.emit("Unsqueeze", {made[0]}, {{"axes", Ints{1}}}));
      all.push_back(y);
      for (size_t i = 1; i < made.size(); ++i) {
        FW_ASSIGN_OR_RETURN(ir::Value * state, node_.emit("Unsqueeze", {made[i]}, {{"axes", Ints{0}}}));
        (i == 1 ? last : cells).push_back(state);
      }
    }
    // Y [T,D,B,H], states [D,B,H]; with layout 1 the batch comes first.
    FW_RETURN_IF_ERROR(put(0, all, 1, Ints{2, 0, 1, 3}));
    FW_RETURN_IF_ERROR(put(1, last, 0, Ints{1, 0, 2}));
    return cells.empty() ? Status::ok() : put(2, cells, 0, Ints{1, 0, 2});
  }

 private:
  Status read() {
    const std::string way = node_.get_string("direction", "forward");
    if (way != "forward" && way != "reverse" && way != "bidirectional")
      return invalid_argument(fmt::format("its direction is '{}'; expected forward, reverse or bidirectional", way));
    directions_ = way == "bidirectional" ? 2 : 1;
    first_reversed_ = way == "reverse";
    batch_first_ = node_.opset() >= 14 && node_.get_bool("layout", false);
    clip_ = node_.get_float("clip", 0);
    if (!(clip_ >= 0)) return invalid_argument(fmt::format("its clip is {}; expected a positive number", clip_));
    if (node_.op_type() == "LSTM") input_forget_ = node_.get_bool("input_forget", false);
    if (node_.op_type() == "GRU") late_reset_ = node_.get_bool("linear_before_reset", false);
    FW_ASSIGN_OR_RETURN(functions_, read_activations(node_, directions_));
    const ir::Value &w = *node_.input(1), &r = *node_.input(2);
    if (node_.input(0)->rank() != 3 || w.rank() != 3 || r.rank() != 3)
      return invalid_argument("X, W and R have to have rank 3");
    for (size_t i = 0; i < 3; ++i) {
      if (node_.input(i)->dtype != DType::kFloat32)
        return unsupported(fmt::format("it computes in {}; only f32 is supported", dtype_name(node_.input(i)->dtype)));
    }
    const std::optional<int64_t> hidden = r.shape[2].constant();
    if (!hidden) return unsupported("the size of its state is not fixed");
    hidden_ = *hidden;
    const int64_t asked = node_.get_int("hidden_size", hidden_);
    if (asked != hidden_ || hidden_ < 1) {
      return invalid_argument(
          fmt::format("its hidden_size is {}, but R, {}, has {} units", asked, sym_shape_to_string(r.shape), hidden_));
    }
    const SymShape biases = {static_cast<int64_t>(directions_), 2 * gates_ * hidden_};
    if (node_.input(3) != nullptr && node_.input(3)->shape != biases) {
      return invalid_argument(
          fmt::format("B is {}; expected {}", sym_shape_to_string(node_.input(3)->shape), sym_shape_to_string(biases)));
    }
    const SymShape expected = {static_cast<int64_t>(directions_), gates_ * hidden_, hidden_};
    if (r.shape != expected) {
      return invalid_argument(fmt::format("R is {}; expected {} for {} directions and a hidden_size of {}",
                                          sym_shape_to_string(r.shape), sym_shape_to_string(expected), directions_,
                                          hidden_));
    }
    x_ = node_.input(0);
    if (batch_first_) {
      FW_ASSIGN_OR_RETURN(x_, node_.emit("Transpose", {x_}, {{"perm", Ints{1, 0, 2}}}));
    }
    return {};
  }

  Result<ir::Value*> slice(ir::Value* value, int64_t axis, int64_t begin, int64_t end) {
    return node_.emit("Slice", {value}, {{"starts", Ints{begin}}, {"ends", Ints{end}}, {"axes", Ints{axis}}});
  }
  // An operand's part for direction d, along `axis`.
  Result<ir::Value*> part(ir::Value* value, size_t d, int64_t axis = 0) {
    const auto at = static_cast<int64_t>(d);
    if (directions_ > 1) {
      FW_ASSIGN_OR_RETURN(value, slice(value, axis, at, at + 1));
    }
    return node_.emit("Squeeze", {value}, {{"axes", Ints{axis}}});
  }

  // What is added to the input's product: both biases, but for a candidate's that the reset gate is applied to.
  Result<ir::Value*> bias(size_t d, ir::Value*& candidate) {
    FW_ASSIGN_OR_RETURN(ir::Value * both, part(node_.input(3), d));
    const int64_t wide = gates_ * hidden_;
    FW_ASSIGN_OR_RETURN(ir::Value * of_input, slice(both, 0, 0, wide));
    FW_ASSIGN_OR_RETURN(ir::Value * of_state, slice(both, 0, wide, 2 * wide));
    if (!late_reset_) return node_.emit("Add", {of_input, of_state});
    FW_ASSIGN_OR_RETURN(candidate, slice(of_state, 0, 2 * hidden_, wide));
    FW_ASSIGN_OR_RETURN(ir::Value * rest, slice(of_state, 0, 0, 2 * hidden_));
    ir::Value* nothing = node_.constant(ir::ConstTensor::zeros(DType::kFloat32, {hidden_}));
    FW_ASSIGN_OR_RETURN(ir::Value * padded, node_.emit("Concat", {rest, nothing}, {{"axis", int64_t{0}}}));
    return node_.emit("Add", {of_input, padded});
  }

  Result<std::vector<ir::Value*>> direction(size_t d) {
    FW_ASSIGN_OR_RETURN(ir::Value * w, part(node_.input(1), d));
    FW_ASSIGN_OR_RETURN(ir::Value * weights, node_.emit("Transpose", {w}, {{"perm", Ints{1, 0}}}));
    FW_ASSIGN_OR_RETURN(ir::Value * product, node_.emit("MatMul", {x_, weights}));
    ir::Value* candidate = nullptr;
    if (node_.input(3) != nullptr) {
      FW_ASSIGN_OR_RETURN(ir::Value * added, bias(d, candidate));
      FW_ASSIGN_OR_RETURN(product, node_.emit("Add", {product, added}));
    } else if (late_reset_) {
      candidate = node_.constant(ir::ConstTensor::zeros(DType::kFloat32, {hidden_}));
    }
    FW_ASSIGN_OR_RETURN(ir::Value * r, part(node_.input(2), d));
    std::vector<ir::Value*> operands = {product, r, nullptr, nullptr, node_.input(4), nullptr, candidate};
    for (size_t i : {size_t{5}, size_t{6}}) {
      if (node_.input(i) == nullptr) continue;
      FW_ASSIGN_OR_RETURN(operands[i - 3], part(node_.input(i), d, batch_first_ ? 1 : 0));
    }
    if (node_.input(7) != nullptr) {
      FW_ASSIGN_OR_RETURN(operands[5], part(node_.input(7), d));
    }
    while (operands.back() == nullptr) operands.pop_back();
    const bool reverse = d == 0 ? first_reversed_ : true;
    return node_.emit_all("Recurrent", operands,
                          {{"cell", node_.op_type()},
                           {"reverse", int64_t{reverse}},
                           {"activations", functions_[d].kinds},
                           {"activation_alpha", functions_[d].alphas},
                           {"activation_beta", functions_[d].betas},
                           {"clip", clip_},
                           {"input_forget", int64_t{input_forget_}}},
                          gates_ == 4 ? 3 : 2);
  }

  Status put(size_t output, const std::vector<ir::Value*>& parts, int64_t axis, Ints batch_first) {
    if (!node_.output_used(output)) return {};
    const bool single = parts.size() == 1;
    if (single && !batch_first_) return node_.emit_output(output, "Identity", {parts[0]}, {});
    ir::Value* whole = parts[0];
    if (!batch_first_) return node_.emit_output(output, "Concat", parts, {{"axis", axis}});
    if (!single) {
      FW_ASSIGN_OR_RETURN(whole, node_.emit("Concat", parts, {{"axis", axis}}));
    }
    return node_.emit_output(output, "Transpose", {whole}, {{"perm", std::move(batch_first)}});
  }

  NodeContext& node_;
  const int64_t gates_;
  size_t directions_ = 1;
  bool first_reversed_ = false, batch_first_ = false, input_forget_ = false, late_reset_ = false;
  double clip_ = 0;
  int64_t hidden_ = 0;
  std::vector<Functions> functions_;
  ir::Value* x_ = nullptr;
};

}  // namespace

Status import_recurrent(NodeContext& node) { return Recurrent(node).run(); }

}  // namespace flywheel::onnx_import
