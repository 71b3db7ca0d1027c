// SPDX-License-Identifier: Apache-2.0
#include "server/config/data_type.h"

namespace flywheel::config {
namespace {

struct Row {
  std::string_view config;
  std::string_view protocol;
  size_t bytes;
};

constexpr Row kRows[] = {
    {"TYPE_INVALID", "<invalid>", 0}, {"TYPE_BOOL", "BOOL", 1},     {"TYPE_UINT8", "UINT8", 1},
    {"TYPE_UINT16", "UINT16", 2},     {"TYPE_UINT32", "UINT32", 4}, {"TYPE_UINT64", "UINT64", 8},
    {"TYPE_INT8", "INT8", 1},         {"TYPE_INT16", "INT16", 2},   {"TYPE_INT32", "INT32", 4},
    {"TYPE_INT64", "INT64", 8},       {"TYPE_FP16", "FP16", 2},     {"TYPE_FP32", "FP32", 4},
    {"TYPE_FP64", "FP64", 8},         {"TYPE_STRING", "BYTES", 0},  {"TYPE_BF16", "BF16", 2},
};

const Row& row(DataType type) {
  size_t index = static_cast<size_t>(type);
  return kRows[index < std::size(kRows) ? index : 0];
}

}  // namespace

std::string_view protocol_name(DataType type) { return row(type).protocol; }
std::string_view config_name(DataType type) { return row(type).config; }
size_t element_bytes(DataType type) { return row(type).bytes; }

std::optional<DataType> data_type_from_protocol(std::string_view name) {
  for (size_t i = 1; i < std::size(kRows); ++i)
    if (kRows[i].protocol == name) return static_cast<DataType>(i);
  return std::nullopt;
}

}  // namespace flywheel::config
