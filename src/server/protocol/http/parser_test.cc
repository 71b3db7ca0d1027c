// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/parser.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace flywheel::http {
namespace {

ParseError parse(std::string_view text, RequestHead& head) { return parse_head(text, ParserLimits{}, head); }
int status_of(std::string_view text) {
  RequestHead head;
  return parse(text, head).status;
}

TEST(ParseHead, ReadsRequestLineAndFields) {
  RequestHead head;
  const std::string text =
      "POST /v2/models/m/infer?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length:  12 \r\n"
      "Inference-Header-Content-Length: 7\r\nEmpty:\r\n\r\n";
  ASSERT_FALSE(parse(text, head)) << parse(text, head).message;
  EXPECT_EQ(head.method, Method::kPost);
  EXPECT_EQ(head.path, "/v2/models/m/infer");
  EXPECT_EQ(head.query, "x=1");
  EXPECT_EQ(head.minor_version, 1);
  EXPECT_TRUE(head.keep_alive);
  EXPECT_EQ(head.content_length, 12u);
  EXPECT_EQ(head.find("inference-header-content-length"), "7");
  EXPECT_EQ(head.find("EMPTY"), "");
  EXPECT_EQ(head.find("absent"), std::nullopt);
  EXPECT_TRUE(head.has_body());
}

TEST(ParseHead, KnowsConnectionOptions) {
  RequestHead head;
  ASSERT_FALSE(parse("GET / HTTP/1.0\r\n\r\n", head));
  EXPECT_FALSE(head.keep_alive);
  ASSERT_FALSE(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", head));
  EXPECT_TRUE(head.keep_alive);
  ASSERT_FALSE(parse("GET / HTTP/1.1\r\nConnection: foo , close\r\n\r\n", head));
  EXPECT_FALSE(head.keep_alive);
  ASSERT_FALSE(parse("PUT /x HTTP/1.1\r\nExpect: 100-Continue\r\nTransfer-Encoding: Chunked\r\n\r\n", head));
  EXPECT_TRUE(head.expects_continue);
  EXPECT_TRUE(head.chunked);
  EXPECT_EQ(head.method, Method::kOther);
  EXPECT_EQ(head.method_name, "PUT");
}

TEST(ParseHead, TakesAbsoluteTargets) {
  RequestHead head;
  ASSERT_FALSE(parse("GET http://host:8000/v2?q HTTP/1.1\r\n\r\n", head));
  EXPECT_EQ(head.path, "/v2");
  ASSERT_FALSE(parse("GET http://host HTTP/1.1\r\n\r\n", head));
  EXPECT_EQ(head.path, "/");
}

TEST(ParseHead, RefusesWhatTwoParsersCouldReadDifferently) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\nHost: h\n\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"), 0);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: +5\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 0x5\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n"), 400);
  EXPECT_EQ(status_of(std::string_view("GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", 25)), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), 501);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n"), 501);
}

