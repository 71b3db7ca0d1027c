// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/view.h"

namespace flywheel::lower {

DimExpr product(const SymShape& dims) {
  DimExpr out(1);
  for (const DimExpr& dim : dims) out = out * dim;
  return out;
}

SymShape contiguous_strides(const SymShape& dims) {
  SymShape strides(dims.size());
  DimExpr stride(1);
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride = stride * dims[i];
  }
  return strides;
}

View View::contiguous(Storage* storage, SymShape dims) {
  View view{storage, DimExpr(0), std::move(dims), {}};
  view.strides = contiguous_strides(view.dims);
  return view;
}

bool View::is_contiguous() const {
  DimExpr stride(1);
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != DimExpr(1) && strides[i] != stride) return false;
    stride = stride * dims[i];
  }
  return true;
}

bool View::innermost_unit() const { return dims.empty() || dims.back() == DimExpr(1) || strides.back() == DimExpr(1); }

std::optional<View> reshape_view(const View& view, const SymShape& dims) {
  View out{view.storage, view.offset, dims, SymShape(dims.size(), DimExpr(0))};
  if (view.is_contiguous()) {
    out.strides = contiguous_strides(dims);
    return out;
  }
  // Walk both shapes from the back, matching groups of equal element count. Within a group the old dims must be
  // mergeable.
  size_t i = view.dims.size(), j = dims.size();
  const DimExpr one(1);
  while (j > 0) {
    if (dims[j - 1] == one) {
      out.strides[--j] = DimExpr(0);
      continue;
    }
    while (i > 0 && view.dims[i - 1] == one) --i;
    if (i == 0) return std::nullopt;
    size_t i_begin = i - 1, j_begin = j - 1;
    DimExpr old_count = view.dims[i_begin], new_count = dims[j_begin];
    while (old_count != new_count) {
      // Grow the side that is a proper factor of the other; symbolic extents grow the old side first when neither is
      // known smaller.
      const auto a = old_count.constant(), b = new_count.constant();
      const bool grow_new = a && b ? *b < *a : (b && !a);
      if (grow_new && j_begin > 0) {
        new_count = new_count * dims[--j_begin];
      } else if (!grow_new && i_begin > 0) {
        old_count = old_count * view.dims[--i_begin];
      } else if (j_begin > 0) {
        new_count = new_count * dims[--j_begin];
      } else if (i_begin > 0) {
        old_count = old_count * view.dims[--i_begin];
      } else {
        return std::nullopt;
      }
    }
    // Old dims [i_begin, i) must lie one inside the other; those of extent 1 lie anywhere. Dim i - 1 is not one of
    // them.
    DimExpr next = view.strides[i - 1] * view.dims[i - 1];
    for (size_t k = i - 1; k-- > i_begin;) {
      if (view.dims[k] == one) continue;
      if (view.strides[k] != next) return std::nullopt;
      next = next * view.dims[k];
    }
    DimExpr stride = view.strides[i - 1];
    for (size_t k = j; k-- > j_begin;) {
      out.strides[k] = stride;
      stride = stride * dims[k];
    }
    i = i_begin;
    j = j_begin;
  }
  return out;
}

View transpose_view(const View& view, const std::vector<int64_t>& permutation) {
  View out{view.storage, view.offset, {}, {}};
  for (int64_t from : permutation) {
    out.dims.push_back(view.dims[static_cast<size_t>(from)]);
    out.strides.push_back(view.strides[static_cast<size_t>(from)]);
  }
  return out;
}

View slice_view(const View& view, size_t axis, const DimExpr& start, int64_t step, const DimExpr& extent) {
  View out = view;
  out.offset = out.offset + start * view.strides[axis];
  out.dims[axis] = extent;
  out.strides[axis] = view.strides[axis] * DimExpr(step);
  return out;
}

View broadcast_view(const View& view, const SymShape& dims) {
  View out{view.storage, view.offset, dims, SymShape(dims.size(), DimExpr(0))};
  const size_t lead = dims.size() - view.dims.size();
  for (size_t i = 0; i < view.dims.size(); ++i) {
    if (view.dims[i] == dims[lead + i]) out.strides[lead + i] = view.strides[i];
  }
  return out;
}

std::optional<View> collapse_leading(const View& view, size_t rank) {
  if (view.dims.size() <= rank) {
    View out = view;
    while (out.dims.size() < rank) {
      out.dims.insert(out.dims.begin(), DimExpr(1));
      out.strides.insert(out.strides.begin(), DimExpr(0));
    }
    return out;
  }
  const size_t merged = view.dims.size() - rank + 1;
  DimExpr count(1);
  for (size_t i = 0; i < merged; ++i) count = count * view.dims[i];
  SymShape dims{count};
  dims.insert(dims.end(), view.dims.begin() + static_cast<long>(merged), view.dims.end());
  // Find the stride of the merged dim: that of its innermost dim with extent != 1, if all outer ones nest.
  View out{view.storage, view.offset, dims, {}};
  DimExpr stride(0), next(0);
  bool found = false;
  for (size_t i = merged; i-- > 0;) {
    if (view.dims[i] == DimExpr(1)) continue;
    if (!found) {
      stride = view.strides[i];
      found = true;
    } else if (view.strides[i] != next) {
      return std::nullopt;
    }
    next = view.strides[i] * view.dims[i];
  }
  out.strides.push_back(stride);
  out.strides.insert(out.strides.end(), view.strides.begin() + static_cast<long>(merged), view.strides.end());
  return out;
}

}  // namespace flywheel::lower
