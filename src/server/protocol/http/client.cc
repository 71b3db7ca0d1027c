// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "server/protocol/http/parser.h"

namespace flywheel::http {
namespace {

enum ChunkState { kSizeLine, kData, kDataEnd, kTrailer };

std::string system_message(int error) { return std::generic_category().message(error); }

}  // namespace

std::optional<std::string_view> ClientResponse::find(std::string_view name) const {
  for (const auto& [field, value] : fields) {
    if (equals_ignoring_case(field, name)) return value;
  }
  return std::nullopt;
}

std::string format_request(std::string_view method, std::string_view target, const Fields& fields,
                           std::string_view body) {
  std::string text;
  text.reserve(128 + target.size() + body.size());
  text.append(method).append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n");
  for (const auto& [name, value] : fields) text.append(name).append(": ").append(value).append("\r\n");
  if (!body.empty() || method == "POST")
    text.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  text.append("\r\n").append(body);
  return text;
}

Status ResponseReader::parse_head(std::string_view head) {
  const int interim = response_.interim_answers;
  response_ = ClientResponse();
  response_.interim_answers = interim;
  remaining_ = 0;
  chunked_ = false;
  until_close_ = true;
  size_t line_end = head.find("\r\n");
  const std::string_view status_line = head.substr(0, line_end);
  if (!status_line.starts_with("HTTP/1.") || status_line.size() < 12) return internal_error("not an HTTP answer");
  std::from_chars(status_line.data() + 9, status_line.data() + 12, response_.status);
  head.remove_prefix(line_end + 2);
  while ((line_end = head.find("\r\n")) != std::string_view::npos && line_end > 0) {
    const std::string_view line = head.substr(0, line_end);
    head.remove_prefix(line_end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return internal_error("an answer's header field has no colon");
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    response_.fields.emplace_back(line.substr(0, colon), value);
  }
  if (auto length = response_.find("content-length")) {
    std::from_chars(length->data(), length->data() + length->size(), remaining_);
    until_close_ = false;
    response_.body.reserve(remaining_);
  }
  if (auto coding = response_.find("transfer-encoding"); coding && equals_ignoring_case(*coding, "chunked")) {
    chunked_ = true;
    until_close_ = false;
    chunk_state_ = kSizeLine;
  }
  return {};
}

Result<size_t> ResponseReader::feed(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && !done_) {
    const std::string_view rest = bytes.substr(used);
    if (!in_body_) {
      const size_t before = head_.size();
      head_ += rest;
      const size_t end = head_.find("\r\n\r\n", before > 3 ? before - 3 : 0);
      if (end == std::string::npos) return bytes.size();
      used += end + 4 - before;
      head_.resize(end + 4);
      FW_RETURN_IF_ERROR(parse_head(head_));
      head_.clear();
      if (response_.status < 200) {
        ++response_.interim_answers;
        continue;
      }
      in_body_ = true;
      done_ = !chunked_ && !until_close_ && remaining_ == 0;
      continue;
    }
    if (!chunked_) {
      const size_t count =
          until_close_ ? rest.size() : static_cast<size_t>(std::min<uint64_t>(remaining_, rest.size()));
      response_.body += rest.substr(0, count);
      used += count;
      if (!until_close_) {
        remaining_ -= count;
        done_ = remaining_ == 0;
      }
      continue;
    }
    if (chunk_state_ == kData) {
      const size_t count = static_cast<size_t>(std::min<uint64_t>(remaining_, rest.size()));
      response_.body += rest.substr(0, count);
      used += count;
      remaining_ -= count;
      if (remaining_ == 0) chunk_state_ = kDataEnd;
      continue;
    }
    chunk_line_ += rest.front();
    ++used;
    if (!chunk_line_.ends_with("\r\n")) continue;
    if (chunk_state_ == kSizeLine) {
      if (std::from_chars(chunk_line_.data(), chunk_line_.data() + chunk_line_.size(), remaining_, 16).ec !=
          std::errc()) {
        return internal_error("a chunk of the answer has no size");
      }
      chunk_state_ = remaining_ > 0 ? kData : kTrailer;
    } else if (chunk_state_ == kDataEnd) {
      chunk_state_ = kSizeLine;
    } else {
      done_ = chunk_line_ == "\r\n";
    }
    chunk_line_.clear();
  }
  return used;
}

Status ResponseReader::finish() {
  if (in_body_ && until_close_) {
    done_ = true;
    return {};
  }
  return unavailable("the server closed the connection before its answer was complete");
}

ClientResponse ResponseReader::take() {
  ClientResponse taken = std::move(response_);
  *this = ResponseReader();
  return taken;
}

Result<Client> Client::connect(const std::string& address, uint16_t port, int timeout_ms) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failure = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found); failure != 0) {
    return invalid_argument("'" + address + "' is no address: " + ::gai_strerror(failure));
  }
  int error = 0;
  int connected = -1;
  for (addrinfo* entry = found; entry != nullptr && connected < 0; entry = entry->ai_next) {
    const int socket = ::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    const timeval timeout{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    const int one = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (::connect(socket, entry->ai_addr, entry->ai_addrlen) == 0) {
      connected = socket;
    } else {
      error = errno;
      ::close(socket);
    }
  }
  ::freeaddrinfo(found);
  if (connected < 0) {
    return unavailable("cannot connect to " + address + ":" + std::to_string(port) + ": " + system_message(error));
  }
  return Client(connected);
}

Client::Client(Client&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), unread_(std::move(other.unread_)) {}

Client& Client::operator=(Client&& other) noexcept {
  if (this != &other) {
    close();
    socket_ = std::exchange(other.socket_, -1);
    unread_ = std::move(other.unread_);
  }
  return *this;
}

Client::~Client() { close(); }

void Client::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  unread_.clear();
}

void Client::reset() {
  const linger now{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

void Client::end_sending() { ::shutdown(socket_, SHUT_WR); }

Status Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return unavailable("sending to the server failed: " + system_message(errno));
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

Result<ClientResponse> Client::receive() {
  ResponseReader reader;
  while (true) {
    FW_ASSIGN_OR_RETURN(const size_t used, reader.feed(unread_));
    unread_.erase(0, used);
    if (reader.done()) return reader.take();
    char buffer[64 << 10];
    const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Status(Code::kDeadlineExceeded, "the server does not answer");
      return unavailable("receiving from the server failed: " + system_message(errno));
    }
    if (got == 0) {
      FW_RETURN_IF_ERROR(reader.finish());
      return reader.take();
    }
    unread_.assign(buffer, static_cast<size_t>(got));
  }
}

Result<ClientResponse> Client::request(std::string_view method, std::string_view target, std::string_view body,
                                       const Fields& fields) {
  const Status sent = send(format_request(method, target, fields, body));
  // A server that refuses a body may answer and close before it has read all of it.
  Result<ClientResponse> answer = receive();
  if (!answer.is_ok() && !sent.is_ok()) return sent;
  return answer;
}

bool Client::wait_for_close() {
  if (!unread_.empty()) return false;
  char byte;
  while (true) {
    const ssize_t got = ::recv(socket_, &byte, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

}  // namespace flywheel::http
