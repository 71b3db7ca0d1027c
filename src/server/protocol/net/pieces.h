// SPDX-License-Identifier: Apache-2.0
// One system call's worth of what a connection still has to send: pieces of memory in order, without those that were
// sent before. Connections fill one from their queue for each call. Lives on the stack; owns nothing.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>

namespace flywheel::net {

class Pieces {
 public:
  // `sent_bytes`: of what will be added, sent already.
  explicit Pieces(size_t sent_bytes) : skip_bytes_(sent_bytes) {}
  void add(const void* data, size_t size_bytes);
  bool full() const { return count_ == pieces_.size(); }
  std::span<const iovec> pieces() const { return std::span(pieces_).first(count_); }
  // As ::sendmsg, without waiting and without a signal.
  ssize_t send(int socket);

 private:
  std::array<iovec, 64> pieces_;
  size_t count_ = 0;
  size_t skip_bytes_;
};

}  // namespace flywheel::net
