// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/net/tls.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <thread>

#include "base/temporary_folder_test_data.h"
#include "server/protocol/net/tls_test_data.h"
#include "server/protocol/net/transport.h"

namespace flywheel::net {
namespace {

class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // of the test's client
    write_certificate(path("server"), "localhost");
    options_.enabled = true;
    options_.certificate_file = path("server.crt");
    options_.key_file = path("server.key");
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets_), 0);
  }
  void TearDown() override {
    for (int socket : sockets_) ::close(socket);
  }
  std::shared_ptr<TlsContext> context(std::string_view protocol = "http/1.1") {
    auto made = TlsContext::create(options_, "service", protocol);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return made.is_ok() ? *made : nullptr;
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  // What create() says.
  std::string refusal() {
    auto made = TlsContext::create(options_, "service", "h2");
    return made.is_ok() ? "none" : std::string(made.status().message());
  }

  TemporaryFolder folder_;
  TlsOptions options_;
  int sockets_[2] = {-1, -1};  // the server's, the client's
};

// Shakes hands on the way; ends with the connection.
std::string receive_all(Transport& server, int socket, size_t wanted) {
  std::string text;
  char buffer[1000];
  while (text.size() < wanted) {
    iovec room[] = {{buffer, sizeof buffer}};
    const ssize_t got = server.receive(room);
    pollfd event{socket, POLLIN, 0};
    if (got > 0) {
      text.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || errno != EAGAIN) {
      ::shutdown(socket, SHUT_RDWR);
      return text + (got == 0 ? "<end>" : "<broken>");
    } else if (::poll(&event, 1, 10'000) <= 0) {
      return text + "<nothing>";
    }
  }
  return text;
}

TEST_F(TlsTest, CarriesBytesBothWays) {
  auto tls = context();
  Transport server(sockets_[0], tls.get());
  ASSERT_TRUE(server.is_usable());
  TestTlsClient client(sockets_[1]);
  EXPECT_FALSE(server.is_secured());
  for (int i = 0; i < 10 && !client.is_secured(); ++i) {
    client.shake_hands();
    char byte;
    iovec room[] = {{nullptr, 0}, {&byte, 1}};
    EXPECT_EQ(server.receive(room), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  ASSERT_TRUE(client.is_secured());
  const std::string question(40'000, 'q');
  std::thread asking([&] { client.send(question); });
  EXPECT_TRUE(receive_all(server, sockets_[0], question.size()) == question);
  asking.join();
  EXPECT_TRUE(server.is_secured());
  // Small pieces arrive as one.
  Pieces pieces(1);
  pieces.add("xHTTP", 5);
  pieces.add(" answer", 7);
  EXPECT_EQ(server.send(pieces), 11);
  EXPECT_EQ(client.receive(11), "HTTP answer");
  server.end_sending();
  EXPECT_EQ(client.receive(1), "");
}

TEST_F(TlsTest, BytesThatTheSocketNoLongerHasArePending) {
  auto tls = context();
  Transport server(sockets_[0], tls.get());
  TestTlsClient client(sockets_[1]);
  std::thread talking([&] { client.send("0123456789"); });
  std::string first(4, ' ');
  for (int i = 0; i < 10'000; ++i) {
    iovec room[] = {{first.data(), first.size()}};
    if (server.receive(room) > 0) break;
    std::this_thread::yield();
  }
  talking.join();
  EXPECT_EQ(first, "0123");
  EXPECT_TRUE(server.has_pending());
  std::string rest(100, ' ');
  iovec room[] = {{rest.data(), rest.size()}};
  EXPECT_EQ(server.receive(room), 6);
  EXPECT_FALSE(server.has_pending());
}

TEST_F(TlsTest, ABrokenClientIsAnError) {
  auto tls = context();
  Transport server(sockets_[0], tls.get());
  ASSERT_EQ(::send(sockets_[1], "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  char byte;
  iovec room[] = {{&byte, 1}};
  EXPECT_EQ(server.receive(room), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(server.receive(room), -1);
  EXPECT_EQ(server.send("late"), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// What a client says to a server of this context, as the server gets it.
class Talk {
 public:
  explicit Talk(TlsContext& tls) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets_), 0);
    server_.emplace(sockets_[0], &tls);
    client.emplace(sockets_[1]);
  }
  ~Talk() {
    server_.reset();
    client.reset();
    for (int socket : sockets_) ::close(socket);
  }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;
  std::string say(const std::string& text) {
    std::thread talking([&] { client->send(text); });
    std::string heard = receive_all(*server_, sockets_[0], text.size());
    talking.join();
    return heard;
  }

  std::optional<TestTlsClient> client;

 private:
  int sockets_[2];
  std::optional<Transport> server_;
};

TEST_F(TlsTest, AgreesOnTheProtocolOrRefuses) {
  auto tls = context("h2");
  Talk other(*tls), right(*tls), silent(*tls);
  other.client->offer("http/1.1");
  EXPECT_EQ(other.say("hello"), "<broken>");
  right.client->offer("h2");
  EXPECT_EQ(right.say("hello"), "hello");
  EXPECT_EQ(right.client->protocol(), "h2");
  EXPECT_EQ(silent.say("hello"), "hello");
}

TEST_F(TlsTest, MutualNeedsACertificateOfTheRoot) {
  write_certificate(path("client"), "somebody");
  write_certificate(path("stranger"), "stranger");
  options_.mutual = true;
  options_.root_file = path("client.crt");
  auto tls = context();
  Talk known(*tls), stranger(*tls), nobody(*tls);
  known.client->identify(path("client"));
  EXPECT_EQ(known.say("hello"), "hello");
  stranger.client->identify(path("stranger"));
  EXPECT_EQ(stranger.say("hello"), "<broken>");
  EXPECT_EQ(nobody.say("hello"), "<broken>");
}

TEST_F(TlsTest, SaysWhichFileIsWrong) {
  EXPECT_EQ(refusal(), "none");
  options_.key_file = path("missing.key");
  EXPECT_EQ(refusal(), "service: key '" + options_.key_file + "': No such file or directory");
  write_certificate(path("other"), "other");
  options_.key_file = path("other.key");
  EXPECT_EQ(refusal(), "service: key '" + options_.key_file + "' does not fit certificate '" +
                           options_.certificate_file + "': give the key that it was made for");
  std::ofstream(path("text.crt")) << "no certificate";
  options_.certificate_file = path("text.crt");
  EXPECT_NE(refusal().find("certificate '" + options_.certificate_file + "'"), std::string::npos) << refusal();
  options_.certificate_file.clear();
  EXPECT_EQ(refusal(), "service: TLS needs a file with the certificate");
}

TEST_F(TlsTest, MutualNeedsRoots) {
  options_.mutual = true;
  EXPECT_EQ(refusal(), "service: TLS needs a file with the root certificates");
}

TEST_F(TlsTest, NewFilesAreTakenAndBadOnesAreNot) {
  auto tls = context();
  auto subject = [&] {
    Talk talk(*tls);
    EXPECT_EQ(talk.say("hello"), "hello");
    return talk.client->subject_of_server();
  };
  EXPECT_EQ(subject(), "localhost");
  std::ofstream(options_.certificate_file) << "half written";
  // It looks once a second.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(subject(), "localhost");
  write_certificate(path("server"), "renewed");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(subject(), "renewed");
}

}  // namespace
}  // namespace flywheel::net
