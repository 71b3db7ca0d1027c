// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/net/tls.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "server/schedule/timeline.h"

namespace flywheel::net {
namespace {

constexpr size_t kRecordBytes = 16 << 10;
constexpr int64_t kLookAgainNs = 1'000'000'000;

// OpenSSL's first complaint since the last ERR_clear_error().
std::string complaint() {
  const unsigned long code = ERR_peek_error();
  const char* reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason != nullptr ? reason : "no reason given";
}

// OpenSSL's own socket BIO would end the process by SIGPIPE where a client has gone.
int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int finish_call(BIO* bio, ssize_t result, int retry) {
  BIO_clear_retry_flags(bio);
  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
  return static_cast<int>(result);
}

int bio_write(BIO* bio, const char* data, int size) {
  return finish_call(bio, ::send(socket_of(bio), data, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT),
                     BIO_FLAGS_WRITE);
}

int bio_read(BIO* bio, char* data, int size) {
  const ssize_t got = ::recv(socket_of(bio), data, static_cast<size_t>(size), MSG_DONTWAIT);
  return finish_call(bio, got, BIO_FLAGS_READ);
}

long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* socket_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without signals");
    if (made == nullptr) return made;
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  return method;
}

int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size, const unsigned char* offered,
                    unsigned int offered_size, void* wanted) {
  const auto& protocols = *static_cast<const std::string*>(wanted);
  unsigned char* found = nullptr;
  const int result =
      SSL_select_next_proto(&found, chosen_size, reinterpret_cast<const unsigned char*>(protocols.data()),
                            static_cast<unsigned int>(protocols.size()), offered, offered_size);
  if (result != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

// Nobody is there to type a passphrase.
int no_passphrase(char*, int, int, void*) { return 0; }

}  // namespace

// ---------------------------------------------------------------------------------------------------------------------
// A connection.

TlsSession::~TlsSession() { SSL_free(ssl_); }

ssize_t TlsSession::fail(int error) {
  wants_write_ = false;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    wants_write_ = error == SSL_ERROR_WANT_WRITE;
    errno = EAGAIN;
    return -1;
  }
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  if (error == SSL_ERROR_SSL) log(LogLevel::kVerbose, "a client's TLS connection is closed: {}", complaint());
  broken_ = true;
  errno = ECONNRESET;
  return -1;
}

ssize_t TlsSession::receive(void* data, size_t size_bytes) {
  if (broken_) return fail(SSL_ERROR_SYSCALL);
  ERR_clear_error();
  size_t got = 0;
  const int result = SSL_read_ex(ssl_, data, size_bytes, &got);
  if (result != 1) return fail(SSL_get_error(ssl_, result));
  wants_write_ = false;
  return static_cast<ssize_t>(got);
}

ssize_t TlsSession::send(std::span<const iovec> pieces) {
  // Servers speak second, so hands are shaken by now.
  if (broken_ || !is_secured()) return fail(SSL_ERROR_SYSCALL);
  if (pieces.empty()) return 0;
  const void* data = pieces.front().iov_base;
  size_t size = pieces.front().iov_len;
  // Small pieces are gathered, as each call makes a record of its own.
  char gathered[kRecordBytes];
  if (size < kRecordBytes && pieces.size() > 1) {
    size = 0;
    for (const iovec& piece : pieces) {
      const size_t part = std::min(piece.iov_len, kRecordBytes - size);
      std::memcpy(gathered + size, piece.iov_base, part);
      size += part;
    }
    data = gathered;
  }
  ERR_clear_error();
  size_t sent = 0;
  const int result = SSL_write_ex(ssl_, data, size, &sent);
  if (result == 1) return static_cast<ssize_t>(sent);
  const int error = SSL_get_error(ssl_, result);
  const ssize_t failed = fail(error == SSL_ERROR_ZERO_RETURN ? SSL_ERROR_SYSCALL : error);
  wants_write_ = false;  // the connection waits for room anyway while it has something to send
  return failed;
}

void TlsSession::end() {
  if (broken_ || !is_secured()) return;
  ERR_clear_error();
  SSL_shutdown(ssl_);
  ERR_clear_error();
}

bool TlsSession::has_pending() const { return !broken_ && SSL_has_pending(ssl_) == 1 && SSL_pending(ssl_) > 0; }
bool TlsSession::is_secured() const { return SSL_is_init_finished(ssl_) == 1; }

