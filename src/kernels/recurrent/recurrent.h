// SPDX-License-Identifier: Apache-2.0
// Family recurrent: one direction of ONNX's RNN, GRU or LSTM, after the product of the inputs with their weights, which
// a gemm computes for all steps at once. With G = 1, 3 (z r h) or 4 (i o f c) gates of H units, for each step t:
//   a = P[t] + h R^T            gates in ONNX's order; P holds the input's product and the biases
//   RNN   h = f(a)
//   GRU   z = f(a_z), r = f(a_r), n = g(P_n + (r * h) R_n^T), or with a candidate bias b n = g(P_n + r * (h R_n^T +
//   b));
//         h = (1 - z) * n + z * h
//   LSTM  i = f(a_i + p_i * c), f = f(a_f + p_f * c), or 1 - i; c = f * c + i * g(a_c); o = f(a_o + p_o * c), with the
//         new c; h = o * h(c)
// The activations' arguments are clipped to [-clip, clip] unless clip is 0. reverse: from the last step to the first.
// lengths: row b has that many steps, from 0 to T, else Fault kIndexOutOfRange is set; Y is 0 behind them, and the last
// state is that of its last step.
//
// Operands, contiguous: inputs P [T,B,G*H] f32, R [G*H,H] f32, then those that ints name: h0 [B,H], c0 [B,H], lengths
// [B] i32, peepholes [3*H] (i o f), candidate bias [H]. outputs: Y [T,B,H], the last h [B,H], LSTM: the last c [B,H].
// ints: [cell, reverse, has h0, has c0, has lengths, has peepholes, has candidate bias, input_forget, f, g, h];
// floats: [clip, then alpha and beta of f, g, h]. Each sum is made in the order of h's units, whatever the batch and
// the team. Tolerance against the reference, which computes with doubles: 1e-5 a step.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

enum class Cell : int64_t { kRnn = 0, kGru = 1, kLstm = 2 };
enum class Activation : int64_t {
  kSigmoid = 0,
  kTanh = 1,
  kRelu = 2,
  kAffine = 3,
  kLeakyRelu = 4,
  kThresholdedRelu = 5,
  kScaledTanh = 6,
  kHardSigmoid = 7,
  kElu = 8,
  kSoftsign = 9,
  kSoftplus = 10,
};
inline constexpr int64_t kActivations = 11;

struct RecurrentParams {
  struct Function {
    Activation kind = Activation::kSigmoid;
    double alpha = 0, beta = 0;
  };
  Cell cell = Cell::kRnn;
  bool reverse = false, input_forget = false;
  // Indices of inputs; 0: absent.
  int h0 = 0, c0 = 0, lengths = 0, peepholes = 0, candidate_bias = 0;
  Function f, g, h;
  double clip = 0;  // 0: none
  int64_t steps = 0, batch = 0, hidden = 0;

  int gates() const { return cell == Cell::kRnn ? 1 : cell == Cell::kGru ? 3 : 4; }
  static Result<RecurrentParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
