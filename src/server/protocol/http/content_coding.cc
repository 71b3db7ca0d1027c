// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/content_coding.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/protocol/http/parser.h"

namespace flywheel::http {
namespace {

constexpr size_t kFirstRoomBytes = 64 << 10;
constexpr int kMaxWindowBits = 15;
constexpr int kDetectGzipOrZlib = 32;
constexpr int kWriteGzip = 16;
// Level 1 is several times faster than zlib's default and the text of tensors compresses little better with more.
constexpr int kLevel = 1;

uInt clamp_to_uint(size_t size) { return static_cast<uInt>(std::min<size_t>(size, std::numeric_limits<uInt>::max())); }

// A zlib stream starts with a checked two-byte header; anything else called deflate is the raw form.
bool looks_like_zlib_or_gzip(std::span<const std::byte> data) {
  if (data.size() < 2) return true;
  const unsigned first = std::to_integer<unsigned>(data[0]);
  const unsigned second = std::to_integer<unsigned>(data[1]);
  return (first == 0x1f && second == 0x8b) || ((first & 0x0f) == 8 && (first * 256 + second) % 31 == 0);
}

// Thousandths, as weights have three decimals at most; 1000 without a weight.
int parse_weight(std::string_view parameters) {
  const size_t start = parameters.find("q=");
  if (start == std::string_view::npos) return 1000;
  double weight = 0;
  const std::string_view text = parameters.substr(start + 2);
  if (std::from_chars(text.data(), text.data() + text.size(), weight).ec != std::errc()) return 0;
  return static_cast<int>(std::clamp(weight, 0.0, 1.0) * 1000);
}

// Kept by each thread, as setting one up costs more than compressing a small answer.
struct Deflater {
  explicit Deflater(int window)
      : ready(deflateInit2(&stream, kLevel, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) == Z_OK) {}
  ~Deflater() {
    if (ready) deflateEnd(&stream);
  }
  z_stream stream{};
  const bool ready;
};
thread_local Deflater gzip_deflater(kMaxWindowBits | kWriteGzip);
thread_local Deflater zlib_deflater(kMaxWindowBits);

}  // namespace

std::optional<Coding> parse_content_encoding(std::string_view value) {
  if (value.empty() || equals_ignoring_case(value, "identity")) return Coding::kIdentity;
  if (equals_ignoring_case(value, "gzip") || equals_ignoring_case(value, "x-gzip")) return Coding::kGzip;
  if (equals_ignoring_case(value, "deflate")) return Coding::kDeflate;
  return std::nullopt;
}

Coding choose_response_coding(std::string_view accept_encoding) {
  int gzip = -1, deflate = -1, other = -1, identity = -1;
  for_each_list_element(accept_encoding, [&](std::string_view element) {
    const size_t semicolon = element.find(';');
    std::string_view name = element.substr(0, semicolon);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    const int weight = semicolon == std::string_view::npos ? 1000 : parse_weight(element.substr(semicolon));
    if (equals_ignoring_case(name, "gzip") || equals_ignoring_case(name, "x-gzip")) gzip = weight;
    if (equals_ignoring_case(name, "deflate")) deflate = weight;
    if (equals_ignoring_case(name, "identity")) identity = weight;
    if (name == "*") other = weight;
    return true;
  });
  if (gzip < 0) gzip = other;
  if (deflate < 0) deflate = other;
  const int best = std::max(gzip, deflate);
  if (best <= 0 || best < identity) return Coding::kIdentity;
  return gzip >= deflate ? Coding::kGzip : Coding::kDeflate;
}

std::string_view coding_name(Coding coding) {
  return coding == Coding::kGzip ? "gzip" : coding == Coding::kDeflate ? "deflate" : "identity";
}

Result<Body> decompress(std::span<const std::byte> data, uint64_t limit_bytes, size_t aligned_at,
                        const std::shared_ptr<BodyBudget>& budget) {
  const Status too_large =
      invalid_argument("Decompressed data size exceeds the maximum allowed value of " + std::to_string(limit_bytes) +
                       " bytes. Use --http-max-input-size to increase the limit.");
  const Status no_memory = unavailable("no memory for the request's decompressed body; retry later");
  if (data.empty()) return invalid_argument("the compressed request body is empty");
  z_stream stream{};
  if (inflateInit2(&stream, looks_like_zlib_or_gzip(data) ? kMaxWindowBits | kDetectGzipOrZlib : -kMaxWindowBits) !=
      Z_OK) {
    return no_memory;
  }
  struct End {
    z_stream& stream;
    ~End() { inflateEnd(&stream); }
  } end{stream};
  Body body;
  if (!body.reserve(static_cast<size_t>(std::min<uint64_t>(limit_bytes, kFirstRoomBytes)), aligned_at, budget)) {
    return no_memory;
  }
  char piece[16 << 10];
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data()));
  size_t left = data.size();
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0) {
      stream.avail_in = clamp_to_uint(left);
      left -= stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece);
    stream.avail_out = sizeof piece;
    state = inflate(&stream, Z_NO_FLUSH);
    if (state != Z_OK && state != Z_STREAM_END) {
      if (state == Z_BUF_ERROR) return invalid_argument("the compressed request body is cut short");
      return invalid_argument(std::string("the request body is not valid compressed data: ") +
                              (stream.msg != nullptr ? stream.msg : "unknown format"));
    }
    const size_t count = sizeof piece - stream.avail_out;
    if (count > limit_bytes - body.size()) return too_large;
    if (!body.append({piece, count})) return no_memory;
  }
  if (stream.avail_in != 0 || left != 0) {
    return invalid_argument("the request body goes on after the end of its compressed data");
  }
  return body;
}

Status compress(Response& response, Coding coding) {
  if (coding == Coding::kIdentity) return {};
  Deflater& deflater = coding == Coding::kGzip ? gzip_deflater : zlib_deflater;
  if (!deflater.ready) return out_of_memory("no memory to compress a response");
  z_stream& stream = deflater.stream;
  deflateReset(&stream);
  std::string compressed;
  char piece[16 << 10];
  auto feed = [&](const void* data, size_t size, bool last) {
    stream.next_in = static_cast<Bytef*>(const_cast<void*>(data));
    do {
      if (stream.avail_in == 0) {
        stream.avail_in = clamp_to_uint(size);
        size -= stream.avail_in;
      }
      const int flush = last && size == 0 ? Z_FINISH : Z_NO_FLUSH;
      do {
        stream.next_out = reinterpret_cast<Bytef*>(piece);
        stream.avail_out = sizeof piece;
        deflate(&stream, flush);
        compressed.append(piece, sizeof piece - stream.avail_out);
      } while (stream.avail_out == 0);
    } while (size > 0);
  };
  feed(response.body.data(), response.body.size(), response.blobs.empty());
  for (size_t i = 0; i < response.blobs.size(); ++i) {
    feed(response.blobs[i].bytes.data(), response.blobs[i].bytes.size(), i + 1 == response.blobs.size());
  }
  response.body = std::move(compressed);
  response.blobs.clear();
  response.add_field("Content-Encoding", coding_name(coding));
  return {};
}

}  // namespace flywheel::http
