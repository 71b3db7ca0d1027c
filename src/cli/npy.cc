// SPDX-License-Identifier: Apache-2.0
#include "cli/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

namespace flywheel::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// NumPy's own limit for headers that it trusts is 10,000; plain arrays need a hundred bytes.
constexpr size_t kMaxHeaderBytes = 64 << 10;

struct TypeName {
  std::string_view name;  // without the byte order
  DType dtype;
};
// V2 is what NumPy arrays of ml_dtypes' bfloat16 are saved as.
constexpr TypeName kTypeNames[] = {
    {"f4", DType::kFloat32}, {"f8", DType::kFloat64}, {"f2", DType::kFloat16}, {"V2", DType::kBFloat16},
    {"i1", DType::kInt8},    {"i2", DType::kInt16},   {"i4", DType::kInt32},   {"i8", DType::kInt64},
    {"u1", DType::kUInt8},   {"u2", DType::kUInt16},  {"u4", DType::kUInt32},  {"u8", DType::kUInt64},
    {"b1", DType::kBool},
};

struct Header {
  std::string descr;
  bool fortran_order = false;
  Dims dims;
};

// Reads the header: a Python dict with three known keys. Every function returns false when the text does not fit.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  bool parse(Header& header) {
    bool descr = false, order = false, shape = false;
    if (!take('{')) return false;
    while (!take('}')) {
      std::string key;
      if (!string(key) || !take(':')) return false;
      bool* seen = key == "descr" ? &descr : key == "fortran_order" ? &order : key == "shape" ? &shape : nullptr;
      if (seen == nullptr || *seen) return false;
      *seen = true;
      if (seen == &descr && !type(header.descr)) return false;
      if (seen == &order && !boolean(header.fortran_order)) return false;
      if (seen == &shape && !tuple(header.dims)) return false;
      if (!take(',') && peek() != '}') return false;
    }
    return descr && order && shape && peek() == '\0';
  }

 private:
  void skip_space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n' || text_[0] == '\t')) text_.remove_prefix(1);
  }
  char peek() {
    skip_space();
    return text_.empty() ? '\0' : text_[0];
  }
  bool take(char c) {
    if (peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool word(std::string_view wanted) {
    skip_space();
    if (!text_.starts_with(wanted)) return false;
    text_.remove_prefix(wanted.size());
    return true;
  }
  bool string(std::string& out) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return false;
    const size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }
  // A structured type is a list; it is kept as text, to be named in the refusal.
  bool type(std::string& out) {
    if (peek() != '[') return string(out);
    size_t depth = 0, end = 0;
    do {
      if (end == text_.size()) return false;
      if (text_[end] == '[') ++depth;
      if (text_[end] == ']') --depth;
      ++end;
    } while (depth > 0);
    out = text_.substr(0, end);
    text_.remove_prefix(end);
    return true;
  }
  bool boolean(bool& out) {
    out = word("True");
    return out || word("False");
  }
  bool tuple(Dims& out) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip_space();
      int64_t dim = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0 || out.size() == 64) return false;
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      word("L");  // Python 2 wrote long integers so
      out.push_back(dim);
      if (!take(',') && peek() != ')') return false;
    }
    return true;
  }

  std::string_view text_;
};

struct ElementType {
  DType dtype;
  bool big_endian;
};

std::optional<ElementType> element_type(std::string_view descr) {
  if (descr.size() < 3) return std::nullopt;
  const char order = descr[0];
  if (order != '<' && order != '>' && order != '|' && order != '=') return std::nullopt;
  for (const TypeName& type : kTypeNames) {
    if (descr.substr(1) == type.name) return ElementType{type.dtype, order == '>'};
  }
  return std::nullopt;
}

std::string_view type_name(DType dtype) {
  const auto* found = std::find_if(std::begin(kTypeNames), std::end(kTypeNames),
                                   [&](const TypeName& type) { return type.dtype == dtype; });
  return found == std::end(kTypeNames) ? "?" : found->name;
}

// From column-major to row-major.
void copy_transposed(const std::byte* from, std::byte* to, const Dims& dims, size_t element_bytes) {
  Dims strides(dims.size(), 1);
  for (size_t d = 1; d < dims.size(); ++d) strides[d] = strides[d - 1] * dims[d - 1];
  Dims index(dims.size(), 0);
  const int64_t count = element_count(dims);
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * element_bytes, from + static_cast<size_t>(offset) * element_bytes,
                element_bytes);
    for (size_t d = dims.size(); d-- > 0;) {
      offset += strides[d];
      if (++index[d] < dims[d]) break;
      offset -= strides[d] * dims[d];
      index[d] = 0;
    }
  }
}

}  // namespace

