// SPDX-License-Identifier: Apache-2.0
// Limits of the HTTP layer: connections, files, memory, and its end.
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/protocol/http/http_server_test_data.h"
#include "server/protocol/http/load_generator.h"

namespace flywheel::http {
namespace {

// A model's process that is started while connections are open holds them too, until it runs its own program.
TEST_F(HttpServerTest, ConnectionsThatAForkedProcessHoldsEnd) {
  start();
  Client client = connect();
  ASSERT_EQ(client.post("/echo", "a")->status, 200);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) ::pause();
  }
  client = connect();  // ends the first one, of which the child keeps both sides
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.post("/echo", "b")->body, "b");
  Client closing = connect();
  ASSERT_EQ(closing.post("/close", "c")->status, 200);
  EXPECT_TRUE(eventually([&] { return server_->counts().connections_open <= 2; }));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.post("/echo", "b")->body, "b");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(client.post("/echo", "b")->body, "b");
}

TEST_F(HttpServerTest, MakesRoomForNewClientsByClosingIdleOnes) {
  HttpOptions options;
  options.max_connections = 8;
  options.threads = 1;
  start(options);
  std::vector<Client> clients;
  for (int i = 0; i < 30; ++i) {
    clients.push_back(connect());
    ASSERT_TRUE(clients.back().post("/echo", "x").is_ok()) << i;
  }
  EXPECT_LE(server_->counts().connections_open, 10u);
}

TEST_F(HttpServerTest, MakesRoomWhenTheProcessMayOpenNoMoreFiles) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer opens pipes to look at memory, and takes none for a bad object";
#endif
  HttpOptions options;
  options.threads = 1;
  start(options);
  Client idle = connect();
  ASSERT_TRUE(idle.post("/echo", "x").is_ok());
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> taken = {::dup(0)};
  const rlimit lowered{static_cast<rlim_t>(taken[0]) + 16, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lowered), 0);
  for (int file = ::dup(0); file >= 0; file = ::dup(0)) taken.push_back(file);
  ::close(taken.back());
  taken.pop_back();
  Client client = connect();  // takes the last one
  const Result<ClientResponse> answer = client.post("/echo", "served");
  for (int file : taken) ::close(file);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_TRUE(answer.is_ok()) << answer.status().to_string();
  EXPECT_EQ(answer->body, "served");
  EXPECT_TRUE(idle.wait_for_close());
}

TEST_F(HttpServerTest, RefusesConnectionsBeyondTheLimit) {
  HttpOptions options;
  options.max_connections = 4;
  start(options);
  std::vector<Client> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(connect());
    ASSERT_TRUE(clients.back().send(format_request("POST", "/later", {}, "x")).is_ok());
  }
  ASSERT_TRUE(handler_->wait_until([&] { return handler_->waiting.size() == 4; }));
  Client refused = connect();
  auto answer = refused.receive();
  ASSERT_TRUE(answer.is_ok()) << answer.status().to_string();
  EXPECT_EQ(answer->status, 503);
  EXPECT_NE(answer->body.find("too many connections"), std::string::npos);
  handler_->release();
  for (Client& client : clients) EXPECT_EQ(client.receive()->status, 200);
}

TEST_F(HttpServerTest, StopAnswersWhatIsInHandAndRefusesTheRest) {
  start();
  Client working = connect();
  Client idle = connect();
  ASSERT_TRUE(idle.post("/echo", "x").is_ok());
  ASSERT_TRUE(working.send(format_request("POST", "/later", {}, "x")).is_ok());
  ASSERT_TRUE(handler_->wait_until([&] { return handler_->waiting.size() == 1; }));
  server_->begin_drain();
  std::this_thread::sleep_for(milliseconds(20));
  auto refused = idle.post("/echo", "late");
  ASSERT_TRUE(refused.is_ok()) << refused.status().to_string();
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->body, "{\"error\":\"Server exiting\"}");
  EXPECT_EQ(refused->find("connection"), "close");
  EXPECT_FALSE(Client::connect("127.0.0.1", server_->port()).is_ok());
  std::thread release([&] {
    std::this_thread::sleep_for(milliseconds(50));
    handler_->release();
  });
  const Status stopped = server_->stop(10'000);
  EXPECT_TRUE(stopped.is_ok()) << stopped.to_string();
  release.join();
  EXPECT_EQ(working.receive()->status, 200);
}

TEST_F(HttpServerTest, StopGivesUpAfterItsTimeout) {
  start();
  Client stuck = connect();
  ASSERT_TRUE(stuck.send(format_request("POST", "/later", {}, "x")).is_ok());
  ASSERT_TRUE(handler_->wait_until([&] { return handler_->waiting.size() == 1; }));
  const Status stopped = server_->stop(50);
  EXPECT_EQ(stopped.code(), Code::kDeadlineExceeded);
  EXPECT_NE(stopped.message().find("1 requests unanswered"), std::string::npos) << stopped.message();
  handler_->release();  // too late, and harmless
}

TEST_F(HttpServerTest, StopUnderLoadLosesNoAnswer) {
  start();
  LoadReport report;
  std::thread load([&] {
    LoadOptions options;
    options.port = server_->port();
    options.connections = 32;
    options.seconds = 10;
    options.reconnect = false;
    options.make_request = [](uint64_t i, std::string& request) {
      request = format_request("POST", "/echo", {}, std::to_string(i));
    };
    auto result = run_load(options);
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    report = std::move(result).value();
  });
  ASSERT_TRUE(eventually([&] { return handler_->handled > 2000; }));
  EXPECT_TRUE(server_->stop(10'000).is_ok());
  load.join();
  EXPECT_EQ(report.broken, 0u);
  EXPECT_EQ(report.answered(), report.sent);
  EXPECT_EQ(report.by_status[200] + report.by_status[503], report.sent);
}

TEST_F(HttpServerTest, GrowsNeitherInThreadsNorInMemory) {
  start();
  auto one_round = [&] {
    for (int i = 0; i < 300; ++i) {
      Client client = connect();
      ASSERT_TRUE(client.post("/echo", std::string(10'000, 'x')).is_ok());
    }
    LoadOptions options;
    options.port = server_->port();
    options.connections = 16;
    options.requests = 5000;
    const std::string body(20'000, 'y');
    options.make_request = [&](uint64_t, std::string& request) { request = format_request("POST", "/echo", {}, body); };
    auto report = run_load(options);
    ASSERT_TRUE(report.is_ok());
    EXPECT_EQ(report->by_status[200], 5000u);
  };
  one_round();
  const int64_t threads = status_value("Threads:");
  const int64_t memory_kb = status_value("VmRSS:");
  for (int i = 0; i < 3; ++i) one_round();
  EXPECT_EQ(status_value("Threads:"), threads);
  EXPECT_LT(status_value("VmRSS:"), memory_kb + 8 * 1024);
  EXPECT_TRUE(eventually([&] { return server_->counts().body_bytes == 0; }));
}

TEST(HttpServer, SaysWhyItCannotListen) {
  auto handler = std::make_shared<EchoHandler>();
  HttpOptions options;
  options.address = "127.0.0.1";
  options.port = 0;
  auto first = HttpServer::start(options, handler);
  ASSERT_TRUE(first.is_ok());
  options.port = first.value()->port();
  auto second = HttpServer::start(options, handler);
  ASSERT_FALSE(second.is_ok());
  EXPECT_NE(second.status().message().find("127.0.0.1:" + std::to_string(options.port)), std::string::npos);
  options.address = "not an address";
  EXPECT_EQ(HttpServer::start(options, handler).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace flywheel::http
