// SPDX-License-Identifier: Apache-2.0
#include "kernels/copy/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "kernels/testing/tactic_check.h"

namespace flywheel::kernels {
namespace {

using check::dense;
using check::expect_invalid;
using check::expect_tactics_match;
using check::expect_values;
using check::laid_out;
using check::random_values;

Problem copy(TensorDesc x, TensorDesc y, std::vector<int64_t> ints = {}) {
  return {.family = Family::kCopy, .inputs = {std::move(x)}, .outputs = {std::move(y)}, .ints = std::move(ints)};
}

// Y = transpose(X, permutation) into dense memory.
Problem transpose(const Dims& dims, const std::vector<int>& permutation, DType type = DType::kFloat32) {
  const TensorDesc x = dense(type, dims);
  TensorDesc view{type, {}, {}};
  for (int d : permutation) {
    view.dims.push_back(x.dims[d]);
    view.strides.push_back(x.strides[d]);
  }
  return copy(view, dense(type, view.dims));
}

// The view's values when the memory behind it counts 0, 1, 2, ...
std::vector<double> counting(const TensorDesc& view) {
  std::vector<double> values(static_cast<size_t>(view.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(view.dtype == DType::kUInt8 ? i % 251 : i);
  return values;
}

TEST(Copy, MovesBetweenViews) {
  // X[::-1] of [0..5] as 2x3, then transposed.
  const TensorDesc x{DType::kInt32, {3, 2}, {1, -3}};
  expect_values(copy(x, dense(DType::kInt32, {3, 2})), {{3, 0, 4, 1, 5, 2}}, {3, 0, 4, 1, 5, 2});
  // Expand.
  expect_values(copy(TensorDesc{DType::kFloat32, {2, 3}, {1, 0}}, dense(DType::kFloat32, {2, 3})), {{7, 7, 7, 8, 8, 8}},
                {7, 7, 7, 8, 8, 8});
  expect_values(copy(dense(DType::kFloat32, {}), dense(DType::kFloat32, {})), {{5}}, {5});
}

// The values that the harness gives and reads are in the order of the dims, so a permuted view checks positions only
// with known numbers: a 2x3 matrix, column by column.
TEST(Copy, TransposesPositions) {
  const TensorDesc y{DType::kFloat32, {2, 3}, {1, 2}};
  expect_values(copy(dense(DType::kFloat32, {2, 3}), y), {{0, 1, 2, 3, 4, 5}}, {0, 1, 2, 3, 4, 5});
}

TEST(Copy, PadsAsOnnxDoes) {
  const auto pad = [](PadMode mode, std::vector<int64_t> before, std::vector<int64_t> after, Dims x, Dims y,
                      int64_t fill = 0) {
    std::vector<int64_t> ints = {static_cast<int64_t>(mode), fill};
    ints.insert(ints.end(), before.begin(), before.end());
    ints.insert(ints.end(), after.begin(), after.end());
    return copy(dense(DType::kFloat32, std::move(x)), dense(DType::kFloat32, std::move(y)), ints);
  };
  const std::vector<double> x = {1, 2, 3};
  const auto bits = static_cast<int64_t>(std::bit_cast<uint32_t>(-1.5F));
  expect_values(pad(PadMode::kConstant, {2}, {1}, {3}, {6}, bits), {x}, {-1.5, -1.5, 1, 2, 3, -1.5});
  expect_values(pad(PadMode::kEdge, {2}, {1}, {3}, {6}), {x}, {1, 1, 1, 2, 3, 3});
  expect_values(pad(PadMode::kReflect, {2}, {1}, {3}, {6}), {x}, {3, 2, 1, 2, 3, 2});
  expect_values(pad(PadMode::kWrap, {2}, {1}, {3}, {6}), {x}, {2, 3, 1, 2, 3, 1});
  expect_values(pad(PadMode::kConstant, {-1}, {2}, {3}, {4}), {x}, {2, 3, 0, 0});
  expect_values(pad(PadMode::kReflect, {5}, {0}, {2}, {7}), {{1, 2}}, {2, 1, 2, 1, 2, 1, 2});
  expect_values(pad(PadMode::kConstant, {1, 0}, {0, 1}, {2, 2}, {3, 3}), {{1, 2, 3, 4}}, {0, 0, 0, 1, 2, 0, 3, 4, 0});
  expect_values(pad(PadMode::kConstant, {1}, {1}, {0}, {2}, bits), {{}}, {-1.5, -1.5});
}

TEST(Copy, RandomViews) {
  std::mt19937 random(5);
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat32, DType::kUInt8, DType::kInt64, DType::kFloat16};
  for (int round = 0; round < 120; ++round) {
    const int rank = static_cast<int>(random() % 6);
    const Dims dims = check::random_dims(random, rank, 90);
    const DType type = kTypes[random() % std::size(kTypes)];
    auto view = [&](bool may_repeat) {
      std::vector<int> order(dims.size());
      std::iota(order.begin(), order.end(), 0);
      if (random() % 3 != 0) std::shuffle(order.begin(), order.end(), random);
      TensorDesc desc = laid_out(type, dims, order, random() % 3 == 0 ? 5 : 0);
      if (rank > 0 && random() % 4 == 0) {
        const size_t d = random() % dims.size();
        desc.strides[d] = may_repeat && random() % 2 == 0 ? 0 : -desc.strides[d];
      }
      return desc;
    };
    Problem problem = copy(view(false), view(false));
    auto values = random_values(problem, round);
    expect_tactics_match(problem, values, {0, 0}, {1, 3});
    if (HasFailure()) return;
  }
}

TEST(Copy, RandomPads) {
  std::mt19937 random(6);
  for (int round = 0; round < 150; ++round) {
    const int rank = 1 + static_cast<int>(random() % 4);
    const Dims dims = check::random_dims(random, rank, 30);
    const DType type = random() % 2 ? DType::kFloat32 : DType::kUInt8;
    std::vector<int64_t> ints = {static_cast<int64_t>(random() % 4), 7};
    Dims padded = dims;
    std::vector<int64_t> after;
    for (int d = 0; d < rank; ++d) {
      const int64_t before = random() % 3 == 0 ? static_cast<int64_t>(random() % 5) - 1 : 0;
      after.push_back(random() % 3 == 0 ? static_cast<int64_t>(random() % 5) - 1 : 0);
      ints.push_back(before);
      padded[d] = dims[d] + before + after[d];
    }
    ints.insert(ints.end(), after.begin(), after.end());
    if (*std::min_element(padded.begin(), padded.end()) < 0) continue;
    std::vector<int> order(dims.size());
    std::iota(order.begin(), order.end(), 0);
    if (random() % 2) std::shuffle(order.begin(), order.end(), random);
    Problem problem =
        copy(laid_out(type, dims, order, random() % 2), laid_out(type, padded, order, random() % 2), ints);
    expect_tactics_match(problem, random_values(problem, round), {0, 0}, {1, 3});
    if (HasFailure()) return;
  }
}

TEST(Copy, ShapesOfModels) {
  const Dims image = {1, 3, 224, 224}, features = {2, 64, 28, 28}, last = {1, 2048, 7, 7};
  std::vector<Problem> problems = {
      transpose(image, {0, 2, 3, 1}),             // NCHW to NHWC
      transpose({1, 224, 224, 3}, {0, 3, 1, 2}),  // and back
      transpose({1, 224, 224, 3}, {0, 3, 1, 2}, DType::kUInt8),
      transpose(features, {0, 2, 3, 1}),
      transpose(last, {0, 2, 3, 1}),
      transpose({2, 28, 28, 64}, {0, 3, 1, 2}),
      transpose({1, 128, 12, 64}, {0, 2, 1, 3}),  // heads
      transpose({1, 84, 2100}, {0, 2, 1}),        // YOLO head
      transpose({1, 12, 128, 64}, {0, 1, 3, 2}),
      transpose({8, 116, 14, 14}, {0, 1, 2, 3}),
      transpose({1, 14, 14, 2, 58}, {0, 1, 2, 4, 3}),  // channel shuffle
  };
  // A part of a Concat of NHWC tensors: rows of 64 channels into pixels of 192.
  problems.push_back(copy(dense(DType::kFloat32, {1, 20, 20, 64}),
                          TensorDesc{DType::kFloat32, {1, 20, 20, 64}, {76800, 3840, 192, 1}}));
  // NHWC padding.
  problems.push_back(copy(dense(DType::kFloat32, {1, 56, 56, 64}), dense(DType::kFloat32, {1, 58, 58, 64}),
                          {0, 0, 0, 1, 1, 0, 0, 1, 1, 0}));
  for (const Problem& problem : problems) {
    EXPECT_GE(expect_tactics_match(problem, {counting(problem.inputs[0])}, {0, 0}), 1);
  }
}

TEST(Copy, HugePaddedDimsTakeNoMemory) {
  const int64_t huge = int64_t{1} << 40;
  const Problem problem = copy(dense(DType::kUInt8, {huge}), dense(DType::kUInt8, {huge + 1}), {0, 0, 1, 0});
  const Machine machine = detect_machine().value();
  for (const Tactic& tactic : tactics(Family::kCopy)) {
    EXPECT_EQ(tactic.bind(problem, machine, 1).is_ok(), std::string_view(tactic.name) == "copy_reference")
        << tactic.name;
  }
}

TEST(Copy, RefusesInvalidProblems) {
  expect_invalid(copy(dense(DType::kFloat32, {2}), dense(DType::kFloat32, {3})));
  expect_invalid(copy(dense(DType::kFloat32, {2}), dense(DType::kInt32, {2})));
  expect_invalid(copy(dense(DType::kFloat32, {2}), TensorDesc{DType::kFloat32, {2}, {0}}));
  expect_invalid(copy(dense(DType::kFloat32, {2}), dense(DType::kFloat32, {4}), {0, 0, 1}));
  expect_invalid(copy(dense(DType::kFloat32, {2}), dense(DType::kFloat32, {4}), {4, 0, 1, 1}));
  expect_invalid(copy(dense(DType::kFloat32, {2}), dense(DType::kFloat32, {4}), {0, 0, INT64_MAX, 1}));
  expect_invalid(copy(dense(DType::kFloat32, {0}), dense(DType::kFloat32, {2}), {1, 0, 1, 1}));
}

}  // namespace
}  // namespace flywheel::kernels