Result<Array> Array::make(DType dtype, Dims dims) {
  const std::optional<int64_t> count = checked_element_count(dims);
  if (!count || *count > INT64_MAX / 8) {
    return invalid_argument(fmt::format("shape {} has more elements than memory can hold", dims_to_string(dims)));
  }
  Array array;
  array.dtype = dtype;
  array.dims = std::move(dims);
  FW_ASSIGN_OR_RETURN(array.data, AlignedBuffer::allocate(static_cast<size_t>(*count) * dtype_size(dtype), "an array"));
  return array;
}

std::string Array::to_string() const { return fmt::format("{} {}", dtype_name(dtype), dims_to_string(dims)); }

Result<Array> parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  auto damaged = [&](std::string_view why) { return corrupt(fmt::format("array '{}': {}", name, why)); };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) return damaged("does not begin as a .npy file does");
  if (text.size() < 10) return damaged("the file ends inside its header");
  const int major = static_cast<unsigned char>(text[6]);
  if (major < 1 || major > 3) {
    return unsupported(fmt::format("array '{}': .npy version {} is unknown; 1, 2 and 3 can be read", name, major));
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (text.size() < 8 + length_bytes) return damaged("the file ends inside its header");
  size_t header_bytes = 0;
  for (size_t i = length_bytes; i-- > 0;) header_bytes = header_bytes << 8 | static_cast<unsigned char>(text[8 + i]);
  const size_t data_offset = 8 + length_bytes + header_bytes;
  if (header_bytes > kMaxHeaderBytes || data_offset > text.size()) {
    return damaged(fmt::format("its header claims {} bytes", header_bytes));
  }
  Header header;
  if (!HeaderParser(text.substr(8 + length_bytes, header_bytes)).parse(header)) {
    return damaged("its header is not a dict of 'descr', 'fortran_order' and 'shape'");
  }
  const std::optional<ElementType> type = element_type(header.descr);
  if (!type) {
    return unsupported(fmt::format(
        "array '{}' has elements of NumPy type {}, which no tensor has: convert it with astype()", name, header.descr));
  }
  const size_t element_bytes = dtype_size(type->dtype);
  const size_t data_bytes = text.size() - data_offset;
  const std::optional<int64_t> count = checked_element_count(header.dims);
  if (!count || static_cast<uint64_t>(*count) != data_bytes / element_bytes || data_bytes % element_bytes != 0) {
    return damaged(fmt::format("{} bytes of data do not make a {} array of shape {}", data_bytes,
                               dtype_name(type->dtype), dims_to_string(header.dims)));
  }
  FW_ASSIGN_OR_RETURN(Array array, Array::make(type->dtype, std::move(header.dims)));
  if (*count == 0) return array;
  const std::byte* data = bytes.data() + data_offset;
  if (header.fortran_order && array.dims.size() > 1) {
    copy_transposed(data, array.data.data(), array.dims, element_bytes);
  } else {
    std::memcpy(array.data.data(), data, data_bytes);
  }
  if (type->big_endian) {
    for (size_t i = 0; i < data_bytes; i += element_bytes) {
      std::reverse(array.data.data() + i, array.data.data() + i + element_bytes);
    }
  }
  return array;
}

std::string npy_header(DType dtype, std::span<const int64_t> dims) {
  std::string shape;
  for (int64_t dim : dims) shape += fmt::format("{}, ", dim);
  if (dims.size() > 1) shape.resize(shape.size() - 2);
  if (dims.size() == 1) shape.resize(shape.size() - 1);
  const char order = dtype_size(dtype) == 1 || dtype == DType::kBFloat16 ? '|' : '<';
  std::string dict =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}", order, type_name(dtype), shape);
  // The data starts at a multiple of 64; the header ends with a line feed.
  dict.resize((kMagic.size() + 4 + dict.size() + 1 + 63) / 64 * 64 - kMagic.size() - 4 - 1, ' ');
  dict += '\n';
  std::string out(kMagic);
  out += {'\x01', '\x00', static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
  return out + dict;
}

}  // namespace flywheel::cli
