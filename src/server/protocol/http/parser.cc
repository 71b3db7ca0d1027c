// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/parser.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace flywheel::http {
namespace {

constexpr size_t kMaxChunkOverheadBytes = 8 << 10;

constexpr std::array<bool, 256> make_token_table() {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c) table[c] = true;
  for (int c = 'a'; c <= 'z'; ++c) table[c] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[c] = true;
  for (char c : {'!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~'}) table[c] = true;
  return table;
}

// Everything printable, blanks, and bytes beyond ASCII, which old clients send.
constexpr std::array<bool, 256> make_value_table() {
  std::array<bool, 256> table{};
  for (int c = 0; c < 256; ++c) table[c] = c == '\t' || (c >= 0x20 && c != 0x7f);
  return table;
}

constexpr std::array<bool, 256> kToken = make_token_table();
constexpr std::array<bool, 256> kValue = make_value_table();

bool is_token_char(char c) { return kToken[static_cast<unsigned char>(c)]; }
bool is_value_char(char c) { return kValue[static_cast<unsigned char>(c)]; }
bool is_target_char(char c) { return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7f; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

Method method_of(std::string_view name) {
  if (name == "POST") return Method::kPost;
  if (name == "GET") return Method::kGet;
  if (name == "HEAD") return Method::kHead;
  return Method::kOther;
}

constexpr ParseError kBadLineEnd{400, "a line of the request's head does not end with CR LF"};

ParseError parse_request_line(std::string_view line, RequestHead& out) {
  const size_t method_end = line.find(' ');
  if (method_end == 0 || method_end == std::string_view::npos) {
    return {400, "the request line is not 'METHOD target HTTP/1.1'"};
  }
  out.method_name = line.substr(0, method_end);
  if (!std::all_of(out.method_name.begin(), out.method_name.end(), is_token_char)) {
    return {400, "the request's method contains characters that are not allowed in one"};
  }
  out.method = method_of(out.method_name);
  const size_t version_start = line.rfind(' ');
  if (version_start == method_end) return {400, "the request line names no HTTP version"};
  const std::string_view version = line.substr(version_start + 1);
  if (version == "HTTP/1.1") {
    out.minor_version = 1;
  } else if (version == "HTTP/1.0") {
    out.minor_version = 0;
  } else if (version.starts_with("HTTP/")) {
    return {505, "only HTTP/1.1 and HTTP/1.0 are spoken here"};
  } else {
    return {400, "the request line is not 'METHOD target HTTP/1.1'"};
  }
  out.target = line.substr(method_end + 1, version_start - method_end - 1);
  if (out.target.empty() || !std::all_of(out.target.begin(), out.target.end(), is_target_char)) {
    return {400, "the request's target is empty or contains characters that must be percent-encoded"};
  }
  std::string_view path = out.target;
  if (path.front() != '/' && path != "*") {
    const size_t authority = path.find("://");
    if (authority == std::string_view::npos) return {400, "the request's target is not a path"};
    const size_t slash = path.find('/', authority + 3);
    path = slash == std::string_view::npos ? std::string_view("/") : path.substr(slash);
  }
  const size_t question = path.find('?');
  out.query = question == std::string_view::npos ? std::string_view() : path.substr(question + 1);
  out.path = path.substr(0, question);
  return {};
}

ParseError parse_content_length(std::string_view value, RequestHead& out) {
  if (value.empty() || value.size() > 19) return {400, "Content-Length is not a number of bytes"};
  uint64_t length = 0;
  for (char c : value) {
    if (c < '0' || c > '9') return {400, "Content-Length is not a number of bytes"};
    length = length * 10 + static_cast<uint64_t>(c - '0');  // 19 digits fit
  }
  if (out.content_length && *out.content_length != length) return {400, "two different Content-Length headers"};
  out.content_length = length;
  return {};
}

// The fields that decide where this request ends and what becomes of the connection.
ParseError apply_framing_field(const Field& field, RequestHead& out) {
  switch (field.name.size()) {
    case 6:
      if (equals_ignoring_case(field.name, "expect")) {
        if (!equals_ignoring_case(field.value, "100-continue"))
          return {417, "the only expectation met is 100-continue"};
        out.expects_continue = out.minor_version >= 1;
      }
      break;
    case 10:
      if (equals_ignoring_case(field.name, "connection")) {
        for_each_list_element(field.value, [&](std::string_view option) {
          if (equals_ignoring_case(option, "close")) out.keep_alive = false;
          if (equals_ignoring_case(option, "keep-alive") && out.minor_version == 0) out.keep_alive = true;
          return true;
        });
      }
      break;
    case 14:
      if (equals_ignoring_case(field.name, "content-length")) return parse_content_length(field.value, out);
      break;
    case 17:
      if (equals_ignoring_case(field.name, "transfer-encoding")) {
        if (out.chunked) return {400, "two Transfer-Encoding headers"};
        if (!equals_ignoring_case(field.value, "chunked")) {
          return {501, "the only Transfer-Encoding supported is chunked; compress with Content-Encoding instead"};
        }
        if (out.minor_version == 0) return {400, "Transfer-Encoding in an HTTP/1.0 request"};
        out.chunked = true;
      }
      break;
    default: break;
  }
  return {};
}

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string_view> RequestHead::find(std::string_view name) const {
  for (const Field& field : fields) {
    if (equals_ignoring_case(field.name, name)) return field.value;
  }
  return std::nullopt;
}

size_t count_leading_newlines(std::string_view bytes) {
  size_t count = 0;
  while (count + 1 < bytes.size() && bytes[count] == '\r' && bytes[count + 1] == '\n') count += 2;
  return count;
}

size_t find_head_end(std::string_view bytes, size_t& scanned) {
  const size_t start = scanned > 3 ? scanned - 3 : 0;
  if (start >= bytes.size()) return 0;
  const void* end = memmem(bytes.data() + start, bytes.size() - start, "\r\n\r\n", 4);
  if (end == nullptr) {
    scanned = bytes.size();
    return 0;
  }
  scanned = 0;
  return static_cast<size_t>(static_cast<const char*>(end) - bytes.data()) + 4;
}

ParseError check_partial_head(std::string_view bytes, const ParserLimits& limits) {
  if (bytes.size() > limits.max_head_bytes) return {431, "the request's head is larger than this server accepts"};
  // A method is short; anything else at the start (TLS, another protocol, noise) will never become a request.
  constexpr size_t kLongestMethod = 32;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == ' ' && i > 0) break;
    if (i == 0 && bytes[i] == '\r' && bytes.size() == 1) break;
    if (!is_token_char(bytes[i]) || i >= kLongestMethod) return {400, "this is not an HTTP/1.x request"};
  }
  // Bare line feeds would otherwise wait for an end that never comes. Only the last two bytes, to stay linear.
  if (bytes.size() >= 2 && bytes.back() == '\n' && bytes[bytes.size() - 2] != '\r') return kBadLineEnd;
  return {};
}

