// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/response.h"

#include <charconv>

#include "server/config/json_writer.h"

namespace flywheel::http {

size_t Response::content_bytes() const {
  size_t total = body.size();
  for (const Blob& blob : blobs) total += blob.bytes.size();
  return total;
}

void Response::add_field(std::string_view name, std::string_view value) {
  fields.append(name).append(": ").append(value).append("\r\n");
}

Response json_response(std::string body) {
  Response response;
  response.content_type = kJson;
  response.body = std::move(body);
  return response;
}

Response error_response(int status, std::string_view message) {
  Response response;
  response.status = status;
  response.content_type = kJson;
  response.body = "{\"error\":";
  config::append_json_string(response.body, message);
  response.body += '}';
  return response;
}

Response error_response(const Status& status) { return error_response(http_status(status.code()), status.message()); }

int http_status(Code code) {
  switch (code) {
    case Code::kOk: return 200;
    case Code::kInvalidArgument:
    case Code::kAlreadyExists:
    case Code::kCancelled: return 400;
    case Code::kNotFound: return 404;
    case Code::kUnsupported: return 501;
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kOutOfMemory: return 503;
    case Code::kIncompatible:
    case Code::kCorrupt:
    case Code::kInternal: return 500;
  }
  return 500;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
  }
}

void append_chunk(std::string& out, std::string_view piece) {
  char number[24];
  out.append(number, std::to_chars(number, number + sizeof number, piece.size(), 16).ptr);
  out.append("\r\n").append(piece).append("\r\n");
}

void append_head(std::string& out, const Response& response, bool close, int request_minor_version, Framing framing) {
  char number[24];
  auto append_number = [&](uint64_t value) {
    out.append(number, std::to_chars(number, number + sizeof number, value).ptr);
  };
  if (response.status == 200) {
    out += "HTTP/1.1 200 OK\r\n";
  } else {
    out += "HTTP/1.1 ";
    append_number(static_cast<uint64_t>(response.status));
    out.append(" ").append(reason_phrase(response.status)).append("\r\n");
  }
  if (!response.content_type.empty()) out.append("Content-Type: ").append(response.content_type).append("\r\n");
  out += response.fields;
  if (close) {
    out += "Connection: close\r\n";
  } else if (request_minor_version == 0) {
    out += "Connection: keep-alive\r\n";
  }
  if (framing == Framing::kChunked) out += "Transfer-Encoding: chunked\r\n\r\n";
  if (framing == Framing::kUntilClose) out += "\r\n";
  if (framing != Framing::kLength) return;
  out += "Content-Length: ";
  append_number(response.content_bytes());
  out += "\r\n\r\n";
}

}  // namespace flywheel::http
