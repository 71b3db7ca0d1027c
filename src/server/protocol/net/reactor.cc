// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/net/reactor.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/log.h"
#include "server/schedule/timeline.h"

namespace flywheel::net {
namespace {

constexpr size_t kScratchBytes = 128 << 10;
constexpr int kMaxEvents = 256;
constexpr int kMaxAcceptsPerEvent = 32;
constexpr int64_t kNsPerUs = 1000;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kLongestScanIntervalNs = 1000 * kNsPerMs;
constexpr int64_t kShortestScanIntervalNs = 5 * kNsPerMs;
constexpr int64_t kListenAgainNs = 100 * kNsPerMs;
constexpr int64_t kWarnAgainNs = 10'000'000'000;
constexpr size_t kEvictionCandidates = 64;

// Tells events apart: connections are pointers, and no object lives at these addresses.
char g_listener_tag, g_inbox_tag;

}  // namespace

Reactor::Reactor(int number, ReactorOptions options, std::unique_ptr<Loop> loop)
    : options_(std::move(options)),
      number_(number),
      loop_(std::move(loop)),
      busy_poll_(options_.busy_poll_us * kNsPerUs) {
  loop_->scratch.resize(kScratchBytes);
  scan_interval_ns_ =
      std::clamp(options_.shortest_timeout_ms * kNsPerMs / 4, kShortestScanIntervalNs, kLongestScanIntervalNs);
}

Reactor::~Reactor() {
  if (loop_->epoll_fd >= 0) ::close(loop_->epoll_fd);
}

Status Reactor::prepare(int listening_socket, const std::vector<std::unique_ptr<Reactor>>* peers) {
  peers_ = peers;
  listening_socket_ = listening_socket;
  loop_->epoll_fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (loop_->epoll_fd < 0 || loop_->inbox->event_fd() < 0) {
    return unavailable(options_.name + ": no file descriptors left for a reactor; raise the limit (ulimit -n)");
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &g_inbox_tag;
  if (::epoll_ctl(loop_->epoll_fd, EPOLL_CTL_ADD, loop_->inbox->event_fd(), &event) != 0) {
    return internal_error(options_.name + ": cannot watch a reactor's inbox");
  }
  set_listening(true);
  if (!listening_) return internal_error(options_.name + ": cannot watch the listening socket");
  return {};
}

void Loop::close_socket(int socket) const {
  ::epoll_ctl(epoll_fd, EPOLL_CTL_DEL, socket, nullptr);
  ::close(socket);
}

void Reactor::set_listening(bool listening) {
  if (listening == listening_) return;
  epoll_event event{};
  // Exclusive: a new connection wakes one reactor and not all of them.
  event.events = EPOLLIN | EPOLLEXCLUSIVE;
  event.data.ptr = &g_listener_tag;
  const int result = ::epoll_ctl(loop_->epoll_fd, listening ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listening_socket_, &event);
  if (result == 0) listening_ = listening;
}

void Reactor::start() {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), (options_.thread_name + "-" + std::to_string(number_)).c_str());
}

void Reactor::begin_drain() {
  drain_wanted_.store(true, std::memory_order_release);
  loop_->inbox->wake();
}

bool Reactor::drained() const {
  return drain_entered_.load(std::memory_order_acquire) && connection_count_.load(std::memory_order_acquire) == 0;
}

void Reactor::stop_and_join() {
  if (!thread_.joinable()) return;
  stop_wanted_.store(true, std::memory_order_release);
  loop_->inbox->wake();
  thread_.join();
}

void Reactor::run() {
  Inbox::own = loop_->inbox.get();
  Inbox::own_finished = &finished_;
  while (!stop_wanted_.load(std::memory_order_acquire)) {
    handle_events(timeout_ms());
  }
  set_listening(false);
  loop_->inbox->drain(finished_, new_sockets_);
  for (int socket : new_sockets_) ::close(socket);
  new_sockets_.clear();
  finish_round();
  for (const auto& connection : connections_) connection->close_now();
  loop_->to_destroy.clear();
  connections_.clear();
  finished_.clear();
  loop_->inbox->close();
  connection_count_.store(0, std::memory_order_release);
  Inbox::own = nullptr;
  Inbox::own_finished = nullptr;
}