ParseError parse_head(std::string_view head, const ParserLimits& limits, RequestHead& out) {
  out.fields.clear();
  out.keep_alive = true;
  out.chunked = out.expects_continue = false;
  out.content_length.reset();
  if (head.size() > limits.max_head_bytes) return {431, "the request's head is larger than this server accepts"};
  bool first = true;
  while (!head.empty()) {
    const void* end = std::memchr(head.data(), '\n', head.size());
    if (end == nullptr) return kBadLineEnd;
    const size_t length = static_cast<size_t>(static_cast<const char*>(end) - head.data());
    if (length == 0 || head[length - 1] != '\r') return kBadLineEnd;
    const std::string_view line = head.substr(0, length - 1);
    head.remove_prefix(length + 1);
    if (first) {
      if (ParseError error = parse_request_line(line, out)) return error;
      out.keep_alive = out.minor_version >= 1;
      first = false;
      continue;
    }
    if (line.empty()) break;
    if (out.fields.size() >= limits.max_fields)
      return {431, "the request has more header fields than this server accepts"};
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return {400, "a header field has no name or no colon"};
    Field field{line.substr(0, colon), trim(line.substr(colon + 1))};
    // Also refuses blanks before the colon and folded lines.
    if (!std::all_of(field.name.begin(), field.name.end(), is_token_char)) {
      return {400, "a header field's name contains characters that are not allowed in one"};
    }
    if (!std::all_of(field.value.begin(), field.value.end(), is_value_char)) {
      return {400, "a header field's value contains control characters"};
    }
    if (ParseError error = apply_framing_field(field, out)) return error;
    out.fields.push_back(field);
  }
  if (first) return {400, "the request line is missing"};
  if (out.chunked && out.content_length) return {400, "both Content-Length and Transfer-Encoding"};
  return {};
}

