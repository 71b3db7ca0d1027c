// SPDX-License-Identifier: Apache-2.0
// TLS on accepted sockets, by OpenSSL: nothing else of the server knows it. A server's loops share one TlsContext; each
// connection owns its TlsSession. Versions 1.2 and 1.3.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "flywheel/status.h"

struct ssl_ctx_st;
struct ssl_st;

namespace flywheel::net {

struct TlsOptions {
  bool enabled = false;
  bool mutual = false;           // clients have to show a certificate that root_certificates vouch for
  std::string certificate_file;  // PEM: the server's, then those between it and the root
  std::string key_file;          // PEM
  std::string root_file;         // PEM; needed when mutual
};

// Used by one thread, as its connection is. Calls answer as those on a socket that does not block: -1 and errno EAGAIN
// when they have to wait, ECONNRESET when the client broke the rules or the connection.
class TlsSession {
 public:
  TlsSession(ssl_st* ssl) : ssl_(ssl) {}  // NOLINT(google-explicit-constructor): made by TlsContext only
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Shakes hands first. 0: the client has said that it sends no more.
  ssize_t receive(void* data, size_t size_bytes);
  ssize_t send(std::span<const iovec> pieces);
  // Tells the client that nothing follows.
  void end();
  bool has_pending() const;  // received and not yet given by receive(): no event of the socket tells of it
  bool is_secured() const;   // hands are shaken
  bool wants_write() const { return wants_write_; }  // receive() waits for room to send

 private:
  ssize_t fail(int error);

  ssl_st* ssl_;
  bool wants_write_ = false;
  bool broken_ = false;  // OpenSSL forbids further calls
};

// Any thread.
class TlsContext {
 public:
  // `name`: of the service, in the log. `protocol`: what ALPN agrees on, "h2" or "http/1.1"; clients that offer others
  // only are refused, those without ALPN are not. kInvalidArgument names the file and what is wrong with it.
  static Result<std::shared_ptr<TlsContext>> create(const TlsOptions& options, std::string name,
                                                    std::string_view protocol);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // Null when there is no memory. Looks at most once a second whether the files have changed, and reads them again: new
  // connections get the new certificate. Files that do not fit together are left alone, with a warning.
  std::unique_ptr<TlsSession> open(int socket);

 private:
  TlsContext(const TlsOptions& options, std::string name, std::string_view protocol);
  Status load();
  std::string state_of_files() const;
  void reload_if_changed();

  const TlsOptions options_;
  const std::string name_;
  const std::string protocols_;  // in ALPN's form
  std::mutex mutex_;
  ssl_ctx_st* context_ = nullptr;
  std::string loaded_state_, refused_state_;
  int64_t next_look_ns_ = 0;
};

}  // namespace flywheel::net
