// SPDX-License-Identifier: Apache-2.0
// Compressed bodies: gzip and deflate (zlib's format, and the raw one that some clients send) in requests, gzip and
// deflate in answers. Decompression stops at a limit, whatever the data claims.
// Thread safety: pure functions; slow ones, for the slow lane when the data is large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "flywheel/status.h"
#include "server/protocol/http/body.h"
#include "server/protocol/http/response.h"

namespace flywheel::http {

enum class Coding : uint8_t { kIdentity, kGzip, kDeflate };

// Of a Content-Encoding header; nothing when it is none of ours.
std::optional<Coding> parse_content_encoding(std::string_view value);
// What the client prefers of what we can do, by Accept-Encoding's weights; gzip where it does not mind.
Coding choose_response_coding(std::string_view accept_encoding);
std::string_view coding_name(Coding coding);

// `limit_bytes`: more than that is refused with the text that Triton has for it. `aligned_at` as in Body::reserve.
Result<Body> decompress(std::span<const std::byte> data, uint64_t limit_bytes, size_t aligned_at,
                        const std::shared_ptr<BodyBudget>& budget);

// Replaces the response's content by its compressed form and says so in a header field.
Status compress(Response& response, Coding coding);

}  // namespace flywheel::http