ChunkedDecoder::Step ChunkedDecoder::next(std::string_view input) {
  Step step;
  auto fail = [&](std::string_view message) {
    step.error = {400, message};
    return step;
  };
  while (step.consumed < input.size()) {
    const char c = input[step.consumed];
    switch (state_) {
      case State::kSize: {
        int digit = -1;
        if (c >= '0' && c <= '9') digit = c - '0';
        if (lower(c) >= 'a' && lower(c) <= 'f') digit = lower(c) - 'a' + 10;
        if (digit >= 0) {
          if (remaining_ >> 56 != 0) return fail("a chunk's size is out of range");
          remaining_ = remaining_ * 16 + static_cast<uint64_t>(digit);
          size_has_digits_ = true;
          ++step.consumed;
          break;
        }
        if (!size_has_digits_) return fail("a chunk's size is not a hexadecimal number");
        if (c != ';' && c != '\r' && c != ' ' && c != '\t') return fail("a chunk's size is not a hexadecimal number");
        overhead_bytes_ = 0;
        state_ = State::kExtension;
        break;
      }
      case State::kExtension:
        ++step.consumed;
        if (c == '\r') {
          state_ = State::kSizeEnd;
        } else if (!is_value_char(c)) {
          return fail("a chunk's extension contains control characters");
        } else if (++overhead_bytes_ > kMaxChunkOverheadBytes) {
          return fail("a chunk's extension is too long");
        }
        break;
      case State::kSizeEnd:
        if (c != '\n') return fail("a chunk's size line does not end with CR LF");
        ++step.consumed;
        overhead_bytes_ = 0;
        trailer_line_empty_ = true;
        if (remaining_ > 0) ++chunk_count_;
        state_ = remaining_ > 0 ? State::kData : State::kTrailer;
        break;
      case State::kData: {
        const size_t count = static_cast<size_t>(std::min<uint64_t>(remaining_, input.size() - step.consumed));
        step.data = input.substr(step.consumed, count);
        step.consumed += count;
        remaining_ -= count;
        if (remaining_ == 0) state_ = State::kDataCr;
        return step;
      }
      case State::kDataCr:
        if (c != '\r') return fail("a chunk's data is longer than its size says");
        ++step.consumed;
        state_ = State::kDataLf;
        break;
      case State::kDataLf:
        if (c != '\n') return fail("a chunk's data does not end with CR LF");
        ++step.consumed;
        size_has_digits_ = false;
        state_ = State::kSize;
        break;
      case State::kTrailer:
        ++step.consumed;
        if (c == '\r') {
          state_ = State::kTrailerEnd;
        } else if (!is_value_char(c)) {
          return fail("a trailer contains control characters");
        } else if (++overhead_bytes_ > kMaxChunkOverheadBytes) {
          return fail("the trailers are too long");
        } else {
          trailer_line_empty_ = false;
        }
        break;
      case State::kTrailerEnd:
        if (c != '\n') return fail("a trailer does not end with CR LF");
        ++step.consumed;
        if (trailer_line_empty_) {
          state_ = State::kDone;
          step.done = true;
          return step;
        }
        trailer_line_empty_ = true;
        state_ = State::kTrailer;
        break;
      case State::kDone: step.done = true; return step;
    }
  }
  step.done = state_ == State::kDone;
  return step;
}

}  // namespace flywheel::http
