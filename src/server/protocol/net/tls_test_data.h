// SPDX-License-Identifier: Apache-2.0
// Certificates and a TLS client for tests.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace flywheel::net {

// <path>.crt and <path>.key: a certificate for `name` that vouches for itself.
inline void write_certificate(const std::string& path, const std::string& name) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASSERT_TRUE(key != nullptr && certificate != nullptr);
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 24 * 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate, subject);
  X509_EXTENSION* extension =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, ("DNS:" + name + ",IP:127.0.0.1").c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  ASSERT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  std::unique_ptr<FILE, int (*)(FILE*)> crt(std::fopen((path + ".crt").c_str(), "w"), std::fclose);
  std::unique_ptr<FILE, int (*)(FILE*)> pem(std::fopen((path + ".key").c_str(), "w"), std::fclose);
  ASSERT_EQ(PEM_write_X509(crt.get(), certificate), 1);
  ASSERT_EQ(PEM_write_PrivateKey(pem.get(), key, nullptr, nullptr, 0, nullptr, nullptr), 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

// Does not verify the server. The socket stays its owner's.
class TestTlsClient {
 public:
  explicit TestTlsClient(int socket) : socket_(socket), context_(SSL_CTX_new(TLS_client_method())) {}
  ~TestTlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  TestTlsClient(const TestTlsClient&) = delete;
  TestTlsClient& operator=(const TestTlsClient&) = delete;

  // Before the first byte.
  void offer(std::string_view protocol) {
    const std::string list = std::string(1, static_cast<char>(protocol.size())) + std::string(protocol);
    SSL_CTX_set_alpn_protos(context_, reinterpret_cast<const unsigned char*>(list.data()),
                            static_cast<unsigned int>(list.size()));
  }
  void identify(const std::string& path) {
    SSL_CTX_use_certificate_file(context_, (path + ".crt").c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context_, (path + ".key").c_str(), SSL_FILETYPE_PEM);
  }

  bool shake_hands() { return SSL_do_handshake(ssl()) == 1; }
  bool is_secured() { return SSL_is_init_finished(ssl()) == 1; }
  // Wait as long as it takes; end with the connection.
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      size_t sent = 0;
      const int result = SSL_write_ex(ssl(), bytes.data(), bytes.size(), &sent);
      if (result == 1) {
        bytes.remove_prefix(sent);
      } else if (!wait(result)) {
        return;
      }
    }
  }
  std::string receive(size_t size_bytes) {
    std::string text(size_bytes, '\0');
    size_t filled = 0;
    while (filled < size_bytes) {
      size_t got = 0;
      const int result = SSL_read_ex(ssl(), text.data() + filled, size_bytes - filled, &got);
      filled += got;
      if (result != 1 && !wait(result)) break;
    }
    text.resize(filled);
    return text;
  }
  std::string protocol() {
    const unsigned char* name = nullptr;
    unsigned int size = 0;
    SSL_get0_alpn_selected(ssl(), &name, &size);
    return {reinterpret_cast<const char*>(name), size};
  }
  std::string subject_of_server() {
    char name[100] = "";
    X509* certificate = SSL_get1_peer_certificate(ssl());
    if (certificate == nullptr) return "no certificate";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
    X509_free(certificate);
    return name;
  }

 private:
  SSL* ssl() {
    if (ssl_ == nullptr) {
      ssl_ = SSL_new(context_);
      SSL_set_fd(ssl_, socket_);
      SSL_set_connect_state(ssl_);
    }
    return ssl_;
  }
  bool wait(int result) {
    const int error = SSL_get_error(ssl(), result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return false;
    pollfd socket{socket_, static_cast<short>(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT), 0};
    return ::poll(&socket, 1, 10'000) > 0;
  }

  int socket_;
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
};

}  // namespace flywheel::net
