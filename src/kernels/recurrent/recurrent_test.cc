// SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrent/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

struct Case {
  Cell cell = Cell::kLstm;
  int64_t steps = 3, batch = 2, hidden = 5;
  bool reverse = false, h0 = false, c0 = false, lengths = false, peepholes = false, candidate_bias = false,
       input_forget = false;
  double clip = 0;
  Activation f = Activation::kSigmoid, g = Activation::kTanh, h = Activation::kTanh;

  int64_t gates() const { return cell == Cell::kRnn ? 1 : cell == Cell::kGru ? 3 : 4; }
};

Problem problem_of(const Case& c) {
  Problem problem;
  problem.family = Family::kRecurrent;
  auto add = [&](bool present, DType dtype, Dims dims) {
    if (present) problem.inputs.push_back(TensorDesc::contiguous(dtype, std::move(dims)));
  };
  add(true, DType::kFloat32, {c.steps, c.batch, c.gates() * c.hidden});
  add(true, DType::kFloat32, {c.gates() * c.hidden, c.hidden});
  add(c.h0, DType::kFloat32, {c.batch, c.hidden});
  add(c.c0, DType::kFloat32, {c.batch, c.hidden});
  add(c.lengths, DType::kInt32, {c.batch});
  add(c.peepholes, DType::kFloat32, {3 * c.hidden});
  add(c.candidate_bias, DType::kFloat32, {c.hidden});
  problem.constant.assign(problem.inputs.size(), false);
  problem.constant[1] = true;
  problem.outputs = {TensorDesc::contiguous(DType::kFloat32, {c.steps, c.batch, c.hidden}),
                     TensorDesc::contiguous(DType::kFloat32, {c.batch, c.hidden})};
  if (c.cell == Cell::kLstm) problem.outputs.push_back(problem.outputs[1]);
  problem.ints = {static_cast<int64_t>(c.cell),
                  c.reverse,
                  c.h0,
                  c.c0,
                  c.lengths,
                  c.peepholes,
                  c.candidate_bias,
                  c.input_forget,
                  static_cast<int64_t>(c.f),
                  static_cast<int64_t>(c.g),
                  static_cast<int64_t>(c.h)};
  problem.floats = {c.clip, 0.3, 0.4, 0.3, 0.4, 0.3, 0.4};
  return problem;
}

using Floats = std::vector<float>;

struct Data {
  std::vector<Floats> floats;
  std::vector<int32_t> lengths;
};

Data random_data(const Problem& problem) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> values(-1, 1);
  Data data;
  for (const TensorDesc& desc : problem.inputs) {
    Floats& out = data.floats.emplace_back(static_cast<size_t>(desc.elements()));
    for (float& value : out) value = values(random);
    if (desc.dtype != DType::kInt32) continue;
    for (int64_t b = 0; b < desc.elements(); ++b)
      data.lengths.push_back(static_cast<int32_t>((b * 2 + 1) % (problem.inputs[0].dims[0] + 1)));
  }
  return data;
}

// All outputs behind one another.
Floats run(const Tactic& tactic, const Problem& problem, const Data& data, int workers,
           uint32_t* seen_faults = nullptr) {
  auto kernel = tactic.bind(problem, Machine{Isa::kAvx512, Isa::kAvx512}, workers);
  EXPECT_TRUE(kernel.is_ok()) << kernel.status().to_string();
  std::vector<const void*> inputs;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    inputs.push_back(problem.inputs[i].dtype == DType::kInt32 ? static_cast<const void*>(data.lengths.data())
                                                              : data.floats[i].data());
  }
  AlignedBuffer packed;
  if (tactic.pack != nullptr) {
    std::vector<bool> consumed(inputs.size());
    packed = std::move(tactic.pack(problem, inputs, consumed)).value();
    EXPECT_TRUE(consumed[1]);
    inputs[1] = nullptr;
  }
  std::vector<Floats> outputs;
  for (const TensorDesc& desc : problem.outputs) outputs.emplace_back(static_cast<size_t>(desc.elements()), NAN);
  std::vector<void*> places;
  for (Floats& output : outputs) places.push_back(output.data());
  AlignedBuffer workspace = *AlignedBuffer::allocate((*kernel)->workspace_bytes() + 1, "workspace");
  std::atomic<uint32_t> faults{0};
  auto team = ThreadTeam::create(workers);
  (*team)->run([&](Worker& worker) {
    (*kernel)->launch({inputs.data(), places.data(), packed.data(), workspace.data(), &faults}, worker);
  });
  if (seen_faults != nullptr) *seen_faults = faults;
  Floats all;
  for (const Floats& output : outputs) all.insert(all.end(), output.begin(), output.end());
  return all;
}

