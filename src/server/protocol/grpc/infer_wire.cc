// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/infer_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace flywheel::grpc {
namespace {

using config::DataType;

// A part of two bytes can cost a hundred times as much once it is read.
constexpr size_t kMaxParts = 4096;
constexpr size_t kMaxDims = 64;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5 };

Status malformed() { return internal_error("the request is no ModelInferRequest: it cannot be parsed"); }
Status too_many(std::string_view what) {
  return invalid_argument(fmt::format("the request has more than {} {}", kMaxParts, what));
}

std::string_view text_of(WireBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Goes through the fields of one message. After a failure it gives no more.
class Fields {
 public:
  explicit Fields(WireBytes message) : at_(message.data()), end_(message.data() + message.size()) {}

  bool next() {
    if (failed_ || at_ == end_) return false;
    uint32_t tag = 0;
    if (!read_tag(tag)) return fail();
    field_ = tag >> 3;
    type_ = tag & 7;
    switch (type_) {
      case kVarint: return read_varint(number_) || fail();
      case kFixed64: return read_fixed(8) || fail();
      case kFixed32: return read_fixed(4) || fail();
      case kLength: {
        uint64_t length = 0;
        if (!read_varint(length) || length > static_cast<uint64_t>(end_ - at_)) return fail();
        bytes_ = {at_, static_cast<size_t>(length)};
        at_ += length;
        return true;
      }
      case kStartGroup: return skip_group(field_, 1) || fail();
      default: return fail();
    }
  }
  bool failed() const { return failed_; }
  bool is(uint32_t field, WireType type) const { return field_ == field && type_ == type; }
  uint32_t field() const { return field_; }
  uint32_t type() const { return type_; }
  uint64_t number() const { return number_; }
  WireBytes bytes() const { return bytes_; }
  const std::byte* at() const { return at_; }

  bool read_varint(uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (at_ == end_) return false;
      const uint64_t byte = std::to_integer<uint64_t>(*at_++);
      if (shift < 64) value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

 private:
  bool fail() {
    failed_ = true;
    return false;
  }
  // Of five bytes at most, and of what they say 32 bits: the rest is dropped, as protobuf does.
  bool read_tag(uint32_t& tag) {
    tag = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
      if (at_ == end_) return false;
      const uint32_t byte = std::to_integer<uint32_t>(*at_++);
      tag |= (byte & 0x7F) << shift;
      if (byte < 0x80) return (tag >> 3) != 0;
    }
    return false;
  }
  bool read_fixed(size_t size) {
    if (static_cast<size_t>(end_ - at_) < size) return false;
    number_ = 0;
    std::memcpy(&number_, at_, size);
    at_ += size;
    return true;
  }
  // Proto3 has no groups; an unknown field may be one.
  bool skip_group(uint32_t group, int depth) {
    if (depth > 32) return false;
    while (true) {
      uint32_t tag = 0;
      uint64_t ignored = 0;
      if (!read_tag(tag)) return false;
      switch (tag & 7) {
        case kVarint:
          if (!read_varint(ignored)) return false;
          break;
        case kFixed64:
          if (!read_fixed(8)) return false;
          break;
        case kFixed32:
          if (!read_fixed(4)) return false;
          break;
        case kLength:
          if (!read_varint(ignored) || ignored > static_cast<uint64_t>(end_ - at_)) return false;
          at_ += ignored;
          break;
        case kStartGroup:
          if (!skip_group(tag >> 3, depth + 1)) return false;
          break;
        case kEndGroup: return (tag >> 3) == group;
        default: return false;
      }
    }
  }

  const std::byte* at_;
  const std::byte* end_;
  uint32_t field_ = 0;
  uint32_t type_ = 0;
  uint64_t number_ = 0;
  WireBytes bytes_;
  bool failed_ = false;
};

// Proto3's strings are UTF-8, or the message does not parse.
bool is_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
    const unsigned char first = byte(i);
    if (first < 0x80) {
      ++i;
      continue;
    }
    size_t more = 0;
    unsigned char low = 0x80, high = 0xBF;
    if (first >= 0xC2 && first <= 0xDF) {
      more = 1;
    } else if (first >= 0xE0 && first <= 0xEF) {
      more = 2;
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
    } else if (first >= 0xF0 && first <= 0xF4) {
      more = 3;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    } else {
      return false;
    }
    if (text.size() - i <= more) return false;
    if (byte(i + 1) < low || byte(i + 1) > high) return false;
    for (size_t k = 2; k <= more; ++k) {
      if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) return false;
    }
    i += 1 + more;
  }
  return true;
}

bool read_string(const Fields& fields, std::string_view& out) {
  out = text_of(fields.bytes());
  return is_utf8(out);
}

