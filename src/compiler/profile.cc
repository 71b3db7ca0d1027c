// SPDX-License-Identifier: Apache-2.0
#include "compiler/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace flywheel {
namespace {

Result<std::vector<int64_t>> parse_dims(std::string_view text) {
  std::vector<int64_t> dims;
  if (text.empty() || text == "scalar") return dims;
  for (;;) {
    const size_t end = text.find('x');
    const std::string_view part = text.substr(0, end);
    int64_t dim = 0;
    auto [parsed, error] = std::from_chars(part.data(), part.data() + part.size(), dim);
    if (error != std::errc() || parsed != part.data() + part.size() || dim < 0) {
      return invalid_argument(
          fmt::format("'{}' is not an extent: expected numbers joined by x, such as 1x3x224x224", part));
    }
    dims.push_back(dim);
    if (dims.size() > static_cast<size_t>(kMaxRank))
      return invalid_argument(fmt::format("a shape has at most {} dims", kMaxRank));
    if (end == std::string_view::npos) return dims;
    text = text.substr(end + 1);
  }
}

struct Range {
  int64_t min, opt, max;
};

// Chosen so that a model can be tried without a word about shapes; the build prints them with the flag that changes
// them.
Range default_range(const ir::Value& input, size_t dim, bool dynamic_image) {
  if (dim == 0) return dynamic_image ? Range{1, 1, 8} : Range{1, 8, 32};
  if (dynamic_image) return {32, 256, 512};
  if (!is_float(input.dtype)) return {1, 128, 512};
  return {1, 64, 256};
}

std::optional<Range> hinted_range(const ir::Value& input, size_t dim, const ShapeHints& hints) {
  if (auto it = hints.dims.find(input.name); it != hints.dims.end() && it->second.size() == input.shape.size()) {
    if (const int64_t extent = it->second[dim]; extent >= 0) return Range{extent, extent, extent};
  }
  if (dim > 0 || hints.max_batch <= 0) return std::nullopt;
  return Range{1, std::min<int64_t>(8, hints.max_batch), hints.max_batch};
}

}  // namespace

Result<std::pair<std::string, ProfileShape>> parse_profile(std::string_view text) {
  // Tensor names may contain colons; shapes may not.
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return invalid_argument(fmt::format(
        "profile '{}' has no input name: expected NAME:MIN,OPT,MAX such as x:1x3x224x224,8x3x224x224,32x3x224x224",
        text));
  }
  std::vector<std::vector<int64_t>> shapes;
  std::string_view rest = text.substr(colon + 1);
  for (;;) {
    const size_t comma = rest.find(',');
    Result<std::vector<int64_t>> dims = parse_dims(rest.substr(0, comma));
    if (!dims.is_ok()) return dims.status().with_context(fmt::format("profile '{}'", text));
    shapes.push_back(std::move(*dims));
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  if (shapes.size() != 1 && shapes.size() != 3) {
    return invalid_argument(
        fmt::format("profile '{}' has {} shapes: expected one, or three for min, opt and max", text, shapes.size()));
  }
  ProfileShape shape{shapes.front(), shapes[shapes.size() / 2], shapes.back()};
  return std::pair{std::string(text.substr(0, colon)), shape};
}

std::string profile_to_string(const std::string& name, const ProfileShape& shape) {
  return fmt::format("{}:{},{},{}", name, dims_to_string(shape.min), dims_to_string(shape.opt),
                     dims_to_string(shape.max));
}

Result<std::map<std::string, ProfileShape>> complete_profile(const ir::Graph& graph,
                                                             const std::map<std::string, ProfileShape>& given,
                                                             const ShapeHints& hints, std::vector<std::string>& notes) {
  std::map<std::string, ProfileShape> profile = given;
  // A symbol that a given profile covers has that range in the other inputs, too.
  std::map<std::string, Range> known;
  for (const ir::Value* input : graph.inputs()) {
    auto it = given.find(input->name);
    if (it == given.end() || it->second.opt.size() != input->shape.size()) continue;
    for (size_t d = 0; d < input->shape.size(); ++d) {
      if (input->shape[d].is_symbol())
        known[input->shape[d].symbol_name()] = {it->second.min[d], it->second.opt[d], it->second.max[d]};
    }
  }
  for (const ir::Value* input : graph.inputs()) {
    if (profile.contains(input->name)) continue;
    for (size_t d = 0; d < input->shape.size(); ++d) {
      if (input->shape[d].is_constant()) continue;
      if (std::optional<Range> hinted = hinted_range(*input, d, hints))
        known.try_emplace(input->shape[d].to_string(), *hinted);
    }
  }
  for (const ir::Value* input : graph.inputs()) {
    if (profile.contains(input->name)) continue;
    bool dynamic_image = false;
    for (size_t d = 2; d < input->shape.size(); ++d)
      dynamic_image |= input->rank() == 4 && !input->shape[d].is_constant();
    ProfileShape shape;
    bool defaulted = false;
    for (size_t d = 0; d < input->shape.size(); ++d) {
      Range range{};
      if (auto fixed = input->shape[d].constant()) {
        range = {*fixed, *fixed, *fixed};
      } else {
        auto [it, fresh] = known.try_emplace(input->shape[d].to_string(), default_range(*input, d, dynamic_image));
        range = it->second;
        defaulted |= fresh;
      }
      shape.min.push_back(range.min);
      shape.opt.push_back(range.opt);
      shape.max.push_back(range.max);
    }
    if (defaulted) {
      notes.push_back(fmt::format("input '{}' has shape {}; the default profile is --profile {}", input->name,
                                  sym_shape_to_string(input->shape), profile_to_string(input->name, shape)));
    }
    profile[input->name] = std::move(shape);
  }
  return profile;
}

}  // namespace flywheel
