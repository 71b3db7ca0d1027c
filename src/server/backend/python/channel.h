// SPDX-License-Identifier: Apache-2.0
// The server's end of the connection to one Python process: messages out from any thread, in on the thread that watches
// the process. Sending never waits: what the process does not take yet is kept and sent by that thread. Owned by the
// process's watcher, its callbacks and the tensors that lie in its blocks.
// Thread safety: send() and releases from any thread; receive(), flush() and wants_to_write() from the watcher's.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "flywheel/status.h"
#include "server/backend/python/block_pool.h"
#include "server/backend/python/message.h"

namespace flywheel::python {

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // `process_fd`: the other end, for the process; the caller closes it.
  static Result<std::shared_ptr<Channel>> create(int& process_fd);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int fd() const { return fd_; }
  // Readable when there is something to flush.
  int wake_fd() const { return wake_fd_; }

  Status send(const Outgoing& message);
  // Nothing when nothing has arrived; kUnavailable when the process has closed its end; kCorrupt for nonsense.
  Result<std::optional<Incoming>> receive();
  bool wants_to_write() const;
  Status flush();
  // Ends it: what is kept is dropped, sending fails.
  void close();

 private:
  struct Packet {
    std::vector<std::byte> bytes;
    int fd = -1;
  };
  Channel(int fd, int wake_fd) : fd_(fd), wake_fd_(wake_fd), buffer_(sizeof(Head) + kMaxInlineBytes + 1) {}
  Status send_locked(const Outgoing& message);
  Status write_locked(Packet packet);
  bool try_write(const Packet& packet, Status& status) const;
  void fill_releases_locked(Head& head);
  void release_received(uint32_t id);
  Result<Incoming> read_message(size_t size, int received_fd);
  void wake() const;

  const int fd_;
  const int wake_fd_;
  std::vector<std::byte> buffer_;                          // the watcher's
  std::map<uint32_t, std::shared_ptr<Mapping>> received_;  // likewise: the process's blocks
  mutable std::mutex mutex_;
  bool closed_ = false;
  SentBlocks sent_;
  std::deque<Packet> outbox_;
  std::vector<uint32_t> releases_;  // of the process's blocks
};

}  // namespace flywheel::python