void expect_tactics_match(const Case& c) {
  const Problem problem = problem_of(c);
  const Data data = random_data(problem);
  const Floats expected = run(*find_tactic(Family::kRecurrent, "recurrent_reference"), problem, data, 1);
  const Machine machine = detect_machine().value();
  for (const Tactic& tactic : tactics(Family::kRecurrent)) {
    if (!machine.has(tactic.isa) || !tactic.accepts(problem, machine).is_ok()) continue;
    Floats first;
    for (int workers : {1, 2, 3}) {
      const Floats found = run(tactic, problem, data, workers);
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << tactic.name << ": the team changes the result";
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], 2e-5) << tactic.name << " at " << i << ", " << workers << " workers";
    }
  }
}

// One unit, worked out by hand.
TEST(Recurrent, AStepOfEachCell) {
  const Tactic& reference = *find_tactic(Family::kRecurrent, "recurrent_reference");
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  {
    Case c{.cell = Cell::kRnn, .steps = 2, .batch = 1, .hidden = 1, .f = Activation::kTanh};
    const Floats y = run(reference, problem_of(c), {{{0.5F, -1}, {2}}, {}}, 1);
    const double first = std::tanh(0.5), second = std::tanh(-1 + 2 * first);
    EXPECT_NEAR(y[0], first, 1e-6);
    EXPECT_NEAR(y[1], second, 1e-6);
    EXPECT_EQ(y[2], y[1]);
  }
  for (bool late : {false, true}) {
    Case c{.cell = Cell::kGru, .steps = 1, .batch = 1, .hidden = 1, .h0 = true, .candidate_bias = late};
    std::vector<Floats> data = {{0.1F, 0.2F, 0.3F}, {1, 2, 3}, {0.5F}};
    if (late) data.push_back({0.7F});
    const Floats y = run(reference, problem_of(c), {data, {}}, 1);
    const double z = sigmoid(0.1 + 0.5), r = sigmoid(0.2 + 1);
    const double n = std::tanh(late ? 0.3 + r * (1.5 + 0.7) : 0.3 + r * 0.5 * 3);
    EXPECT_NEAR(y[0], (1 - z) * n + z * 0.5, 1e-6) << late;
  }
  {
    Case c{.cell = Cell::kLstm, .steps = 1, .batch = 1, .hidden = 1, .h0 = true, .c0 = true, .peepholes = true};
    const Floats y = run(reference, problem_of(c),
                         {{{0.1F, 0.2F, 0.3F, 0.4F}, {1, 2, 3, 4}, {0.5F}, {0.6F}, {0.7F, 0.8F, 0.9F}}, {}}, 1);
    const double i = sigmoid(0.1 + 0.5 + 0.7 * 0.6), f = sigmoid(0.3 + 1.5 + 0.9 * 0.6);
    const double cell = f * 0.6 + i * std::tanh(0.4 + 2), o = sigmoid(0.2 + 1 + 0.8 * cell);
    EXPECT_NEAR(y[0], o * std::tanh(cell), 1e-6);
    EXPECT_NEAR(y[1], y[0], 0);
    EXPECT_NEAR(y[2], cell, 1e-6);
  }
}