TEST(ParseHead, RefusesMalformedLines) {
  EXPECT_EQ(status_of("GET\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /\r\n\r\n"), 400);
  EXPECT_EQ(status_of(" / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(status_of("PRI * HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTQ/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET relative HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /a b HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("G(T / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nnocolon\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n: v\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nExpect: 200-ok\r\n\r\n"), 417);
  EXPECT_EQ(status_of("\r\n"), 400);
  EXPECT_EQ(status_of(""), 400);
}

TEST(ParseHead, EnforcesItsLimits) {
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 129; ++i) many += "A: b\r\n";
  EXPECT_EQ(status_of(many + "\r\n"), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: " + std::string(40000, 'x') + "\r\n\r\n"), 431);
}

TEST(FindHeadEnd, FindsTheSameEndHoweverTheBytesArrive) {
  const std::string text = "GET / HTTP/1.1\r\nA: b\r\n\r\nrest\r\n\r\n";
  const size_t end = text.find("rest");
  for (size_t step = 1; step <= text.size(); ++step) {
    size_t scanned = 0;
    size_t found = 0;
    for (size_t length = step; found == 0; length += step) {
      found = find_head_end(std::string_view(text).substr(0, length), scanned);
      ASSERT_LE(length, text.size() + step);
    }
    EXPECT_EQ(found, end) << step;
  }
}

TEST(CheckPartialHead, SeesGarbageEarly) {
  const ParserLimits limits;
  EXPECT_FALSE(check_partial_head("G", limits));
  EXPECT_FALSE(check_partial_head("GET / HT", limits));
  EXPECT_FALSE(check_partial_head("\r", limits));
  EXPECT_EQ(check_partial_head("\x16\x03\x01", limits).status, 400);  // TLS
  EXPECT_EQ(check_partial_head(std::string(64, 'A'), limits).status, 400);
  EXPECT_EQ(check_partial_head("GET / HTTP/1.1\n", limits).status, 400);
  EXPECT_EQ(check_partial_head("GET /" + std::string(40000, 'x'), limits).status, 431);
  EXPECT_EQ(count_leading_newlines("\r\n\r\nGET"), 4u);
  EXPECT_EQ(count_leading_newlines("\rGET"), 0u);
}

struct Decoded {
  std::string data;
  size_t consumed = 0;
  bool done = false;
  int status = 0;
};

Decoded decode(std::string_view text, size_t piece) {
  ChunkedDecoder decoder;
  Decoded result;
  while (result.consumed < text.size() && !result.done && result.status == 0) {
    std::string_view input = text.substr(result.consumed, piece);
    while (!input.empty() && !result.done && result.status == 0) {
      const ChunkedDecoder::Step step = decoder.next(input);
      result.data += step.data;
      result.consumed += step.consumed;
      result.done = step.done;
      result.status = step.error.status;
      input.remove_prefix(step.consumed);
      if (step.consumed == 0 && !step.done && !step.error) ADD_FAILURE() << "no progress";
    }
  }
  return result;
}

TEST(ChunkedDecoder, GivesTheSameInPiecesOfAnySize) {
  const std::string body = "5\r\nhello\r\nA;ext=\"v\"\r\n0123456789\r\n1\r\n!\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n";
  const std::string text = body + "GET / HTTP/1.1\r\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const Decoded decoded = decode(text, piece);
    EXPECT_EQ(decoded.data, "hello0123456789!") << piece;
    EXPECT_TRUE(decoded.done);
    EXPECT_EQ(decoded.consumed, body.size());
  }
}

TEST(ChunkedDecoder, RefusesMalformedBodies) {
  EXPECT_EQ(decode("\r\n", 9).status, 400);
  EXPECT_EQ(decode("x\r\n", 9).status, 400);
  EXPECT_EQ(decode("-1\r\n", 9).status, 400);
  EXPECT_EQ(decode("5\nhello", 9).status, 400);
  EXPECT_EQ(decode("2\r\nhello\r\n", 99).status, 400);
  EXPECT_EQ(decode("2\r\nhe\n", 99).status, 400);
  EXPECT_EQ(decode("FFFFFFFFFFFFFFFFF\r\n", 99).status, 400);
  EXPECT_EQ(decode("1;" + std::string(10000, 'e') + "\r\n", 99).status, 400);
  EXPECT_EQ(decode("0\r\n" + std::string(10000, 't') + "\r\n", 99).status, 400);
}

TEST(Parser, SurvivesRandomMutations) {
  const std::string seed =
      "POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (int change = 0; change < 1 + round % 6; ++change) {
      text[random() % text.size()] = static_cast<char>(random());
      if (random() % 4 == 0) text.erase(random() % text.size(), random() % 5);
      if (text.empty()) text = "x";
    }
    size_t scanned = 0;
    const size_t end = find_head_end(text, scanned);
    RequestHead head;
    (void)check_partial_head(text, ParserLimits{});
    if (end == 0) continue;
    ASSERT_LE(end, text.size());
    if (parse_head(std::string_view(text).substr(0, end), ParserLimits{}, head)) continue;
    EXPECT_FALSE(head.path.empty());
    const Decoded decoded = decode(std::string_view(text).substr(end), 3);
    EXPECT_LE(decoded.data.size(), text.size());
  }
}

}  // namespace
}  // namespace flywheel::http