bool read_value(WireBytes message, WireValue& out) {
  Fields fields(message);
  while (fields.next()) {
    if (fields.is(1, kVarint)) out = fields.number() != 0;
    if (fields.is(2, kVarint)) out = static_cast<int64_t>(fields.number());
    if (fields.is(5, kVarint)) out = fields.number();
    if (fields.is(4, kFixed64)) out = std::bit_cast<double>(fields.number());
    if (fields.is(3, kLength)) {
      std::string_view text;
      if (!read_string(fields, text)) return false;
      out = text;
    }
  }
  return !fields.failed();
}

// An entry of a map<string, InferParameter>.
Status read_parameter(WireBytes message, std::vector<WireParameter>& out) {
  WireParameter parameter;
  Fields fields(message);
  while (fields.next()) {
    if (fields.is(1, kLength) && !read_string(fields, parameter.key)) return malformed();
    if (fields.is(2, kLength) && !read_value(fields.bytes(), parameter.value)) return malformed();
  }
  if (fields.failed()) return malformed();
  for (WireParameter& known : out) {
    if (known.key != parameter.key) continue;
    known = parameter;
    return {};
  }
  // The search above is quadratic: not a part's limit but a lower one.
  if (out.size() >= kMaxParts / 8) {
    return invalid_argument(fmt::format("the request has more than {} parameters", kMaxParts / 8));
  }
  out.push_back(parameter);
  return {};
}

Status read_shape(Fields& fields, std::vector<int64_t>& shape) {
  if (fields.type() == kVarint) {
    shape.push_back(static_cast<int64_t>(fields.number()));
  } else if (fields.type() == kLength) {
    Fields packed(fields.bytes());
    const std::byte* end = fields.bytes().data() + fields.bytes().size();
    while (packed.at() != end) {
      uint64_t dim = 0;
      if (!packed.read_varint(dim)) return malformed();
      shape.push_back(static_cast<int64_t>(dim));
      if (shape.size() > kMaxDims) break;
    }
  }
  if (shape.size() > kMaxDims) {
    return invalid_argument(fmt::format("an input's shape has more than {} dimensions", kMaxDims));
  }
  return {};
}

// The contents' wire form is checked when they are read.
Status read_input(WireBytes message, WireInput& input) {
  Fields fields(message);
  while (fields.next()) {
    if (fields.is(1, kLength) && !read_string(fields, input.name)) return malformed();
    if (fields.is(2, kLength) && !read_string(fields, input.datatype)) return malformed();
    if (fields.field() == 3) FW_RETURN_IF_ERROR(read_shape(fields, input.shape));
    if (fields.is(4, kLength)) FW_RETURN_IF_ERROR(read_parameter(fields.bytes(), input.parameters));
    if (fields.is(5, kLength)) {
      if (input.contents.size() >= kMaxParts) return too_many("pieces of an input's contents");
      input.contents.push_back(fields.bytes());
    }
  }
  return fields.failed() ? malformed() : Status();
}

Status read_output(WireBytes message, WireOutput& output) {
  Fields fields(message);
  while (fields.next()) {
    if (fields.is(1, kLength) && !read_string(fields, output.name)) return malformed();
    if (fields.is(2, kLength)) FW_RETURN_IF_ERROR(read_parameter(fields.bytes(), output.parameters));
  }
  return fields.failed() ? malformed() : Status();
}

}  // namespace

void WireRequest::clear() {
  constexpr size_t kKeptParts = 64;
  if (inputs.capacity() > kKeptParts || raw_contents.capacity() > kKeptParts || outputs.capacity() > kKeptParts) {
    *this = WireRequest();
    return;
  }
  model_name = model_version = id = {};
  parameters.clear();
  inputs.clear();
  outputs.clear();
  raw_contents.clear();
}

Status read_infer_request(WireBytes message, WireRequest& out) {
  Fields fields(message);
  while (fields.next()) {
    if (fields.type() != kLength) continue;
    switch (fields.field()) {
      case 1:
        if (!read_string(fields, out.model_name)) return malformed();
        break;
      case 2:
        if (!read_string(fields, out.model_version)) return malformed();
        break;
      case 3:
        if (!read_string(fields, out.id)) return malformed();
        break;
      case 4: FW_RETURN_IF_ERROR(read_parameter(fields.bytes(), out.parameters)); break;
      case 5:
        if (out.inputs.size() >= kMaxParts) return too_many("inputs");
        FW_RETURN_IF_ERROR(read_input(fields.bytes(), out.inputs.emplace_back()));
        break;
      case 6:
        if (out.outputs.size() >= kMaxParts) return too_many("outputs");
        FW_RETURN_IF_ERROR(read_output(fields.bytes(), out.outputs.emplace_back()));
        break;
      case 7:
        if (out.raw_contents.size() >= kMaxParts) return too_many("raw tensors");
        out.raw_contents.push_back(fields.bytes());
        break;
      default: break;
    }
  }
  return fields.failed() ? malformed() : Status();
}

