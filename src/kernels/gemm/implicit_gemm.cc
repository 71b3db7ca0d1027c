// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/implicit_gemm.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace flywheel::kernels {
namespace {

constexpr int64_t kFloatsALine = 16;  // of cache

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

struct ImplicitGemm::Job {
  const float* input;
  const float* packed;
  float* output;
  const void* const* operands;
  float* staging;
  bool staged;
};

Panels ImplicitGemm::panels(const ContractionShape& shape, Isa isa) {
  return {shape.channels, shape.steps(), tile_kernels(isa).panel};
}

ImplicitGemm ImplicitGemm::create(const ContractionShape& shape, Epilogue epilogue, const Machine& machine, Isa isa,
                                  int workers) {
  ImplicitGemm gemm;
  gemm.shape_ = shape;
  gemm.epilogue_ = std::move(epilogue);
  gemm.kernels_ = &tile_kernels(isa);
  gemm.panels_ = panels(shape, isa);
  gemm.workers_ = workers;
  gemm.merge_lines();
  gemm.cut_rectangles();
  gemm.list_panels();
  gemm.choose_split(machine);
  gemm.choose_chunk(machine);
  return gemm;
}

// A 1x1 convolution reads pixels wherever they are: rows that follow each other without a gap, in all operands, become
// one long row, and so do images. Tiles then are full whatever the picture's width.
void ImplicitGemm::merge_lines() {
  ContractionShape& s = shape_;
  if (s.kernel_h != 1 || s.kernel_w != 1 || s.stride_h != 1 || s.stride_w != 1 || s.pad_top != 0 || s.pad_left != 0 ||
      s.in_rows != s.rows || s.in_columns != s.columns) {
    return;
  }
  auto all = [&](auto&& test) {
    return test(s.input) && test(s.output) && std::all_of(epilogue_.operands.begin(), epilogue_.operands.end(), test);
  };
  if (all([&](const View& v) { return s.rows == 1 || v.row == v.column * s.columns; })) {
    s.columns *= s.rows;
    s.rows = 1;
  }
  if (s.rows == 1 && all([&](const View& v) { return s.images == 1 || v.image == v.column * s.columns; })) {
    s.columns *= s.images;
    s.images = 1;
  }
  s.in_rows = s.rows;
  s.in_columns = s.columns;
}

void ImplicitGemm::cut_rectangles() {
  const ContractionShape& s = shape_;
  if (s.images == 0 || s.channels == 0) return;
  const std::vector<TapRange> across =
      tap_ranges({s.columns, s.in_columns, s.kernel_w, s.stride_w, s.pad_left, s.dilation_w});
  for (const TapRange& y : tap_ranges({s.rows, s.in_rows, s.kernel_h, s.stride_h, s.pad_top, s.dilation_h})) {
    for (const TapRange& x : across) add_rectangle(y, x);
  }
  int64_t longest = 0;
  for (const Rectangle& r : rectangles_) {
    units_an_image_ += r.lines * r.segments;
    cost_an_image_ += static_cast<double>(r.lines * r.segments) * r.unit_cost;
    longest = std::max(longest, ceil_div(r.length, r.segments));
  }
  wide_ = longest <= kernels_->wide_rows && panels_.columns >= 2 * panels_.width;
}

void ImplicitGemm::add_rectangle(const TapRange& y, const TapRange& x) {
  const ContractionShape& s = shape_;
  const int64_t height = y.end - y.begin, width = x.end - x.begin, rows = kernels_->max_rows;
  const bool across = height * ceil_div(width, rows) <= width * ceil_div(height, rows);
  Rectangle r;
  r.lines = across ? height : width;
  r.length = across ? width : height;
  r.segments = ceil_div(r.length, rows);
  auto along = [&](const View& v, int64_t step_y, int64_t step_x, int64_t offset) {
    View out = v;
    out.offset = v.offset + offset;
    out.row = across ? v.row * step_y : v.column * step_x;
    out.column = across ? v.column * step_x : v.row * step_y;
    return out;
  };
  const int64_t in_y = y.begin * s.stride_h + y.first * s.dilation_h - s.pad_top;
  const int64_t in_x = x.begin * s.stride_w + x.first * s.dilation_w - s.pad_left;
  const int64_t taps_y = y.last - y.first, taps_x = x.last - x.first;
  const bool empty = taps_y == 0 || taps_x == 0;
  r.input = along(s.input, s.stride_h, s.stride_w, empty ? 0 : in_y * s.input.row + in_x * s.input.column);
  r.output = along(s.output, 1, 1, y.begin * s.output.row + x.begin * s.output.column);
  for (const View& v : epilogue_.operands) r.operands.push_back(along(v, 1, 1, y.begin * v.row + x.begin * v.column));
  r.outer = empty ? 0 : taps_y;
  r.a_outer = s.dilation_h * s.input.row;
  // Neighbouring taps whose pixels lie side by side in memory are one run.
  const bool joined = s.dilation_w == 1 && s.input.column == s.depth;
  r.middle = joined ? 1 : taps_x;
  r.run = joined ? taps_x * s.depth : s.depth;
  r.a_middle = s.dilation_w * s.input.column;
  if (taps_x == 1 && s.kernel_w == 1 && r.a_outer == s.depth) {  // kernel columns of a picture one pixel wide
    r.run *= r.outer;
    r.outer = std::min<int64_t>(r.outer, 1);
  }
  r.first_step = (y.first * s.kernel_w + x.first) * s.depth;
  r.outer_skip = (s.kernel_w - taps_x) * s.depth;
  // A few rows cost as much as several: their chains of dependent additions, and B's lines, take their time.
  const double rows_a_unit = std::max(static_cast<double>(r.length) / static_cast<double>(r.segments), 3.0);
  r.unit_cost = rows_a_unit * static_cast<double>(r.outer * r.middle * r.run + 32);
  rectangles_.push_back(std::move(r));
}

void ImplicitGemm::list_panels() {
  const int64_t group_floats = panels_.size().value_or(0);
  for (int64_t g = 0; g < shape_.groups; ++g) {
    for (int64_t p = 0; p < panels_.count(); ++p) {
      panel_list_.push_back({g * group_floats + panels_.offset(p), g * shape_.depth,
                             g * shape_.channels + p * panels_.width, static_cast<int32_t>(panels_.columns_of(p)),
                             static_cast<int32_t>(panels_.width_of(p))});
    }
  }
}

// Workers share the panels (each reads its part of B alone), the units (each reads its part of A alone), or both,
// whichever moves the least through the caches and leaves the least to the slowest worker.
void ImplicitGemm::choose_split(const Machine&) {
  const double steps = static_cast<double>(panels_.steps);
  const double b_bytes = 4.0 * steps * static_cast<double>(panels_.padded_columns() * shape_.groups);
  const double a_bytes =
      4.0 * static_cast<double>(shape_.images * shape_.in_rows * shape_.in_columns * shape_.depth * shape_.groups);
  const int64_t panels = std::max<int64_t>(1, static_cast<int64_t>(panel_list_.size()));
  const int64_t grain = wide_ ? 2 : 1;
  const double vectors = static_cast<double>(panels_.width) / (kernels_->panel / 2.0);
  double best = std::numeric_limits<double>::infinity();
  for (int by_panels = 1; by_panels <= workers_; ++by_panels) {
    if (workers_ % by_panels != 0) continue;
    const int by_units = workers_ / by_panels;
    const int64_t most_panels = std::min(panels, ceil_div(ceil_div(panels, grain), by_panels) * grain);
    const double units = static_cast<double>(units_an_image_ * shape_.images);
    const double unit_share = std::max(1.0 / by_units, units > 0 ? 1.0 / units : 1.0);
    const double cycles =
        cost_an_image_ * static_cast<double>(shape_.images) * unit_share * static_cast<double>(most_panels) * vectors;
    const double bytes = b_bytes / by_panels + a_bytes / by_units;
    const double cost = cycles + bytes / 16;
    if (cost < best) {
      best = cost;
      split_panels_ = by_panels;
      split_units_ = by_units;
    }
  }
}

void ImplicitGemm::choose_chunk(const Machine& machine) {
  const int64_t b_bytes =
      panels_.steps * 4 * panels_.width * ceil_div(static_cast<int64_t>(panel_list_.size()), split_panels_);
  const int64_t units = std::max<int64_t>(1, ceil_div(units_an_image_ * shape_.images, split_units_));
  // What a full unit reads anew: its pixels, without the kernel rows that it shares with its neighbours.
  const int64_t pixel_bytes =
      4 * shape_.depth * shape_.groups * std::min(shape_.stride_h * shape_.stride_w, shape_.kernel_h * shape_.kernel_w);
  const int64_t unit_bytes = std::max<int64_t>(1, pixel_bytes) * kernels_->max_rows;
  prefetch_panels_ = b_bytes > machine.l2_bytes / 2;
  const int64_t limit = prefetch_panels_ ? std::max<int64_t>(8, machine.l2_bytes / 2 / unit_bytes)
                                         : std::max<int64_t>(2, machine.l1_bytes / 2 / unit_bytes);
  const int64_t passes = ceil_div(units, std::min(limit, units));
  chunk_ = ceil_div(units, passes);
  // Pixels whose distance is a multiple of 2 KB share one or two sets of L1, which hold fewer than a tile's rows. Such
  // a matrix is read from a copy with a better distance.
  if (rectangles_.size() != 1 || shape_.groups != 1 || panel_list_.size() < 4) return;
  const Rectangle& r = rectangles_[0];
  if (r.outer != 1 || r.middle != 1 || r.run < 256 || r.input.column * 4 % 2048 != 0) return;
  staging_step_ = r.run + kFloatsALine;
  // Bounded by the limit, not by the chunk: it must not shrink when the output grows.
  const int64_t rows = std::min(shape_.images * shape_.rows * shape_.columns, limit * kernels_->max_rows);
  staging_floats_ = rows * staging_step_;
}

// The first unit of the part of an image's cost before which `share` of it lies.
int64_t ImplicitGemm::unit_at(double share) const {
  const double whole = share * static_cast<double>(shape_.images);
  const auto image = static_cast<int64_t>(whole);
  double rest = (whole - static_cast<double>(image)) * cost_an_image_;
  int64_t unit = image * units_an_image_;
  for (const Rectangle& r : rectangles_) {
    const int64_t units = r.lines * r.segments;
    const auto taken = std::min(units, static_cast<int64_t>(rest / r.unit_cost + 0.5));
    unit += taken;
    if (taken < units) break;
    rest -= static_cast<double>(units) * r.unit_cost;
    if (rest <= 0) break;
  }
  return std::min(unit, shape_.images * units_an_image_);
}

ImplicitGemm::Cursor ImplicitGemm::seek(int64_t unit) const {
  Cursor cursor;
  if (units_an_image_ == 0) return cursor;
  cursor.image = unit / units_an_image_;
  int64_t rest = unit % units_an_image_;
  while (rest >= rectangles_[cursor.rectangle].lines * rectangles_[cursor.rectangle].segments) {
    rest -= rectangles_[cursor.rectangle].lines * rectangles_[cursor.rectangle].segments;
    ++cursor.rectangle;
  }
  cursor.line = rest / rectangles_[cursor.rectangle].segments;
  cursor.segment = rest % rectangles_[cursor.rectangle].segments;
  return cursor;
}

void ImplicitGemm::advance(Cursor& cursor) const {
  const Rectangle& r = rectangles_[cursor.rectangle];
  if (++cursor.segment < r.segments) return;
  cursor.segment = 0;
  if (++cursor.line < r.lines) return;
  cursor.line = 0;
  if (++cursor.rectangle < rectangles_.size()) return;
  cursor.rectangle = 0;
  ++cursor.image;
}

void ImplicitGemm::run_tile(const Job& job, const Cursor& cursor, size_t p, TileArgs& args) const noexcept {
  const Rectangle& r = rectangles_[cursor.rectangle];
  const Panel& panel = panel_list_[p];
  const int64_t first = cursor.segment * r.length / r.segments;
  const int64_t count = (cursor.segment + 1) * r.length / r.segments - first;
  auto place = [&](const View& v) {
    return v.offset + cursor.image * v.image + cursor.line * v.row + first * v.column;
  };
  const bool narrow = panel.width < panels_.width;
  const bool pair = args.panel_stride != 0;
  if (!job.staged) {
    args.a = job.input + place(r.input) + panel.a;
    args.a_step = r.input.column;
  }
  args.outer = r.outer;
  args.middle = r.middle;
  args.run = r.run;
  args.a_outer = r.a_outer;
  args.a_middle = r.a_middle;
  args.b = job.packed + panel.b + r.first_step * panel.width;
  args.b_outer = r.outer_skip * panel.width;
  args.b_middle = 0;
  args.columns = pair ? panel.columns + panel_list_[p + 1].columns : panel.columns;
  const TileFn* kernels = pair ? kernels_->wide : narrow ? kernels_->narrow : kernels_->full;
  float* out = job.output + place(r.output) + panel.channel;
  const auto operand = [&](int index) {
    const View& v = r.operands[index];
    return static_cast<const float*>(job.operands[index]) + place(v) + panel.channel * v.channel;
  };
  if (epilogue_.fused) {
    args.out = out;
    args.out_step = r.output.column;
    args.bias = epilogue_.bias < 0 ? nullptr : operand(epilogue_.bias);
    args.residual = epilogue_.residual < 0 ? nullptr : operand(epilogue_.residual);
    args.residual_step = epilogue_.residual < 0 ? 0 : r.operands[epilogue_.residual].column;
    kernels[count](args);
    return;
  }
  alignas(64) float scratch[2 * kMaxTileRows * 32];
  const int64_t width = pair ? 2 * panel.width : panel.width, columns = args.columns;
  args.out = scratch;
  args.out_step = width;
  args.columns = static_cast<int32_t>(width);
  kernels[count](args);
  TileOperand tile[kMaxRegisters];
  tile[0] = {scratch, width, 1};
  for (size_t i = 0; i < r.operands.size(); ++i) {
    tile[i + 1] = {operand(static_cast<int>(i)), r.operands[i].column, r.operands[i].channel};
  }
  epilogue_.run(epilogue_.program, tile, count, columns, out, r.output.column);
}

void ImplicitGemm::stage(const Job& job, Cursor cursor, int64_t units) const noexcept {
  float* out = job.staging;
  for (; units > 0; --units, advance(cursor)) {
    const Rectangle& r = rectangles_[cursor.rectangle];
    const int64_t first = cursor.segment * r.length / r.segments;
    const int64_t count = (cursor.segment + 1) * r.length / r.segments - first;
    const float* in =
        job.input + r.input.offset + cursor.image * r.input.image + cursor.line * r.input.row + first * r.input.column;
    for (int64_t i = 0; i < count; ++i, in += r.input.column, out += staging_step_) {
      std::memcpy(out, in, static_cast<size_t>(r.run) * sizeof(float));
    }
  }
}

void ImplicitGemm::run(const float* input, const float* packed, float* output, const void* const* operands,
                       std::byte* workspace, const Worker& worker) const noexcept {
  const int unit_part = worker.rank() % split_units_, panel_part = worker.rank() / split_units_;
  const auto panels = static_cast<int64_t>(panel_list_.size());
  const int64_t grain = wide_ ? 2 : 1, grains = ceil_div(panels, grain);
  const int64_t panel_begin = std::min(panels, grains * panel_part / split_panels_ * grain);
  const int64_t panel_end = std::min(panels, grains * (panel_part + 1) / split_panels_ * grain);
  const int64_t all_units = shape_.images * units_an_image_;
  const int64_t unit_begin = unit_at(static_cast<double>(unit_part) / split_units_);
  const int64_t unit_end =
      unit_part + 1 == split_units_ ? all_units : unit_at(static_cast<double>(unit_part + 1) / split_units_);
  Job job{input, packed, output, operands, nullptr, staging_step_ != 0};
  if (job.staged) job.staging = reinterpret_cast<float*>(workspace) + worker.rank() * staging_floats_;
  TileArgs args{};
  args.clamp = epilogue_.fused && epilogue_.clamp;
  args.low = epilogue_.low;
  args.high = epilogue_.high;
  Cursor start = seek(unit_begin);
  for (int64_t unit = unit_begin; unit < unit_end; unit += chunk_) {
    const int64_t units = std::min(chunk_, unit_end - unit);
    if (job.staged) stage(job, start, units);
    Cursor cursor;
    for (int64_t p = panel_begin; p < panel_end;) {
      const Panel &one = panel_list_[p], &two = panel_list_[std::min(p + 1, panels - 1)];
      const bool pair =
          wide_ && p + 1 < panel_end && one.columns == panels_.width && two.width == panels_.width && two.a == one.a;
      args.panel_stride = pair ? two.b - one.b : 0;
      const int64_t next = p + (pair ? 2 : 1);
      // What comes next in B, a part with each tile; with a single tile that is what lies ahead in the same panel.
      const int64_t panel_bytes = panels_.steps * panels_.width * 4;
      int64_t lines = 0;
      const char* ahead = nullptr;
      if (prefetch_panels_) {
        lines = std::max<int64_t>(1, ceil_div(8, units));
        ahead = units == 1
                    ? reinterpret_cast<const char*>(packed + one.b) + 8192
                    : reinterpret_cast<const char*>(packed + panel_list_[next < panel_end ? next : panel_begin].b);
      }
      const char* const ahead_end = ahead + panel_bytes;
      args.a_step = staging_step_;
      args.a = job.staging;
      cursor = start;
      for (int64_t i = 0; i < units; ++i, advance(cursor)) {
        const Rectangle& r = rectangles_[cursor.rectangle];
        args.prefetch = ahead;
        args.prefetch_lines = ahead < ahead_end ? lines : 0;
        args.prefetch_output = epilogue_.fused;
        run_tile(job, cursor, static_cast<size_t>(p), args);
        ahead += r.outer * r.middle * (r.run / 4) * lines * 64;
        if (job.staged) {
          const int64_t count = (cursor.segment + 1) * r.length / r.segments - cursor.segment * r.length / r.segments;
          args.a += count * staging_step_;
        }
      }
      p = next;
    }
    if (panel_begin == panel_end) return;
    start = cursor;
  }
}

}  // namespace flywheel::kernels
