// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/net/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "server/schedule/timeline.h"

namespace flywheel::net {
namespace {

constexpr int kBacklog = 4096;
constexpr std::string_view kUnixPrefix = "unix:";
constexpr rlim_t kReservedDescriptors = 256;

void set_option(int socket, int level, int name, int value) { ::setsockopt(socket, level, name, &value, sizeof value); }

// A server with many clients needs more descriptors than a login shell's default. Returns how many of `wanted`
// connections there are descriptors for, after what loading models takes.
int raise_descriptor_limit(int wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised{limit.rlim_max, limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  const rlim_t reserved = std::min<rlim_t>(kReservedDescriptors, limit.rlim_cur / 4);
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur - reserved, 1, static_cast<rlim_t>(std::max(wanted, 1))));
}

}  // namespace

Listener::~Listener() {
  stop_and_join();
  if (socket_ >= 0) ::close(socket_);
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<std::unique_ptr<Listener>> Listener::start(const ListenerOptions& options,
                                                  const std::function<std::unique_ptr<Loop>(int)>& make_loop) {
  if (options.threads < 1) return invalid_argument(options.name + ": the thread count must be at least 1");
  const int max_connections = raise_descriptor_limit(options.max_connections);
  if (max_connections < options.max_connections) {
    log(LogLevel::kWarning,
        "{}: {} connections at most, as the process may open few files: raise its limit (ulimit -n)", options.name,
        max_connections);
  }
  std::unique_ptr<Listener> listener(new Listener(options));
  FW_RETURN_IF_ERROR(listener->listen());
  const ReactorOptions reactor{options.name, options.thread_name, max_connections, options.shortest_timeout_ms,
                               options.busy_poll_us};
  for (int i = 0; i < options.threads; ++i) {
    listener->reactors_.push_back(std::make_unique<Reactor>(i, reactor, make_loop(i)));
  }
  for (const auto& each : listener->reactors_) {
    FW_RETURN_IF_ERROR(each->prepare(listener->socket_, &listener->reactors_));
  }
  for (const auto& each : listener->reactors_) each->start();
  log(LogLevel::kInfo, "Started {} at {}{}", options.name, options.address,
      listener->path_.empty() ? ":" + std::to_string(listener->port_) : "");
  return listener;
}

// A socket in the file system. Who may connect is who may write to its folder's file.
Status Listener::listen_at_path(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return invalid_argument(options_.name + ": the path of a Unix socket has 1 to " +
                            std::to_string(sizeof address.sun_path - 1) + " bytes, and '" + path + "' has " +
                            std::to_string(path.size()));
  }
  path.copy(address.sun_path, path.size());
  const auto* any_address = reinterpret_cast<const sockaddr*>(&address);
  socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return unavailable(options_.name + ": no socket: " + std::generic_category().message(errno));
  int error = ::bind(socket_, any_address, sizeof address) == 0 ? 0 : errno;
  if (error == EADDRINUSE) {
    // What a server that was killed left behind may be replaced; a server that answers may not.
    struct stat file {};
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool dead = ::lstat(path.c_str(), &file) == 0 && S_ISSOCK(file.st_mode) &&
                      ::connect(probe, any_address, sizeof address) != 0 && errno == ECONNREFUSED;
    if (probe >= 0) ::close(probe);
    if (dead && ::unlink(path.c_str()) == 0) error = ::bind(socket_, any_address, sizeof address) == 0 ? 0 : errno;
  }
  if (error == 0 && ::listen(socket_, kBacklog) != 0) error = errno;
  if (error != 0) {
    return unavailable(options_.name + ": cannot listen at unix:" + path + ": " +
                       std::generic_category().message(error));
  }
  path_ = path;
  return {};
}

Status Listener::listen() {
  if (options_.address.starts_with(kUnixPrefix)) return listen_at_path(options_.address.substr(kUnixPrefix.size()));
  const std::string where = options_.address + ":" + std::to_string(options_.port);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(options_.address.c_str(), std::to_string(options_.port).c_str(), &hints, &found);
  if (failure != 0) {
    return invalid_argument(options_.name + ": '" + options_.address +
                            "' is no address to listen at: " + ::gai_strerror(failure));
  }
  int error = 0;
  for (addrinfo* entry = found; entry != nullptr && socket_ < 0; entry = entry->ai_next) {
    const int socket = ::socket(entry->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket < 0) {
      error = errno;
      continue;
    }
    set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (options_.reuse_port) set_option(socket, SOL_SOCKET, SO_REUSEPORT, 1);
    // Accepted sockets inherit these.
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 15);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
    if (::bind(socket, entry->ai_addr, entry->ai_addrlen) != 0 || ::listen(socket, kBacklog) != 0) {
      error = errno;
      ::close(socket);
      continue;
    }
    socket_ = socket;
  }
  ::freeaddrinfo(found);
  if (socket_ < 0) {
    return unavailable(options_.name + ": cannot listen at " + where + ": " + std::generic_category().message(error) +
                       (error == EADDRINUSE ? "; another program has the port, choose another one" : ""));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return internal_error(options_.name + ": the system does not say which port it gave");
  }
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  return {};
}

void Listener::begin_drain() {
  for (const auto& reactor : reactors_) reactor->begin_drain();
  // Each takes what waits for acceptance before it stops listening; then the system may refuse newcomers.
  auto all_listening_ended = [&] {
    for (const auto& reactor : reactors_) {
      if (!reactor->drain_entered()) return false;
    }
    return true;
  };
  for (int i = 0; i < 1000 && !all_listening_ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::shutdown(socket_, SHUT_RDWR);
}

void Listener::wait_until_drained(int64_t timeout_ms) const {
  const int64_t deadline_ns = schedule::monotonic_now_ns() + timeout_ms * 1'000'000;
  auto all_drained = [&] {
    for (const auto& reactor : reactors_) {
      if (!reactor->drained()) return false;
    }
    return true;
  };
  while (!all_drained() && schedule::monotonic_now_ns() < deadline_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void Listener::stop_and_join() {
  for (const auto& reactor : reactors_) reactor->stop_and_join();
}

}  // namespace flywheel::net
