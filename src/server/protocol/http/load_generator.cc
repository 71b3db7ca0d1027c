// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/load_generator.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "server/protocol/http/client.h"
#include "server/schedule/timeline.h"

namespace flywheel::http {
namespace {

struct LoadConnection {
  std::optional<Client> client;
  ResponseReader reader;
  std::string request;
  size_t sent_bytes = 0;
  uint64_t index = 0;
  int64_t start_ns = 0;
  bool in_flight = false;
  bool wants_write = false;
};

class LoadRun {
 public:
  explicit LoadRun(const LoadOptions& options) : options_(options), buffer_(64 << 10, '\0') {}
  ~LoadRun() {
    if (epoll_fd_ >= 0) ::close(epoll_fd_);
  }

  Result<LoadReport> run() {
    epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd_ < 0) return unavailable("no file descriptors left for the load generator");
    connections_.resize(static_cast<size_t>(options_.connections));
    for (LoadConnection& connection : connections_) FW_RETURN_IF_ERROR(open(connection));
    const int64_t begin_ns = schedule::monotonic_now_ns();
    if (options_.seconds > 0) end_ns_ = begin_ns + static_cast<int64_t>(options_.seconds * 1e9);
    for (LoadConnection& connection : connections_) FW_RETURN_IF_ERROR(send_next(connection));
    while (in_flight_ > 0) {
      epoll_event events[256];
      const int count = ::epoll_wait(epoll_fd_, events, 256, options_.timeout_ms);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return Status(Code::kDeadlineExceeded, "the server has not answered any request for a while");
      for (int i = 0; i < count; ++i) {
        LoadConnection& connection = connections_[events[i].data.u64];
        if ((events[i].events & EPOLLOUT) != 0 && connection.client) FW_RETURN_IF_ERROR(continue_sending(connection));
        if ((events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) != 0 && connection.client) {
          FW_RETURN_IF_ERROR(receive(connection));
        }
      }
    }
    report_.seconds = static_cast<double>(schedule::monotonic_now_ns() - begin_ns) / 1e9;
    return std::move(report_);
  }

 private:
  Status open(LoadConnection& connection) {
    FW_ASSIGN_OR_RETURN(Client client, Client::connect(options_.address, options_.port));
    ::fcntl(client.socket(), F_SETFL, ::fcntl(client.socket(), F_GETFL) | O_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = static_cast<uint64_t>(&connection - connections_.data());
    if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, client.socket(), &event) != 0) {
      return internal_error("cannot watch a connection of the load generator");
    }
    connection.client = std::move(client);
    connection.reader = ResponseReader();
    connection.wants_write = false;
    return {};
  }

  Status send_next(LoadConnection& connection) {
    if (options_.requests > 0 && report_.sent >= options_.requests) return {};
    const int64_t now = schedule::monotonic_now_ns();
    if (end_ns_ != 0 && now >= end_ns_) return {};
    connection.index = report_.sent++;
    options_.make_request(connection.index, connection.request);
    connection.sent_bytes = 0;
    connection.in_flight = true;
    ++in_flight_;
    connection.start_ns = schedule::monotonic_now_ns();
    return continue_sending(connection);
  }

  Status continue_sending(LoadConnection& connection) {
    while (connection.sent_bytes < connection.request.size()) {
      const ssize_t sent = ::send(connection.client->socket(), connection.request.data() + connection.sent_bytes,
                                  connection.request.size() - connection.sent_bytes, MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return watch_write(connection, true);
        return {};  // an answer may still be there; reading tells
      }
      connection.sent_bytes += static_cast<size_t>(sent);
    }
    return watch_write(connection, false);
  }

  Status watch_write(LoadConnection& connection, bool wanted) {
    if (connection.wants_write == wanted) return {};
    connection.wants_write = wanted;
    epoll_event event{};
    event.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.u64 = static_cast<uint64_t>(&connection - connections_.data());
    ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, connection.client->socket(), &event);
    return {};
  }

  Status receive(LoadConnection& connection) {
    const ssize_t got = ::recv(connection.client->socket(), buffer_.data(), buffer_.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return {};
    if (got <= 0) return reopen(connection, got == 0 && connection.reader.finish().is_ok());
    std::string_view bytes(buffer_.data(), static_cast<size_t>(got));
    FW_ASSIGN_OR_RETURN(const size_t used, connection.reader.feed(bytes));
    if (!connection.reader.done()) return {};
    if (used < bytes.size()) return internal_error("the server sent more than was asked for");
    return finish(connection);
  }

  Status finish(LoadConnection& connection) {
    report_.latency.add(schedule::monotonic_now_ns() - connection.start_ns);
    ClientResponse response = connection.reader.take();
    ++report_.by_status[response.status];
    connection.in_flight = false;
    --in_flight_;
    if (options_.on_response) options_.on_response(connection.index, response.status, response.body);
    if (auto field = response.find("connection"); field && *field == "close") {
      connection.client.reset();
      if (!options_.reconnect || (options_.requests > 0 && report_.sent >= options_.requests)) return {};
      if (Status opened = open(connection); !opened.is_ok()) return in_flight_ > 0 ? Status() : opened;
    }
    return send_next(connection);
  }

  Status reopen(LoadConnection& connection, bool answered) {
    if (answered) return finish(connection);
    connection.client.reset();
    if (connection.in_flight) {
      ++report_.broken;
      connection.in_flight = false;
      --in_flight_;
    }
    // A server that is stopping takes no new connections: what is in flight on others still counts.
    if (!options_.reconnect || !open(connection).is_ok()) return {};
    return send_next(connection);
  }

  const LoadOptions& options_;
  std::string buffer_;
  int epoll_fd_ = -1;
  std::vector<LoadConnection> connections_;
  uint64_t in_flight_ = 0;
  int64_t end_ns_ = 0;
  LoadReport report_;
};

}  // namespace

void LatencyHistogram::add(int64_t ns) {
  const uint64_t value = static_cast<uint64_t>(std::max<int64_t>(ns, 0));
  // The position of the highest bit, and the bits after it: exact below 2^kStepBits.
  const int width = std::bit_width(value);
  const int shift = std::max(0, width - kStepBits - 1);
  const size_t bucket = (static_cast<size_t>(shift) << kStepBits) + static_cast<size_t>(value >> shift);
  ++buckets_[std::min(bucket, buckets_.size() - 1)];
  ++count_;
  sum_ns_ += static_cast<double>(value);
}

void LatencyHistogram::merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ns_ += other.sum_ns_;
}

double LatencyHistogram::quantile_us(double quantile) const {
  if (count_ == 0) return 0;
  const uint64_t rank = std::max<uint64_t>(1, static_cast<uint64_t>(quantile * static_cast<double>(count_) + 0.5));
  uint64_t seen = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen < rank) continue;
    const size_t shift = bucket < (size_t{2} << kStepBits) ? 0 : (bucket >> kStepBits) - 1;
    const uint64_t low = static_cast<uint64_t>(bucket - (shift << kStepBits)) << shift;
    return (static_cast<double>(low) + static_cast<double>(uint64_t{1} << shift) / 2) / 1000;
  }
  return 0;
}

Result<LoadReport> run_load(const LoadOptions& options) {
  if (options.connections < 1) return invalid_argument("the load generator needs at least one connection");
  if (options.requests == 0 && options.seconds <= 0) return invalid_argument("the load generator needs an end");
  return LoadRun(options).run();
}

}  // namespace flywheel::http
