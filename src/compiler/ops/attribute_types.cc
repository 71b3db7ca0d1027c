// SPDX-License-Identifier: Apache-2.0
#include "compiler/ops/attribute_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace flywheel::ops {
namespace {

enum class Type { kInt, kFloat, kText, kInts, kFloats, kDims, kTensor, kProgram, kDimsOrFloat, kDType };

struct Row {
  std::string_view name;
  Type type;
};

constexpr Row kRows[] = {
    {"activation_alpha", Type::kFloats},
    {"activation_beta", Type::kFloats},
    {"activations", Type::kInts},
    {"allowzero", Type::kInt},
    {"alpha", Type::kFloat},
    {"approximate", Type::kText},
    {"auto_pad", Type::kText},
    {"axes", Type::kInts},
    {"axis", Type::kInt},
    {"batch_dims", Type::kInt},
    {"beta", Type::kFloat},
    {"blocksize", Type::kInt},
    {"causal", Type::kInt},
    {"ceil_mode", Type::kInt},
    {"cell", Type::kText},
    {"clip", Type::kFloat},
    {"coordinate_transformation_mode", Type::kText},
    {"count", Type::kDims},
    {"count_include_pad", Type::kInt},
    {"cubic_coeff_a", Type::kFloat},
    {"depth", Type::kDims},
    {"dilations", Type::kInts},
    {"dtype", Type::kDType},
    {"end", Type::kInt},
    {"ends", Type::kDims},
    {"epsilon", Type::kFloat},
    {"equation", Type::kText},
    {"exclude_outside", Type::kInt},
    {"exclusive", Type::kInt},
    {"extrapolation_value", Type::kFloat},
    {"fmod", Type::kInt},
    {"group", Type::kInt},
    {"input_forget", Type::kInt},
    {"k", Type::kInt},
    {"keepdims", Type::kInt},
    {"kernel_shape", Type::kInts},
    {"largest", Type::kInt},
    {"layout", Type::kText},
    {"mask_kind", Type::kInt},
    {"masked_rows_to_zero", Type::kInt},
    {"max", Type::kFloat},
    {"min", Type::kFloat},
    {"mode", Type::kText},
    {"nearest_mode", Type::kText},
    {"num_groups", Type::kInt},
    {"num_outputs", Type::kInt},
    {"output_padding", Type::kInts},
    {"p", Type::kInt},
    {"perm", Type::kInts},
    {"pads", Type::kDims},
    {"program", Type::kProgram},
    {"ratio", Type::kFloat},
    {"reduction", Type::kText},
    {"reverse", Type::kInt},
    {"repeats", Type::kDims},
    {"scale", Type::kFloat},
    {"scales", Type::kFloats},
    {"select_last_index", Type::kInt},
    {"shape", Type::kDims},
    {"sizes", Type::kDims},
    {"sorted", Type::kInt},
    {"split", Type::kDims},
    {"start", Type::kDimsOrFloat},
    {"starts", Type::kDims},
    {"step", Type::kDimsOrFloat},
    {"steps", Type::kInts},
    {"strides", Type::kInts},
    {"to", Type::kDType},
    {"transA", Type::kInt},
    {"transB", Type::kInt},
    {"upper", Type::kInt},
    {"value", Type::kTensor},
};

bool fits(Type type, const ir::Attribute& attribute) {
  bool is_int = std::holds_alternative<int64_t>(attribute);
  bool is_ints = std::holds_alternative<std::vector<int64_t>>(attribute);
  switch (type) {
    case Type::kInt: return is_int;
    case Type::kFloat: return is_int || std::holds_alternative<double>(attribute);
    case Type::kText: return std::holds_alternative<std::string>(attribute);
    case Type::kInts: return is_ints;
    case Type::kFloats: return std::holds_alternative<std::vector<double>>(attribute);
    case Type::kDims: return is_ints || std::holds_alternative<SymShape>(attribute);
    case Type::kTensor:
      return std::holds_alternative<ir::ConstTensor>(attribute) || std::holds_alternative<double>(attribute) || is_int;
    case Type::kProgram: return std::holds_alternative<kernels::Program>(attribute);
    case Type::kDimsOrFloat: return fits(Type::kDims, attribute) || fits(Type::kFloat, attribute);
    case Type::kDType: return is_int || std::holds_alternative<std::string>(attribute);
  }
  return false;
}

std::string_view type_text(Type type) {
  constexpr std::string_view kTexts[] = {"an integer",
                                         "a number",
                                         "text",
                                         "integers",
                                         "numbers",
                                         "dims",
                                         "a tensor or a number",
                                         "a program",
                                         "dims or a number",
                                         "a type's number or name"};
  return kTexts[static_cast<int>(type)];
}

}  // namespace

std::string_view attribute_type_name(const ir::Attribute& attribute) {
  constexpr std::string_view kTexts[] = {"an integer", "a number", "text",     "integers",  "numbers",
                                         "texts",      "dims",     "a tensor", "a program", "a graph"};
  return attribute.valueless_by_exception() ? "nothing" : kTexts[attribute.index()];
}

Status check_attribute_type(std::string_view name, const ir::Attribute& attribute) {
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
  if (row == std::end(kRows) || fits(row->type, attribute)) return Status::ok();
  return invalid_argument(
      fmt::format("attribute {} is {}; expected {}", name, attribute_type_name(attribute), type_text(row->type)));
}

}  // namespace flywheel::ops
