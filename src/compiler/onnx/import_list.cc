// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/import_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/onnx/import_functions.h"
#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

constexpr ImportRow kRows[] = {
#define FLYWHEEL_IMPORT(domain, op_type, since, min_inputs, max_inputs, max_outputs, function) \
  {domain, op_type, since, min_inputs, max_inputs, max_outputs, function},
#include "compiler/onnx/import_list.inc"
#undef FLYWHEEL_IMPORT
};

struct Reason {
  std::string_view op_type, why;
};
constexpr std::string_view kControlFlow = "control flow whose path depends on data is not supported";
constexpr std::string_view kDataShape = "the shape of its result depends on data, which is not supported";
constexpr std::string_view kSequence = "sequences and optionals are not supported";
constexpr std::string_view kString = "strings are not supported";
constexpr std::string_view kRandom = "random results are not supported";
constexpr std::string_view kQuantized = "quantized operators are not supported; import the model in floating point";
constexpr Reason kReasons[] = {
    {"If", kControlFlow},
    {"Loop", kControlFlow},
    {"Scan", kControlFlow},
    {"NonZero", kDataShape},
    {"NonMaxSuppression", kDataShape},
    {"Unique", kDataShape},
    {"Compress", kDataShape},
    {"SequenceAt", kSequence},
    {"SequenceConstruct", kSequence},
    {"SequenceEmpty", kSequence},
    {"SequenceErase", kSequence},
    {"SequenceInsert", kSequence},
    {"SequenceLength", kSequence},
    {"SequenceMap", kSequence},
    {"SplitToSequence", kSequence},
    {"ConcatFromSequence", kSequence},
    {"Optional", kSequence},
    {"OptionalGetElement", kSequence},
    {"OptionalHasElement", kSequence},
    {"StringConcat", kString},
    {"StringNormalizer", kString},
    {"StringSplit", kString},
    {"RegexFullMatch", kString},
    {"TfIdfVectorizer", kString},
    {"RandomNormal", kRandom},
    {"RandomNormalLike", kRandom},
    {"RandomUniform", kRandom},
    {"RandomUniformLike", kRandom},
    {"Multinomial", kRandom},
    {"Bernoulli", kRandom},
    {"QuantizeLinear", kQuantized},
    {"DequantizeLinear", kQuantized},
    {"DynamicQuantizeLinear", kQuantized},
    {"QLinearConv", kQuantized},
    {"QLinearMatMul", kQuantized},
    {"ConvInteger", kQuantized},
    {"MatMulInteger", kQuantized},
};

}  // namespace

const ImportRow* find_import(std::string_view domain, std::string_view op_type, int64_t version) {
  const std::string_view key = is_ai_onnx(domain) ? "" : domain;
  const ImportRow* best = nullptr;
  for (const ImportRow& row : kRows) {
    if (row.domain != key || row.op_type != op_type || row.since_version > version) continue;
    if (best == nullptr || row.since_version > best->since_version) best = &row;
  }
  return best;
}

std::string why_no_import(std::string_view domain, std::string_view op_type) {
  const std::string_view key = is_ai_onnx(domain) ? "" : domain;
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const ImportRow& r) { return r.domain == key && r.op_type == op_type; });
  if (row != std::end(kRows)) return fmt::format("this operator exists from opset {} on", row->since_version);
  if (key.empty()) {
    for (const Reason& reason : kReasons) {
      if (reason.op_type == op_type) return std::string(reason.why);
    }
    return "the operator is not supported";
  }
  return "operators of this domain are not supported, unless the model brings them as functions";
}

}  // namespace flywheel::onnx_import