int Reactor::timeout_ms() const {
  int64_t next_ns = loop_->alarm_ns;
  if (!connections_.empty() || listen_again_ns_ != 0) next_ns = std::min(next_ns, next_scan_ns_);
  if (next_ns == Loop::kNever) return -1;
  const int64_t left_ns = next_ns - schedule::monotonic_now_ns();
  return static_cast<int>(std::clamp<int64_t>(left_ns / kNsPerMs + 1, 0, 1000));
}

int Reactor::wait_for_events(std::span<epoll_event> events, int timeout_ms) {
  const int64_t began_ns = schedule::monotonic_now_ns();
  auto wait = [&](int wait_ms) {
    const int count = ::epoll_wait(loop_->epoll_fd, events.data(), static_cast<int>(events.size()), wait_ms);
    loop_->now_ns = schedule::monotonic_now_ns();
    return count;
  };
  int count = 0;
  if (busy_poll_.is_worthwhile() && timeout_ms != 0) {
    for (count = wait(0); count == 0 && loop_->now_ns - began_ns < busy_poll_.budget_ns(); count = wait(0)) {
      ::sched_yield();  // a model that runs on this core goes first
    }
  }
  if (count == 0) count = wait(timeout_ms);
  busy_poll_.note_wait(loop_->now_ns - began_ns);
  return count;
}

void Reactor::handle_events(int timeout_ms) {
  epoll_event events[kMaxEvents];
  const int count = wait_for_events(events, timeout_ms);
  for (int i = 0; i < count; ++i) {
    void* tag = events[i].data.ptr;
    if (tag == &g_listener_tag) {
      accept_connections();
    } else if (tag == &g_inbox_tag) {
      loop_->inbox->drain(finished_, new_sockets_);
      for (int socket : new_sockets_) take_over(socket);
      new_sockets_.clear();
    } else {
      static_cast<Connection*>(tag)->on_events(events[i].events);
    }
  }
  if (accept_wanted_.exchange(false, std::memory_order_acq_rel) && !loop_->draining) accept_connections();
  if (drain_wanted_.load(std::memory_order_acquire) && !loop_->draining) enter_drain();
  if (loop_->now_ns >= loop_->alarm_ns) {
    loop_->alarm_ns = Loop::kNever;
    loop_->on_alarm();
  }
  finish_round();
  if (loop_->now_ns >= next_scan_ns_) {
    scan_deadlines();
    finish_round();
  }
}

void Reactor::finish_round() {
  // Sending an answer can let a paused connection go on, whose requests may be answered at once: until all is quiet.
  while (!finished_.empty() || !loop_->to_flush.empty()) {
    settling_.swap(finished_);
    for (const CompletionPtr& completion : settling_) completion->on_reactor();
    settling_.clear();
    for (size_t i = 0; i < loop_->to_flush.size(); ++i) loop_->to_flush[i]->flush();
    loop_->to_flush.clear();
  }
  for (Connection* closed : loop_->to_destroy) {
    const size_t index = closed->index_;
    std::swap(connections_[index], connections_.back());
    connections_[index]->index_ = index;
    connections_.pop_back();
    connection_count_.fetch_sub(1, std::memory_order_release);
  }
  loop_->to_destroy.clear();
}

