// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/net/pieces.h"

#include <sys/socket.h>

namespace flywheel::net {

void Pieces::add(const void* data, size_t size_bytes) {
  if (size_bytes <= skip_bytes_) {
    skip_bytes_ -= size_bytes;
    return;
  }
  if (full()) return;
  pieces_[count_++] = {const_cast<char*>(static_cast<const char*>(data)) + skip_bytes_, size_bytes - skip_bytes_};
  skip_bytes_ = 0;
}

ssize_t Pieces::send(int socket) {
  msghdr message{};
  message.msg_iov = pieces_.data();
  message.msg_iovlen = count_;
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace flywheel::net
