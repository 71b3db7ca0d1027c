// SPDX-License-Identifier: Apache-2.0
// Prints a configuration as JSON by walking its descriptor. protobuf's own printer writes 64-bit integers as strings,
// which clients of the configuration endpoint do not expect.
#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "server/config/model_config.pb.h"
#include "server/config/parse_config.h"

namespace flywheel::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// How many bytes the UTF-8 character at `at` has; 0 if there is none.
size_t utf8_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(at);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : (lead & 0xf0) == 0xe0       ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte(at + 1);
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool beyond = (lead == 0xed && second >= 0xa0) || (lead == 0xf4 && second >= 0x90);
  return overlong || beyond ? 0 : length;
}

// A string may hold any bytes, but JSON is UTF-8: what is not becomes the replacement character.
void append_string(const std::string& text, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length != 1) {
      out += length == 0 ? "\\ufffd" : text.substr(at, length);
      at += std::max<size_t>(length, 1);
      continue;
    }
    const char c = text[at++];
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append_double(double value, std::string& out) {
  // JSON has no infinities; protobuf's convention is a string.
  if (std::isfinite(value)) {
    out += fmt::format("{}", value);
  } else {
    out += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  }
}

void append_message(const Message& message, std::string& out);

// One value: of a singular field when `index` is negative, else of a repeated one.
void append_value(const Message& message, const FieldDescriptor* field, int index, std::string& out) {
  const Reflection* r = message.GetReflection();
  const bool single = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      out += fmt::format("{}", single ? r->GetInt32(message, field) : r->GetRepeatedInt32(message, field, index));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      out += fmt::format("{}", single ? r->GetInt64(message, field) : r->GetRepeatedInt64(message, field, index));
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      out += fmt::format("{}", single ? r->GetUInt32(message, field) : r->GetRepeatedUInt32(message, field, index));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      out += fmt::format("{}", single ? r->GetUInt64(message, field) : r->GetRepeatedUInt64(message, field, index));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      append_double(single ? r->GetDouble(message, field) : r->GetRepeatedDouble(message, field, index), out);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      append_double(single ? r->GetFloat(message, field) : r->GetRepeatedFloat(message, field, index), out);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      out += (single ? r->GetBool(message, field) : r->GetRepeatedBool(message, field, index)) ? "true" : "false";
      break;
    case FieldDescriptor::CPPTYPE_ENUM: {
      // An open enum may hold a number without a name.
      int number = single ? r->GetEnumValue(message, field) : r->GetRepeatedEnumValue(message, field, index);
      const auto* value = field->enum_type()->FindValueByNumber(number);
      if (value != nullptr) {
        append_string(value->name(), out);
      } else {
        out += fmt::format("{}", number);
      }
      break;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      append_string(single ? r->GetString(message, field) : r->GetRepeatedString(message, field, index), out);
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      append_message(single ? r->GetMessage(message, field) : r->GetRepeatedMessage(message, field, index), out);
      break;
  }
}

// Maps come in no particular order, and equal configurations should print the same text: sorted by key.
void append_map(const Message& message, const FieldDescriptor* field, std::string& out) {
  const Reflection* r = message.GetReflection();
  const FieldDescriptor* key = field->message_type()->map_key();
  const FieldDescriptor* value = field->message_type()->map_value();
  std::vector<std::pair<std::string, std::string>> entries;
  for (int i = 0; i < r->FieldSize(message, field); ++i) {
    const Message& entry = r->GetRepeatedMessage(message, field, i);
    std::pair<std::string, std::string> text;
    append_value(entry, key, -1, text.first);
    if (key->cpp_type() != FieldDescriptor::CPPTYPE_STRING) text.first = '"' + text.first + '"';
    append_value(entry, value, -1, text.second);
    entries.push_back(std::move(text));
  }
  std::sort(entries.begin(), entries.end());
  out += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ',';
    out += entries[i].first;
    out += ':';
    out += entries[i].second;
  }
  out += '}';
}

void append_message(const Message& message, std::string& out) {
  const Reflection* r = message.GetReflection();
  const auto* descriptor = message.GetDescriptor();
  out += '{';
  bool first = true;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    // What can be absent is left out when it is; everything else is printed, defaults included.
    if (field->has_presence() && !r->HasField(message, field)) continue;
    if (!first) out += ',';
    first = false;
    append_string(field->name(), out);
    out += ':';
    if (field->is_map()) {
      append_map(message, field, out);
    } else if (field->is_repeated()) {
      out += '[';
      for (int j = 0; j < r->FieldSize(message, field); ++j) {
        if (j > 0) out += ',';
        append_value(message, field, j, out);
      }
      out += ']';
    } else {
      append_value(message, field, -1, out);
    }
  }
  out += '}';
}

}  // namespace

std::string config_to_json(const ModelConfig& config) {
  std::string out;
  append_message(*config.message, out);
  return out;
}

}  // namespace flywheel::config