size_t find_raw_contents(WireBytes beginning) {
  size_t at = 0;
  auto read_varint = [&]() -> std::optional<uint64_t> {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && at < beginning.size(); shift += 7) {
      const uint64_t byte = std::to_integer<uint64_t>(beginning[at++]);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  };
  while (at < beginning.size()) {
    const std::optional<uint64_t> tag = read_varint();
    if (!tag || (*tag & 7) != kLength) return 0;
    const std::optional<uint64_t> length = read_varint();
    if (!length) return 0;
    if (*tag >> 3 == 7) return at;
    if (*length > beginning.size() - at) return 0;
    at += static_cast<size_t>(*length);
  }
  return 0;
}

namespace {

// InferTensorContents' lists, by their field.
enum ContentsField : uint32_t { kBool = 1, kInt, kInt64, kUint, kUint64, kFp32, kFp64, kBytes, kContentsFields };

WireType element_type(uint32_t field) {
  return field == kFp32 ? kFixed32 : field == kFp64 ? kFixed64 : field == kBytes ? kLength : kVarint;
}

// The type that a list is for, given the input's: 8 and 16 bit integers share the lists of 32 bits.
DataType list_type(uint32_t field, DataType input) {
  switch (field) {
    case kBool: return DataType::kBool;
    case kInt: return input == DataType::kInt8 || input == DataType::kInt16 ? input : DataType::kInt32;
    case kInt64: return DataType::kInt64;
    case kUint: return input == DataType::kUint8 || input == DataType::kUint16 ? input : DataType::kUint32;
    case kUint64: return DataType::kUint64;
    case kFp32: return DataType::kFp32;
    case kFp64: return DataType::kFp64;
    default: return DataType::kString;
  }
}

// How much the lists hold.
struct ContentsSize {
  size_t elements[kContentsFields] = {};
  size_t string_bytes = 0;
  WireBytes packed;  // the last packed list
};

Status measure(const WireInput& input, ContentsSize& size) {
  for (const WireBytes& piece : input.contents) {
    Fields fields(piece);
    while (fields.next()) {
      const uint32_t field = fields.field();
      if (field < kBool || field >= kContentsFields) continue;
      if (field == kBytes) {
        if (fields.type() != kLength) continue;
        if (fields.bytes().size() > UINT32_MAX) return malformed();
        size.string_bytes += fields.bytes().size();
        ++size.elements[field];
      } else if (fields.type() == element_type(field)) {
        ++size.elements[field];
      } else if (fields.type() == kLength) {
        const WireBytes bytes = fields.bytes();
        if (element_type(field) == kVarint) {
          // Each varint's last byte is the one below 0x80.
          size.elements[field] += static_cast<size_t>(
              std::count_if(bytes.begin(), bytes.end(), [](std::byte b) { return b < std::byte{0x80}; }));
          if (!bytes.empty() && bytes.back() >= std::byte{0x80}) return malformed();
        } else {
          const size_t width = field == kFp32 ? 4 : 8;
          if (bytes.size() % width != 0) return malformed();
          size.elements[field] += bytes.size() / width;
        }
        if (!bytes.empty()) size.packed = bytes;
      }
    }
    if (fields.failed()) return malformed();
  }
  return {};
}

// The list's elements, little endian, `width` bytes each.
Status copy_elements(const WireInput& input, uint32_t wanted, size_t width, std::byte* out) {
  auto put = [&](uint64_t value) {
    // A bool is any number but 0; bytes beyond the width are cut off, as they are for 8 and 16 bit integers.
    if (wanted == kBool) value = value != 0 ? 1 : 0;
    std::memcpy(out, &value, width);
    out += width;
  };
  for (const WireBytes& piece : input.contents) {
    Fields fields(piece);
    while (fields.next()) {
      if (fields.field() != wanted) continue;
      if (wanted == kBytes) {
        if (fields.type() != kLength) continue;
        const uint32_t length = static_cast<uint32_t>(fields.bytes().size());
        std::memcpy(out, &length, sizeof length);
        if (length > 0) std::memcpy(out + sizeof length, fields.bytes().data(), length);
        out += sizeof length + length;
      } else if (fields.type() == element_type(wanted)) {
        put(fields.number());
      } else if (fields.type() == kLength && element_type(wanted) == kVarint) {
        Fields packed(fields.bytes());
        const std::byte* end = fields.bytes().data() + fields.bytes().size();
        while (packed.at() != end) {
          uint64_t value = 0;
          if (!packed.read_varint(value)) return malformed();
          put(value);
        }
      } else if (fields.type() == kLength && !fields.bytes().empty()) {
        std::memcpy(out, fields.bytes().data(), fields.bytes().size());
        out += fields.bytes().size();
      }
    }
  }
  return {};
}

}  // namespace