// ---------------------------------------------------------------------------------------------------------------------
// A server.

TlsContext::TlsContext(const TlsOptions& options, std::string name, std::string_view protocol)
    : options_(options),
      name_(std::move(name)),
      protocols_(std::string(1, static_cast<char>(protocol.size())) + std::string(protocol)) {}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<std::shared_ptr<TlsContext>> TlsContext::create(const TlsOptions& options, std::string name,
                                                       std::string_view protocol) {
  std::shared_ptr<TlsContext> made(new TlsContext(options, std::move(name), protocol));
  FW_RETURN_IF_ERROR(made->load());
  made->loaded_state_ = made->state_of_files();
  return made;
}

Status TlsContext::load() {
  auto refuse = [&](std::string_view what, const std::string& file) {
    return invalid_argument(fmt::format("{}: {} '{}': {}", name_, what, file, complaint()));
  };
  for (const auto& [what, file] : {std::pair{"certificate", &options_.certificate_file},
                                   {"key", &options_.key_file},
                                   {"root certificates", &options_.root_file}}) {
    if (file == &options_.root_file && !options_.mutual && file->empty()) continue;
    if (file->empty()) return invalid_argument(fmt::format("{}: TLS needs a file with the {}", name_, what));
    struct stat state {};
    if (::stat(file->c_str(), &state) != 0) {
      return invalid_argument(fmt::format("{}: {} '{}': {}", name_, what, *file, std::strerror(errno)));
    }
  }
  ERR_clear_error();
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  if (context == nullptr) return out_of_memory(name_ + ": no memory for TLS");
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> owned(context, SSL_CTX_free);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(context,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(context, no_passphrase);
  // Tickets let clients come back without the server keeping anything for them.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_session_id_context(context, reinterpret_cast<const unsigned char*>("flywheel"), 8);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, const_cast<std::string*>(&protocols_));
  if (SSL_CTX_use_certificate_chain_file(context, options_.certificate_file.c_str()) != 1) {
    return refuse("certificate", options_.certificate_file);
  }
  if (SSL_CTX_use_PrivateKey_file(context, options_.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    if (ERR_GET_REASON(ERR_peek_error()) == X509_R_KEY_VALUES_MISMATCH) {
      return invalid_argument(
          fmt::format("{}: key '{}' does not fit certificate '{}': give the key that it was made for", name_,
                      options_.key_file, options_.certificate_file));
    }
    return refuse("key", options_.key_file);
  }
  if (!options_.root_file.empty()) {
    if (SSL_CTX_load_verify_locations(context, options_.root_file.c_str(), nullptr) != 1) {
      return refuse("root certificates", options_.root_file);
    }
    SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(options_.root_file.c_str()));
  }
  if (options_.mutual) SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_free(std::exchange(context_, owned.release()));
  return {};
}

std::string TlsContext::state_of_files() const {
  std::string text;
  for (const std::string* file : {&options_.certificate_file, &options_.key_file, &options_.root_file}) {
    struct stat state {};
    if (file->empty() || ::stat(file->c_str(), &state) != 0) {
      text += "none ";
      continue;
    }
    text += fmt::format("{} {} {}.{} ", state.st_ino, state.st_size, state.st_mtim.tv_sec, state.st_mtim.tv_nsec);
  }
  return text;
}

void TlsContext::reload_if_changed() {
  const int64_t now_ns = schedule::monotonic_now_ns();
  if (now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + kLookAgainNs;
  const std::string state = state_of_files();
  if (state == loaded_state_ || state == refused_state_) return;
  const Status loaded = load();
  if (loaded.is_ok()) {
    loaded_state_ = state;
    refused_state_.clear();
    log(LogLevel::kInfo, "{}: new connections get the certificate now in '{}'", name_, options_.certificate_file);
  } else {
    refused_state_ = state;
    log(LogLevel::kWarning, "{}; the certificate read before stays in use", loaded.message());
  }
}

std::unique_ptr<TlsSession> TlsContext::open(int socket) {
  SSL* ssl = nullptr;
  {
    std::lock_guard lock(mutex_);
    reload_if_changed();
    ssl = SSL_new(context_);
  }
  if (ssl == nullptr) return nullptr;
  auto session = std::make_unique<TlsSession>(ssl);
  BIO* bio = BIO_new(socket_method());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  SSL_set_accept_state(ssl);
  return session;
}

}  // namespace flywheel::net
