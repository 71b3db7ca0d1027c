// SPDX-License-Identifier: Apache-2.0
#include "server/backend/python/channel.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace flywheel::python {
namespace {

constexpr int kSocketBufferBytes = 1 << 20;
// More than these are sent at once, so that the process need not make new ones.
constexpr size_t kReleasesInWaiting = 2;
constexpr size_t kMaxReceivedBlocks = 4096;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

Result<std::shared_ptr<Channel>> Channel::create(int& process_fd) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return internal_error(fmt::format("cannot connect a Python process: {}", std::strerror(errno)));
  const int wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return internal_error(fmt::format("cannot connect a Python process: {}", std::strerror(errno)));
  }
  for (int end : ends) (void)::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  process_fd = ends[1];
  return std::shared_ptr<Channel>(new Channel(ends[0], wake_fd));
}

Channel::~Channel() {
  close();
  ::close(fd_);
  ::close(wake_fd_);
}

void Channel::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (const Packet& packet : outbox_) {
    if (packet.fd >= 0) ::close(packet.fd);
  }
  outbox_.clear();
  (void)::shutdown(fd_, SHUT_RDWR);
}

void Channel::wake() const {
  const uint64_t one = 1;
  (void)!::write(wake_fd_, &one, sizeof one);
}

Status Channel::send(const Outgoing& message) {
  std::lock_guard lock(mutex_);
  return send_locked(message);
}

Status Channel::send_locked(const Outgoing& message) {
  if (closed_) return unavailable("the Python process has ended");
  Head head;
  head.kind = static_cast<uint32_t>(message.kind);
  head.id = message.id;
  head.meta_bytes = message.meta.size();
  const size_t data_begin = align_up(message.meta.size());
  head.body_bytes = data_begin + message.data_bytes;
  Packet packet;
  std::byte* body = nullptr;
  SentBlocks::Block block;
  if (head.body_bytes > kMaxInlineBytes) {
    FW_ASSIGN_OR_RETURN(block, sent_.take(head.body_bytes));
    head.block = block.id;
    head.is_new_block = block.new_fd >= 0 ? 1 : 0;
    packet.fd = block.new_fd;
    packet.bytes.resize(sizeof head);
    body = block.data;
  } else {
    packet.bytes.resize(sizeof head + head.body_bytes);
    body = packet.bytes.data() + sizeof head;
  }
  if (!message.meta.empty()) std::memcpy(body, message.meta.data(), message.meta.size());
  size_t at = data_begin;
  for (const std::span<const std::byte> bytes : message.data) {
    if (!bytes.empty()) std::memcpy(body + at, bytes.data(), bytes.size());
    at += align_up(bytes.size());
  }
  fill_releases_locked(head);
  std::memcpy(packet.bytes.data(), &head, sizeof head);
  return write_locked(std::move(packet));
}

void Channel::fill_releases_locked(Head& head) {
  for (size_t i = 0; i < kMaxReleased && !releases_.empty(); ++i) {
    head.released[i] = releases_.back();
    releases_.pop_back();
  }
}

Status Channel::write_locked(Packet packet) {
  Status status;
  if (outbox_.empty() && try_write(packet, status)) {
    if (packet.fd >= 0) ::close(packet.fd);
    return status;
  }
  outbox_.push_back(std::move(packet));
  wake();
  return {};
}

// False: not now.
bool Channel::try_write(const Packet& packet, Status& status) const {
  iovec part{const_cast<std::byte*>(packet.bytes.data()), packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (packet.fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &packet.fd, sizeof(int));
  }
  for (;;) {
    if (::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: descriptors in flight that nobody has taken yet.
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) return false;
    status = unavailable(fmt::format("the Python process has ended ({})", std::strerror(errno)));
    return true;
  }
}

bool Channel::wants_to_write() const {
  std::lock_guard lock(mutex_);
  return !outbox_.empty();
}

