// SPDX-License-Identifier: Apache-2.0
// How a connection's bytes come and go: on the socket itself, or through TLS. Each connection owns one and uses it on
// its reactor's thread; the socket stays the connection's to close.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <memory>
#include <span>
#include <string_view>

#include "server/protocol/net/pieces.h"
#include "server/protocol/net/tls.h"

namespace flywheel::net {

class Transport {
 public:
  // `context`: null for a plain connection.
  Transport(int socket, TlsContext* context)
      : socket_(socket),
        tls_(context != nullptr ? context->open(socket) : nullptr),
        is_usable_(context == nullptr || tls_ != nullptr) {}

  bool is_usable() const { return is_usable_; }  // false: there was no memory for TLS

  // As ::readv; with TLS only the first piece that has room is filled, and not always to its end.
  ssize_t receive(std::span<iovec> pieces) {
    if (tls_ != nullptr) return receive_tls(pieces);
    if (pieces.size() == 1) return ::recv(socket_, pieces[0].iov_base, pieces[0].iov_len, 0);
    return ::readv(socket_, pieces.data(), static_cast<int>(pieces.size()));
  }
  ssize_t send(Pieces& pieces) { return tls_ != nullptr ? tls_->send(pieces.pieces()) : pieces.send(socket_); }
  ssize_t send(std::string_view bytes) {
    Pieces pieces(0);
    pieces.add(bytes.data(), bytes.size());
    return send(pieces);
  }
  // After the last byte has been sent.
  void end_sending() {
    say_goodbye();
    ::shutdown(socket_, SHUT_WR);
  }
  // Before the socket is closed: tells a TLS client that nobody cut the connection.
  void say_goodbye() {
    if (tls_ != nullptr) tls_->end();
  }
  // The socket's events alone do not tell that there is something to receive.
  bool has_pending() const { return tls_ != nullptr && tls_->has_pending(); }
  // receive() goes on when the socket has room again.
  bool wants_write() const { return tls_ != nullptr && tls_->wants_write(); }
  bool is_secured() const { return tls_ == nullptr || tls_->is_secured(); }

 private:
  ssize_t receive_tls(std::span<iovec> pieces) {
    for (const iovec& piece : pieces) {
      if (piece.iov_len > 0) return tls_->receive(piece.iov_base, piece.iov_len);
    }
    return 0;
  }

  int socket_;
  std::unique_ptr<TlsSession> tls_;
  bool is_usable_;
};

}  // namespace flywheel::net
