// SPDX-License-Identifier: Apache-2.0
// The parts that all contraction families share: panels, tap ranges, epilogue recognition and transposition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/panels.h"
#include "kernels/gemm/tap_ranges.h"
#include "kernels/gemm/testing.h"
#include "kernels/gemm/transpose.h"

namespace flywheel::kernels {
namespace {

TEST(Panels, CountAndPadColumns) {
  const Panels even{64, 5, 32}, narrow{70, 5, 32}, padded{90, 5, 32};
  EXPECT_EQ(even.count(), 2);
  EXPECT_EQ(even.padded_columns(), 64);
  EXPECT_EQ(narrow.count(), 3);
  EXPECT_EQ(narrow.width_of(2), 16);
  EXPECT_EQ(narrow.columns_of(2), 6);
  EXPECT_EQ(narrow.size(), (64 + 16) * 5);
  EXPECT_EQ(padded.width_of(2), 32);
  EXPECT_EQ(padded.size(), 96 * 5);
  EXPECT_EQ((Panels{int64_t{1} << 40, int64_t{1} << 40, 32}.size()), std::nullopt);
}

TEST(Panels, PackTapsInOrderAndPadWithZeros) {
  // Three columns of two channels and two taps, as conv stores them: [column][channel][tap].
  float w[12];
  std::iota(w, w + 12, 1.0F);
  const Panels panels{3, 4, 4};
  PanelSource source;
  source.data = w;
  source.column_stride = 4;
  source.depth = 2;
  source.depth_stride = 2;
  source.taps = {1, 0};
  float packed[16];
  pack_panels(panels, source, 0, 1, packed);
  EXPECT_THAT(packed, ::testing::ElementsAre(2, 6, 10, 0, 4, 8, 12, 0, 1, 5, 9, 0, 3, 7, 11, 0));
}

TEST(TapRanges, CutBordersOff) {
  const auto ranges = tap_ranges({.outputs = 5, .inputs = 5, .kernel = 3, .stride = 1, .pad = 1, .dilation = 1});
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].end, 1);
  EXPECT_EQ(ranges[0].first, 1);
  EXPECT_EQ(ranges[1].first, 0);
  EXPECT_EQ(ranges[1].last, 3);
  EXPECT_EQ(ranges[2].begin, 4);
  EXPECT_EQ(ranges[2].last, 2);
}

TEST(TapRanges, CoverEveryOutputWithExactlyTheTapsInside) {
  for (const Axis& axis :
       {Axis{7, 9, 4, 2, 3, 2}, Axis{12, 5, 3, 1, 4, 3}, Axis{4, 10, 2, 3, -1, 1}, Axis{6, 1, 3, 1, 3, 1}}) {
    int64_t position = 0;
    for (const TapRange& range : tap_ranges(axis)) {
      ASSERT_EQ(range.begin, position);
      for (; position < range.end; ++position) {
        for (int64_t tap = 0; tap < axis.kernel; ++tap) {
          const int64_t at = position * axis.stride + tap * axis.dilation - axis.pad;
          EXPECT_EQ(tap >= range.first && tap < range.last, at >= 0 && at < axis.inputs) << position << " " << tap;
        }
      }
    }
    EXPECT_EQ(position, axis.outputs);
  }
}

Problem gemm_with(const std::string& ending) {
  Problem problem;
  problem.family = Family::kGemm;
  problem.inputs = {testing::with_gap({4, 3}, 0), testing::with_gap({3, 8}, 0)};
  problem.constant = {false, true};
  problem.outputs = {testing::with_gap({4, 8}, 0)};
  problem.ints = {0};
  EXPECT_TRUE(testing::add_ending(problem, ending));
  return problem;
}

TEST(Epilogue, KeepsBiasResidualAndClampInRegisters) {
  auto plain = Epilogue::from(gemm_with("none"), 2, Isa::kPortable);
  ASSERT_TRUE(plain.is_ok());
  EXPECT_TRUE(plain->fused);
  EXPECT_EQ(plain->bias, -1);
  for (const char* name : {"bias_res_relu", "res_bias"}) {
    auto epilogue = Epilogue::from(gemm_with(name), 2, Isa::kPortable);
    ASSERT_TRUE(epilogue.is_ok());
    EXPECT_TRUE(epilogue->fused) << name;
    EXPECT_EQ(epilogue->bias, name[0] == 'b' ? 0 : 1);
    EXPECT_EQ(epilogue->residual, name[0] == 'b' ? 1 : 0);
    EXPECT_EQ(epilogue->clamp, name[0] == 'b');
  }
  auto clip = Epilogue::from(gemm_with("bias_clip"), 2, Isa::kPortable);
  ASSERT_TRUE(clip.is_ok());
  EXPECT_TRUE(clip->fused);
  EXPECT_EQ(clip->low, -0.5F);
  EXPECT_EQ(clip->high, 0.75F);
}

TEST(Epilogue, LeavesOtherProgramsToTheInterpreter) {
  for (const char* name : {"bias_gelu", "bias_silu", "gate", "row_scale", "scale_bias", "relu_res"}) {
    auto epilogue = Epilogue::from(gemm_with(name), 2, Isa::kPortable);
    ASSERT_TRUE(epilogue.is_ok());
    EXPECT_FALSE(epilogue->fused) << name;
    EXPECT_NE(epilogue->run, nullptr);
  }
  Problem twice = gemm_with("bias");
  twice.program = Program::parse("r2 = add r0 r0 -> r2", 2).value();
  auto epilogue = Epilogue::from(twice, 2, Isa::kPortable);
  ASSERT_TRUE(epilogue.is_ok());
  EXPECT_FALSE(epilogue->fused);
}

TEST(Epilogue, RefusesOtherTypes) {
  Problem problem = gemm_with("bias");
  problem.inputs[2].dtype = DType::kFloat64;
  EXPECT_EQ(Epilogue::from(problem, 2, Isa::kPortable).status().code(), Code::kUnsupported);
}

TEST(Transpose, MovesEveryElement) {
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (!testing::machine().has(isa)) continue;
    for (int64_t rows : {1, 4, 7, 16, 19, 40}) {
      for (int64_t columns : {1, 3, 8, 17, 33}) {
        std::vector<float> in(static_cast<size_t>(rows * (columns + 2))),
            out(static_cast<size_t>(columns * (rows + 3)), -1);
        std::iota(in.begin(), in.end(), 0.0F);
        transpose_kernel(isa)(in.data(), columns + 2, rows, columns, out.data(), rows + 3);
        for (int64_t c = 0; c < columns; ++c) {
          for (int64_t r = 0; r < rows + 3; ++r) {
            ASSERT_EQ(out[static_cast<size_t>(c * (rows + 3) + r)],
                      r < rows ? static_cast<float>(r * (columns + 2) + c) : -1);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace flywheel::kernels