Result<TensorBytes> read_contents(const WireInput& input, DataType type, std::string_view model_name) {
  ContentsSize size;
  FW_RETURN_IF_ERROR(measure(input, size));
  uint32_t chosen = 0;
  for (uint32_t field = kBool; field < kContentsFields; ++field) {
    if (size.elements[field] == 0) continue;
    if (chosen != 0) {
      return invalid_argument(
          fmt::format("unexpected explicit tensor data for input tensor '{}' for model '{}', binary data was already "
                      "supplied.",
                      input.name, model_name));
    }
    chosen = field;
    const DataType list = list_type(field, type);
    if (list != type) {
      return invalid_argument(
          fmt::format("unexpected explicit tensor data for input tensor '{}' for model '{}' of type '{}', expected "
                      "datatype '{}'",
                      input.name, model_name, config::protocol_name(list), config::protocol_name(type)));
    }
  }
  TensorBytes result;
  if (chosen == 0) return result;
  const size_t width = chosen == kBytes ? sizeof(uint32_t) : config::element_bytes(type);
  const size_t total = size.elements[chosen] * width + (chosen == kBytes ? size.string_bytes : 0);
  const bool same_on_the_wire = chosen == kFp32 || chosen == kFp64;
  if (same_on_the_wire && size.packed.size() == total) {
    result.bytes = size.packed;
    return result;
  }
  result.owned = std::make_unique_for_overwrite<std::byte[]>(total);
  FW_RETURN_IF_ERROR(copy_elements(input, chosen, width, result.owned.get()));
  result.bytes = {result.owned.get(), total};
  return result;
}

// -----------------------------------------------------------------------------------------------------------------------

void append_varint(std::string& text, uint64_t value) {
  while (value >= 0x80) {
    text += static_cast<char>((value & 0x7F) | 0x80);
    value >>= 7;
  }
  text += static_cast<char>(value);
}

void append_bytes_field(std::string& text, uint32_t field, std::string_view value) {
  append_varint(text, field << 3 | kLength);
  append_varint(text, value.size());
  text += value;
}

namespace {

void append_text_field(std::string& text, uint32_t field, std::string_view value) {
  if (!value.empty()) append_bytes_field(text, field, value);
}

std::string encode_value(const schedule::ParameterValue& value) {
  std::string text;
  if (const bool* flag = std::get_if<bool>(&value)) {
    text = {static_cast<char>(1 << 3 | kVarint), static_cast<char>(*flag ? 1 : 0)};
  } else if (const int64_t* number = std::get_if<int64_t>(&value)) {
    text += static_cast<char>(2 << 3 | kVarint);
    append_varint(text, static_cast<uint64_t>(*number));
  } else if (const double* real = std::get_if<double>(&value)) {
    text += static_cast<char>(4 << 3 | kFixed64);
    text.append(reinterpret_cast<const char*>(real), sizeof *real);
  } else {
    append_bytes_field(text, 3, std::get<std::string>(value));
  }
  return text;
}

void append_parameter(std::string& text, std::string_view key, const schedule::ParameterValue& value) {
  std::string entry;
  append_text_field(entry, 1, key);
  append_bytes_field(entry, 2, encode_value(value));
  append_bytes_field(text, 4, entry);
}

}  // namespace

void append_infer_response(const WireResponse& response, size_t max_copied_bytes, std::string& text,
                           std::vector<RawPlace>& places) {
  append_text_field(text, 1, response.model_name);
  append_text_field(text, 2, response.model_version);
  append_text_field(text, 3, response.id);
  if (response.parameters != nullptr) {
    for (const auto& [key, value] : *response.parameters) append_parameter(text, key, value);
  }
  if (response.final_response) append_parameter(text, "triton_final_response", *response.final_response);
  std::string tensor, shape;
  for (const schedule::OutputTensor& output : response.outputs) {
    tensor.clear();
    shape.clear();
    append_text_field(tensor, 1, output.name);
    append_text_field(tensor, 2, config::protocol_name(output.data_type));
    for (int64_t dim : output.shape) append_varint(shape, static_cast<uint64_t>(dim));
    append_text_field(tensor, 3, shape);
    append_bytes_field(text, 5, tensor);
  }
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    const WireBytes bytes = response.outputs[i].bytes;
    append_varint(text, 6 << 3 | kLength);
    append_varint(text, bytes.size());
    if (bytes.size() <= max_copied_bytes) {
      text += text_of(bytes);
    } else {
      places.push_back({i, text.size()});
    }
  }
}

}  // namespace flywheel::grpc