Status Channel::flush() {
  uint64_t ignored = 0;
  (void)!::read(wake_fd_, &ignored, sizeof ignored);
  std::lock_guard lock(mutex_);
  Status status;
  while (!outbox_.empty() && try_write(outbox_.front(), status)) {
    if (outbox_.front().fd >= 0) ::close(outbox_.front().fd);
    outbox_.pop_front();
    if (!status.is_ok()) return status;
  }
  return {};
}

void Channel::release_received(uint32_t id) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  releases_.push_back(id);
  if (releases_.size() > kReleasesInWaiting) (void)send_locked({});
}

Result<std::optional<Incoming>> Channel::receive() {
  iovec part{buffer_.data(), buffer_.size()};
  msghdr message{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size = 0;
  do {
    size = ::recvmsg(fd_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return std::optional<Incoming>();
  if (size <= 0) return unavailable("the Python process has closed its connection");
  int fd = -1;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof fd))
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  }
  const FileDescriptor closed_after(fd);
  FW_ASSIGN_OR_RETURN(Incoming incoming, read_message(static_cast<size_t>(size), fd));
  return std::optional<Incoming>(std::move(incoming));
}

Result<Incoming> Channel::read_message(size_t size, int received_fd) {
  Head head;
  if (size < sizeof head || size >= buffer_.size())
    return corrupt("the Python process sent a message of no known form");
  std::memcpy(&head, buffer_.data(), sizeof head);
  if (head.meta_bytes > head.body_bytes || align_up(head.meta_bytes) > head.body_bytes)
    return corrupt("the Python process sent a message whose description is larger than itself");
  std::vector<uint32_t> forgotten;
  {
    std::lock_guard lock(mutex_);
    for (uint32_t id : head.released) {
      if (id != 0) sent_.give_back(id, forgotten);
    }
    for (uint32_t id : forgotten) (void)send_locked({Kind::kForget, id, {}, {}, 0});
  }
  Incoming incoming;
  incoming.kind = static_cast<Kind>(head.kind);
  incoming.id = head.id;
  if (incoming.kind == Kind::kForget) {
    received_.erase(static_cast<uint32_t>(head.id));
    return incoming;
  }
  const size_t data_begin = align_up(head.meta_bytes);
  const size_t data_bytes = head.body_bytes - data_begin;
  if (head.block == 0) {
    if (head.body_bytes != size - sizeof head) return corrupt("the Python process sent a message of another size");
    const std::byte* body = buffer_.data() + sizeof head;
    incoming.meta.assign(reinterpret_cast<const char*>(body), head.meta_bytes);
    if (data_bytes > 0) {
      auto copy = std::make_shared<std::vector<std::byte>>(body + data_begin, body + head.body_bytes);
      incoming.data = *copy;
      incoming.owner = std::move(copy);
    }
    return incoming;
  }
  if (head.is_new_block != 0) {
    if (received_fd < 0) return corrupt("the Python process named a block of shared memory and did not send it");
    if (received_.size() >= kMaxReceivedBlocks)
      return corrupt(fmt::format("the Python process uses more than {} blocks of shared memory", kMaxReceivedBlocks));
    FW_ASSIGN_OR_RETURN(received_[head.block], Mapping::map_received(received_fd));
  }
  const auto found = received_.find(head.block);
  if (found == received_.end() || found->second->size() < head.body_bytes)
    return corrupt("the Python process named a block of shared memory that it does not have");
  std::shared_ptr<Mapping> mapping = found->second;
  incoming.meta.assign(reinterpret_cast<const char*>(mapping->data()), head.meta_bytes);
  incoming.data = {mapping->data() + data_begin, data_bytes};
  incoming.owner =
      std::shared_ptr<const void>(mapping->data(), [mapping, channel = weak_from_this(), id = head.block](const void*) {
        if (const std::shared_ptr<Channel> open = channel.lock()) open->release_received(id);
      });
  return incoming;
}

}  // namespace flywheel::python
