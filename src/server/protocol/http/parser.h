// SPDX-License-Identifier: Apache-2.0
// HTTP/1.x requests out of bytes, as pure functions: no socket, no clock, no allocation beyond the result's own. The
// connection calls find_head_end as bytes arrive, parse_head once the head is whole, and ChunkedDecoder for chunked
// bodies; the fuzzer and the tests call the same. Strict where leniency lets two parsers disagree about where a request
// ends (bare line feeds, folded headers, both length headers, blanks before a colon).
// Thread safety: values; no globals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace flywheel::http {

struct ParserLimits {
  size_t max_head_bytes = 32 << 10;  // request line and headers together
  size_t max_fields = 128;
};

// status 0: no error. Otherwise the HTTP status to answer with before closing the connection.
struct ParseError {
  int status = 0;
  std::string_view message;  // of static storage
  explicit operator bool() const { return status != 0; }
};

enum class Method : uint8_t { kGet, kPost, kHead, kOther };

struct Field {
  std::string_view name, value;  // the value without blanks around it
};

// Views into the bytes that parse_head was given.
struct RequestHead {
  Method method = Method::kOther;
  std::string_view method_name;
  std::string_view target;  // as sent
  std::string_view path;    // the target without scheme, authority and query; not decoded
  std::string_view query;
  int minor_version = 1;
  bool keep_alive = true;
  bool chunked = false;
  bool expects_continue = false;
  std::optional<uint64_t> content_length;
  std::vector<Field> fields;

  // The first field of that name, whatever its case; nothing when there is none.
  std::optional<std::string_view> find(std::string_view name) const;
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

// The number of leading bytes that belong to no request: the empty lines that some clients send after a body.
size_t count_leading_newlines(std::string_view bytes);
// Just past the empty line that ends the head at the start of `bytes`, or 0 while it is incomplete. `scanned` remembers
// how far earlier calls with a prefix of the same bytes have looked, so that a drip-fed head costs linear time.
size_t find_head_end(std::string_view bytes, size_t& scanned);
// What is wrong with an incomplete head already, so that garbage is refused before its time runs out.
ParseError check_partial_head(std::string_view bytes, const ParserLimits& limits);
// REQUIRES: `head` is one whole head, its last empty line included.
ParseError parse_head(std::string_view head, const ParserLimits& limits, RequestHead& out);

bool equals_ignoring_case(std::string_view a, std::string_view b);
// Calls f(token) for each element of a comma-separated list, blanks trimmed, until it returns false.
template <class F>
void for_each_list_element(std::string_view list, F&& f) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view element = list.substr(0, comma);
    while (!element.empty() && (element.front() == ' ' || element.front() == '\t')) element.remove_prefix(1);
    while (!element.empty() && (element.back() == ' ' || element.back() == '\t')) element.remove_suffix(1);
    if (!element.empty() && !f(element)) return;
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

// Takes a chunked body apart. Feed it the bytes in any pieces: each call consumes some of them and may hand out
// payload.
class ChunkedDecoder {
 public:
  struct Step {
    size_t consumed = 0;
    std::string_view data;  // payload, a part of the input
    bool done = false;      // the body and its trailers ended; what follows is the next request
    ParseError error;
  };
  Step next(std::string_view input);
  uint64_t chunk_count() const { return chunk_count_; }  // non-empty ones, begun so far

 private:
  enum class State : uint8_t { kSize, kExtension, kSizeEnd, kData, kDataCr, kDataLf, kTrailer, kTrailerEnd, kDone };
  State state_ = State::kSize;
  bool size_has_digits_ = false;
  bool trailer_line_empty_ = true;
  uint64_t remaining_ = 0;
  uint64_t chunk_count_ = 0;
  size_t overhead_bytes_ = 0;  // of the current chunk's extension, or of all trailers
};

}  // namespace flywheel::http