TEST(Recurrent, TacticsMatchTheReference) {
  for (Cell cell : {Cell::kRnn, Cell::kGru, Cell::kLstm}) {
    for (int64_t hidden : {1, 5, 16, 33, 64}) {
      for (int64_t batch : {1, 4, 6}) expect_tactics_match({.cell = cell, .batch = batch, .hidden = hidden});
    }
    expect_tactics_match({.cell = cell,
                          .steps = 5,
                          .batch = 7,
                          .hidden = 20,
                          .reverse = true,
                          .h0 = true,
                          .lengths = true,
                          .clip = 0.4});
    expect_tactics_match({.cell = cell, .steps = 0});
    expect_tactics_match({.cell = cell, .batch = 0});
    for (int64_t kind = 0; kind < kActivations; ++kind) {
      expect_tactics_match({.cell = cell,
                            .f = static_cast<Activation>(kind),
                            .g = static_cast<Activation>(kind),
                            .h = static_cast<Activation>(kind)});
    }
  }
  expect_tactics_match({.cell = Cell::kGru, .steps = 4, .batch = 5, .hidden = 40, .h0 = true, .candidate_bias = true});
  expect_tactics_match(
      {.cell = Cell::kLstm, .steps = 4, .batch = 5, .hidden = 40, .h0 = true, .c0 = true, .peepholes = true});
  expect_tactics_match(
      {.cell = Cell::kLstm, .h0 = true, .c0 = true, .lengths = true, .peepholes = true, .input_forget = true});
}

TEST(Recurrent, ALengthOutOfRangeIsAFault) {
  const Problem problem = problem_of({.lengths = true});
  Data data = random_data(problem);
  data.lengths = {3, 4};
  for (const Tactic& tactic : tactics(Family::kRecurrent)) {
    if (!detect_machine().value().has(tactic.isa)) continue;
    uint32_t faults = 0;
    run(tactic, problem, data, 2, &faults);
    EXPECT_EQ(faults, kIndexOutOfRange) << tactic.name;
  }
}

TEST(Recurrent, ARowDoesNotDependOnItsBatch) {
  Case c{.cell = Cell::kLstm, .steps = 4, .batch = 6, .hidden = 24};
  const Problem whole = problem_of(c);
  Data data = random_data(whole);
  const Machine machine = detect_machine().value();
  for (const Tactic& tactic : tactics(Family::kRecurrent)) {
    if (!machine.has(tactic.isa)) continue;
    const Floats all = run(tactic, whole, data, 2);
    Case alone = c;
    alone.batch = 1;
    Data row = data;
    const int64_t wide = 4 * c.hidden, b = 5;
    row.floats[0].clear();
    for (int64_t t = 0; t < c.steps; ++t) {
      const float* from = data.floats[0].data() + (t * c.batch + b) * wide;
      row.floats[0].insert(row.floats[0].end(), from, from + wide);
    }
    const Floats single = run(tactic, problem_of(alone), row, 1);
    for (int64_t t = 0; t < c.steps; ++t) {
      for (int64_t u = 0; u < c.hidden; ++u)
        EXPECT_EQ(all[static_cast<size_t>((t * c.batch + b) * c.hidden + u)],
                  single[static_cast<size_t>(t * c.hidden + u)]);
    }
  }
}

TEST(Recurrent, RefusesWhatDoesNotFit) {
  auto refused = [](const std::function<void(Problem&)>& change) {
    Problem problem = problem_of({.h0 = true});
    change(problem);
    return !RecurrentParams::from(problem).is_ok();
  };
  EXPECT_FALSE(refused([](Problem&) {}));
  EXPECT_TRUE(refused([](Problem& p) { p.ints[0] = 3; }));
  EXPECT_TRUE(refused([](Problem& p) { p.ints[8] = kActivations; }));
  EXPECT_TRUE(refused([](Problem& p) { p.ints[3] = 1; }));
  EXPECT_TRUE(refused([](Problem& p) { p.floats[0] = NAN; }));
  EXPECT_TRUE(refused([](Problem& p) { p.inputs[1] = TensorDesc::contiguous(DType::kFloat32, {20, 6}); }));
  EXPECT_TRUE(refused([](Problem& p) { p.inputs[2] = TensorDesc::contiguous(DType::kFloat32, {3, 5}); }));
  EXPECT_TRUE(refused([](Problem& p) { p.outputs.pop_back(); }));
  EXPECT_TRUE(refused([](Problem& p) {
    p.inputs[1] = TensorDesc::contiguous(DType::kFloat32, {0, int64_t{1} << 62});
  }));
  EXPECT_TRUE(refused([](Problem& p) { p.inputs[0].strides[0] += 1; }));
}

}  // namespace
}  // namespace flywheel::kernels
