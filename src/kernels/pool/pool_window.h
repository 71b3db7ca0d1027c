// SPDX-License-Identifier: Apache-2.0
// The windows of family pool, and what pool_f32.cc calls in the sources of each ISA. Pure functions; any thread.
#pragma once

#include <cstdint>

namespace flywheel::kernels {

// The taps of one output's window along one dim that lie inside the image.
struct WindowSpan {
  int64_t begin;   // position of the first
  int64_t count;   // how many
  int64_t padded;  // how many lie inside the padded image
};
WindowSpan window_span(int64_t out, int64_t stride, int64_t pad_begin, int64_t pad_end, int64_t kernel,
                       int64_t dilation, int64_t extent);

struct PoolWindow {
  const float* x;                 // first tap inside the image, channel 0
  int64_t rows, columns;          // taps
  int64_t row_step, column_step;  // floats between them
  int64_t channels;
  float scale;  // average: 1 / how many elements count
  float* out;
};

#define FW_DECLARE_POOL(isa)                     \
  namespace isa {                                \
  void max_window(const PoolWindow& window);     \
  void average_window(const PoolWindow& window); \
  }
FW_DECLARE_POOL(avx512)
FW_DECLARE_POOL(avx2)
FW_DECLARE_POOL(portable)
#undef FW_DECLARE_POOL

}  // namespace flywheel::kernels