void Reactor::accept_connections() {
  for (int i = 0; i < kMaxAcceptsPerEvent; ++i) {
    const int socket = ::accept4(listening_socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      const int error = errno;
      if (error != EAGAIN && error != EWOULDBLOCK) {
        // The system says so whether or not a client waits.
        if (!is_client_waiting()) return;
        if ((error == EMFILE || error == ENFILE) && make_room()) continue;
        // Out of file descriptors or memory: the event would come again and again.
        if (loop_->now_ns >= next_warning_ns_) {
          next_warning_ns_ = loop_->now_ns + kWarnAgainNs;
          log(LogLevel::kWarning, "{}: cannot accept connections for now: {}", options_.name,
              std::generic_category().message(error));
        }
        if (listening_) ask_peers_to_accept();
        set_listening(false);
        listen_again_ns_ = loop_->now_ns + kListenAgainNs;
        next_scan_ns_ = std::min(next_scan_ns_, listen_again_ns_);
      }
      return;
    }
    Reactor* chosen = this;
    const bool full = total_connections() >= options_.max_connections && !make_room();
    for (const auto& peer : *peers_) {
      const int load = peer->connection_count_.load(std::memory_order_relaxed);
      const int least = chosen->connection_count_.load(std::memory_order_relaxed);
      // Where there is no room here, the one with the most connections is the likeliest to have an idle one.
      if (full ? load > least : load < least) chosen = peer.get();
    }
    if (full && chosen == this) {
      refuse(socket);
      continue;
    }
    chosen->connection_count_.fetch_add(1, std::memory_order_relaxed);
    if (chosen == this) {
      adopt(socket);
    } else {
      chosen->loop_->inbox->adopt(socket);
    }
  }
}

bool Reactor::is_client_waiting() const {
  pollfd listening{listening_socket_, POLLIN, 0};
  return ::poll(&listening, 1, 0) > 0;
}

int Reactor::total_connections() const {
  int total = 0;
  for (const auto& peer : *peers_) total += peer->connection_count_.load(std::memory_order_relaxed);
  return total;
}

// A connection that a peer accepted, counted already.
void Reactor::take_over(int socket) {
  if (total_connections() <= options_.max_connections || make_room()) return adopt(socket);
  refuse(socket);
  connection_count_.fetch_sub(1, std::memory_order_release);
}

void Reactor::refuse(int socket) {
  loop_->refuse(socket);
  ::close(socket);
}

// The listening socket wakes one reactor, which may be the one without an idle connection to close.
void Reactor::ask_peers_to_accept() {
  for (const auto& peer : *peers_) {
    if (peer.get() == this || peer->connection_count_.load(std::memory_order_relaxed) == 0) continue;
    if (!peer->accept_wanted_.exchange(true, std::memory_order_acq_rel)) peer->loop_->inbox->wake();
  }
}

void Reactor::adopt(int socket) {
  auto connection = loop_->connect(socket);
  connection->index_ = connections_.size();
  connections_.push_back(std::move(connection));
  if (connections_.size() == 1) next_scan_ns_ = loop_->now_ns + scan_interval_ns_;
}

// Closes the connection that has been idle longest among some, for a new client to be served.
bool Reactor::make_room() {
  Connection* oldest = nullptr;
  for (size_t i = 0; i < std::min(connections_.size(), kEvictionCandidates); ++i) {
    Connection* candidate = connections_[i].get();
    if (candidate->closed() || !candidate->is_idle()) continue;
    if (oldest == nullptr || candidate->idle_since_ns() < oldest->idle_since_ns()) oldest = candidate;
  }
  if (oldest == nullptr) return false;
  oldest->close_now();
  return true;
}

void Reactor::scan_deadlines() {
  if (listen_again_ns_ != 0 && loop_->now_ns >= listen_again_ns_) {
    listen_again_ns_ = 0;
    if (!loop_->draining) set_listening(true);
  }
  for (size_t i = 0; i < connections_.size(); ++i) connections_[i]->check_deadlines();
  int64_t interval_ns = scan_interval_ns_;
  if (loop_->draining) interval_ns = kShortestScanIntervalNs;
  next_scan_ns_ = loop_->now_ns + interval_ns;
  if (listen_again_ns_ != 0) next_scan_ns_ = std::min(next_scan_ns_, listen_again_ns_);
}

void Reactor::enter_drain() {
  // Clients that the system has accepted for us already get their 503 instead of a reset.
  accept_connections();
  set_listening(false);
  loop_->draining = true;
  next_scan_ns_ = loop_->now_ns;
  for (const auto& connection : connections_) connection->on_drain();
  drain_entered_.store(true, std::memory_order_release);
}

}  // namespace flywheel::net
