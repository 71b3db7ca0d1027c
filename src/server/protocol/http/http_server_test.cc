// SPDX-License-Identifier: Apache-2.0
// The transport with a handler that echoes: framing, order, limits, slow, vanishing and misbehaving clients, stopping.
#include "server/protocol/http/http_server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "server/protocol/http/client.h"
#include "server/protocol/http/load_generator.h"

namespace flywheel::http {
namespace {

using std::chrono::milliseconds;

// /echo answers with the body; /later waits for release(); /big answers with 8 MB; /close asks to close.
class EchoHandler : public Handler {
 public:
  struct LaterJob : Job {
    LaterJob(EchoHandler& handler, std::string body) : handler(handler), body(std::move(body)) {}
    Response render() override { return json_response(body); }
    void abandon() override {
      std::lock_guard lock(handler.mutex);
      ++handler.abandoned;
      handler.changed.notify_all();
    }
    EchoHandler& handler;
    std::string body;
  };

  BodyPlan plan_body(const RequestHead&) override { return {1 << 20, 0}; }
  Response body_too_large(const RequestHead&, uint64_t bytes) override {
    return error_response(400, "too large: " + std::to_string(bytes));
  }
  bool is_slow(const Exchange& exchange) override { return exchange.head().path == "/slow"; }
  void handle(const ExchangePtr& exchange) override {
    ++handled;
    const std::string_view path = exchange->head().path;
    if (path == "/later") {
      exchange->set_job(std::make_unique<LaterJob>(*this, std::string(exchange->body().text())));
      std::lock_guard lock(mutex);
      waiting.push_back(exchange);
      changed.notify_all();
      return;
    }
    Response response = json_response(std::string(exchange->body().text()));
    if (path == "/close") response.close = true;
    if (path == "/big") response.blobs.push_back({std::span<const std::byte>(*big), big});
    exchange->respond(std::move(response));
  }
  void release() {
    std::lock_guard lock(mutex);
    for (const ExchangePtr& exchange : waiting) exchange->complete();
    waiting.clear();
  }
  bool wait_until(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), condition);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ExchangePtr> waiting;
  int abandoned = 0;
  std::atomic<int> handled{0};
  std::shared_ptr<std::vector<std::byte>> big = std::make_shared<std::vector<std::byte>>(8 << 20, std::byte{'b'});
};

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.address = "127.0.0.1";
    options.port = 0;
    if (options.threads == 1) options.threads = 2;
    auto started = HttpServer::start(options, handler_);
    ASSERT_TRUE(started.is_ok()) << started.status().to_string();
    server_ = std::move(started).value();
  }
  Client connect(int timeout_ms = 10'000) {
    auto client = Client::connect("127.0.0.1", server_->port(), timeout_ms);
    EXPECT_TRUE(client.is_ok()) << client.status().to_string();
    return std::move(client).value();
  }
  // Polls: the counters of a connection's end are written after the client sees it.
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  std::shared_ptr<EchoHandler> handler_ = std::make_shared<EchoHandler>();
  std::unique_ptr<HttpServer> server_;
};

int64_t status_value(const char* key) {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if (word == key) file >> value;
  }
  return value;
}

TEST_F(HttpServerTest, KeepsConnectionsAlive) {
  start();
  Client client = connect();
  for (int i = 0; i < 100; ++i) {
    auto answer = client.post("/echo", std::to_string(i));
    ASSERT_TRUE(answer.is_ok()) << answer.status().to_string();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, std::to_string(i));
  }
  EXPECT_EQ(server_->counts().connections_accepted, 1u);
}

TEST_F(HttpServerTest, TakesARequestSplitAnywhere) {
  start();
  const std::string text = format_request("POST", "/echo", {}, "hello");
  Client client = connect();
  for (size_t split = 1; split < text.size(); ++split) {
    ASSERT_TRUE(client.send(std::string_view(text).substr(0, split)).is_ok());
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    ASSERT_TRUE(client.send(std::string_view(text).substr(split)).is_ok());
    auto answer = client.receive();
    ASSERT_TRUE(answer.is_ok()) << split;
    EXPECT_EQ(answer->body, "hello") << split;
  }
}

TEST_F(HttpServerTest, TakesABodyInOneByteChunks) {
  start();
  Client client = connect();
  std::string text = "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (char c : std::string("chunked body")) text += std::string("1\r\n") + c + "\r\n";
  text += "0\r\n\r\n";
  for (char c : text) ASSERT_TRUE(client.send({&c, 1}).is_ok());
  auto answer = client.receive();
  ASSERT_TRUE(answer.is_ok());
  EXPECT_EQ(answer->body, "chunked body");
}

TEST_F(HttpServerTest, RefusesTooManyChunks) {
  HttpOptions options;
  options.max_chunks = 3;
  start(options);
  Client client = connect();
  ASSERT_TRUE(client
                  .send("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                        "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n1\r\nd\r\n0\r\n\r\n")
                  .is_ok());
  auto answer = client.receive();
  ASSERT_TRUE(answer.is_ok());
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(answer->body,
            "{\"error\":\"Chunked request body exceeds maximum of 3 non-empty chunks. Send fewer or larger HTTP "
            "chunks.\"}");
  EXPECT_TRUE(client.wait_for_close());
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  HttpOptions options;
  options.max_pipelined = 4;
  start(options);
  Client client = connect();
  std::string text;
  for (int i = 0; i < 200; ++i) text += format_request("POST", i % 7 == 3 ? "/slow" : "/echo", {}, std::to_string(i));
  ASSERT_TRUE(client.send(text).is_ok());
  for (int i = 0; i < 200; ++i) {
    auto answer = client.receive();
    ASSERT_TRUE(answer.is_ok()) << i << answer.status().to_string();
    EXPECT_EQ(answer->body, std::to_string(i));
  }
}

TEST_F(HttpServerTest, HoldsAnswersBackUntilTheirTurn) {
  start();
  Client client = connect();
  ASSERT_TRUE(client.send(format_request("POST", "/later", {}, "first") + format_request("POST", "/echo", {}, "second"))
                  .is_ok());
  ASSERT_TRUE(handler_->wait_until([&] { return handler_->waiting.size() == 1; }));
  ASSERT_TRUE(eventually([&] { return handler_->handled == 2; }));
  handler_->release();
  EXPECT_EQ(client.receive()->body, "first");
  EXPECT_EQ(client.receive()->body, "second");
}

TEST_F(HttpServerTest, SendsContinueOnlyWhenTheBodyIsWelcome) {
  start();
  Client client = connect();
  ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").is_ok());
  char buffer[64];
  const ssize_t got = ::recv(client.socket(), buffer, sizeof buffer, 0);
  EXPECT_EQ(std::string_view(buffer, static_cast<size_t>(got)), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.send("hello").is_ok());
  EXPECT_EQ(client.receive()->body, "hello");
  ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5000000\r\n\r\n").is_ok());
  auto answer = client.receive();
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(answer->interim_answers, 0);
  EXPECT_EQ(answer->body, "{\"error\":\"too large: 5000000\"}");
}

TEST_F(HttpServerTest, DeliversTheRefusalOfAHugeBodyToAClientThatSendsItAll) {
  start();
  Client client = connect();
  auto answer = client.post("/echo", std::string(20 << 20, 'x'));
  ASSERT_TRUE(answer.is_ok()) << answer.status().to_string();
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(answer->find("connection"), "close");
  EXPECT_TRUE(client.wait_for_close());
}

TEST_F(HttpServerTest, RefusesBodiesBeyondItsMemory) {
  HttpOptions options;
  options.max_total_body_bytes = 100'000;
  start(options);
  Client client = connect();
  EXPECT_EQ(client.post("/echo", std::string(200'000, 'x'))->status, 503);
  Client second = connect();
  EXPECT_EQ(second.post("/echo", std::string(50'000, 'x'))->status, 200);
  EXPECT_TRUE(eventually([&] { return server_->counts().body_bytes == 0; }));
}

TEST_F(HttpServerTest, BodiesThatAreOnlyAnnouncedTakeNothingFromOthers) {
  HttpOptions options;
  options.max_total_body_bytes = 200'000;
  start(options);
  std::vector<Client> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(connect());
    ASSERT_TRUE(idle.back().send("POST /echo HTTP/1.1\r\nContent-Length: 150000\r\n\r\n").is_ok());
  }
  EXPECT_EQ(connect().post("/echo", std::string(150'000, 'x'))->status, 200);
  EXPECT_EQ(server_->counts().body_bytes, 0);
  // What arrives of them counts, in steps: the second finds no room for its second step.
  ASSERT_TRUE(idle[0].send(std::string(140'000, 'x')).is_ok());
  ASSERT_TRUE(eventually([&] { return server_->counts().body_bytes >= 140'000; }));
  ASSERT_TRUE(idle[1].send(std::string(140'000, 'x')).is_ok());
  EXPECT_EQ(idle[1].receive()->status, 503);
  ASSERT_TRUE(idle[0].send(std::string(10'000, 'x')).is_ok());
  EXPECT_EQ(idle[0].receive()->status, 200);
  idle.clear();
  EXPECT_TRUE(eventually([&] { return server_->counts().body_bytes == 0; }));
}

TEST_F(HttpServerTest, AnswersGarbageAndCloses) {
  start();
  for (const std::string& garbage :
       {std::string("\x16\x03\x01\x02\x00\x01", 6), std::string(40000, 'A'),
        std::string("GET / HTTP/1.1\r\nno colon\r\n\r\n"), "GET /" + std::string(40000, 'x') + " HTTP/1.1\r\n\r\n",
        std::string("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")}) {
    Client client = connect();
    ASSERT_TRUE(client.send(garbage).is_ok());
    auto answer = client.receive();
    ASSERT_TRUE(answer.is_ok()) << answer.status().to_string();
    EXPECT_GE(answer->status, 400);
    EXPECT_LT(answer->status, 500);
    EXPECT_TRUE(client.wait_for_close());
  }
  EXPECT_EQ(handler_->handled, 0);
  EXPECT_EQ(server_->counts().parse_errors, 5u);
  EXPECT_EQ(connect().post("/echo", "still here")->body, "still here");
}

TEST_F(HttpServerTest, ClosesSlowClients) {
  HttpOptions options;
  options.head_timeout_ms = 100;
  options.body_timeout_ms = 100;
  start(options);
  Client head = connect();
  for (int i = 0; i < 20; ++i) {  // one byte every 20 ms never completes a head
    if (!head.send("G").is_ok()) break;
    std::this_thread::sleep_for(milliseconds(20));
    char byte;
    if (::recv(head.socket(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) > 0) break;
  }
  EXPECT_EQ(head.receive()->status, 408);
  EXPECT_TRUE(head.wait_for_close());
  Client body = connect();
  ASSERT_TRUE(body.send("POST /echo HTTP/1.1\r\nContent-Length: 50\r\n\r\nx").is_ok());
  EXPECT_EQ(body.receive()->status, 408);
  EXPECT_TRUE(body.wait_for_close());
  EXPECT_EQ(server_->counts().timeouts, 2u);
}

TEST_F(HttpServerTest, ClosesClientsThatDoNotReadTheirAnswers) {
  HttpOptions options;
  options.write_timeout_ms = 100;
  start(options);
  Client client = connect();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(client.send(format_request("GET", "/big", {}, "")).is_ok());
  EXPECT_TRUE(eventually([&] { return server_->counts().timeouts == 1 && server_->counts().connections_open == 0; }));
}

TEST_F(HttpServerTest, AnswersThatAreNotReadStayWithinTheMemory) {
  HttpOptions options;
  options.max_total_answer_bytes = 20 << 20;  // two answers of /big
  start(options);
  // The sockets take a part of each answer; all the rest is the server's to keep.
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(connect());
    ASSERT_TRUE(clients.back().send(format_request("GET", "/big", {}, "")).is_ok());
    ASSERT_TRUE(eventually([&] { return handler_->handled == i + 1; }));
    if (i < 2) ASSERT_TRUE(eventually([&] { return server_->counts().answer_bytes == (i + 1) * (8u << 20); }));
  }
  auto refused = clients[2].receive();
  ASSERT_TRUE(refused.is_ok()) << refused.status().to_string();
  EXPECT_EQ(refused->status, 503);
  EXPECT_NE(refused->body.find("no memory for the answer"), std::string::npos) << refused->body;
  EXPECT_EQ(clients[2].post("/echo", "small")->body, "small");
  auto whole = clients[0].receive();
  ASSERT_TRUE(whole.is_ok()) << whole.status().to_string();
  EXPECT_EQ(whole->body.size(), 8u << 20);
  clients[1].reset();
  EXPECT_TRUE(eventually([&] { return server_->counts().answer_bytes == 0; }));
  EXPECT_EQ(clients[2].get("/big")->body.size(), 8u << 20);
}

TEST_F(HttpServerTest, DoesNotReadOnWhileAnswersAreUnsent) {
  start();
  Client client = connect();
  const std::string request = format_request("GET", "/big", {}, "");
  ASSERT_TRUE(client.send(request).is_ok());
  ASSERT_TRUE(eventually([&] { return server_->counts().sent_bytes > 0; }));
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(client.send(request).is_ok());
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(handler_->handled, 1);
  for (int i = 0; i < 10; ++i) {
    auto answer = client.receive();
    ASSERT_TRUE(answer.is_ok()) << i << answer.status().to_string();
    EXPECT_EQ(answer->body.size(), 8u << 20);
  }
}

TEST_F(HttpServerTest, ClosesIdleConnections) {
  HttpOptions options;
  options.idle_timeout_ms = 50;
  start(options);
  Client client = connect();
  EXPECT_EQ(client.post("/echo", "x")->status, 200);
  EXPECT_TRUE(client.wait_for_close());
}

TEST_F(HttpServerTest, SendsLargeAnswersFromWhereTheyLie) {
  start();
  Client client = connect();
  for (int i = 0; i < 3; ++i) {
    auto answer = client.post("/big", "head");
    ASSERT_TRUE(answer.is_ok());
    EXPECT_EQ(answer->body.size(), 4 + (8u << 20));
    EXPECT_EQ(answer->body.substr(0, 6), "headbb");
  }
  EXPECT_TRUE(eventually([&] { return handler_->big.use_count() == 1; }));
}

TEST_F(HttpServerTest, TellsTheHandlerOfClientsThatVanish) {
  start();
  Client reset = connect();
  ASSERT_TRUE(reset.send(format_request("POST", "/later", {}, "x")).is_ok());
  ASSERT_TRUE(handler_->wait_until([&] { return handler_->waiting.size() == 1; }));
  reset.reset();
  EXPECT_TRUE(handler_->wait_until([&] { return handler_->abandoned == 1; }));
  // A plain close looks like a half-close until the server asks.
  Client closed = connect();
  ASSERT_TRUE(closed.send(format_request("POST", "/later", {}, "x")).is_ok());
  ASSERT_TRUE(handler_->wait_until([&] { return handler_->waiting.size() == 2; }));
  closed.close();
  EXPECT_TRUE(handler_->wait_until([&] { return handler_->abandoned == 2; }));
  handler_->release();
  EXPECT_TRUE(eventually([&] { return server_->counts().connections_open == 0; }));
  EXPECT_EQ(server_->counts().disconnects, 2u);
  EXPECT_EQ(server_->counts().in_flight, 0u);
}

TEST_F(HttpServerTest, AnswersClientsThatOnlyEndTheirHalf) {
  start();
  Client client = connect();
  ASSERT_TRUE(client.send(format_request("POST", "/later", {}, "half")).is_ok());
  client.end_sending();
  ASSERT_TRUE(handler_->wait_until([&] { return handler_->waiting.size() == 1; }));
  std::this_thread::sleep_for(milliseconds(20));
  handler_->release();
  auto answer = client.receive();
  ASSERT_TRUE(answer.is_ok()) << answer.status().to_string();
  EXPECT_EQ(answer->body, "half");
  EXPECT_EQ(answer->find("connection"), "close");
  EXPECT_EQ(handler_->abandoned, 0);
  EXPECT_TRUE(client.wait_for_close());
}

TEST_F(HttpServerTest, SurvivesClientsThatVanishWithinABodyOrAnAnswer) {
  start();
  for (int i = 0; i < 50; ++i) {
    Client body = connect();
    ASSERT_TRUE(body.send("POST /echo HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + std::string(1000, 'x')).is_ok());
    if (i % 2 == 0) body.reset();
    Client answer = connect();
    ASSERT_TRUE(answer.send(format_request("GET", "/big", {}, "")).is_ok());
    char buffer[1000];
    ASSERT_GT(::recv(answer.socket(), buffer, sizeof buffer, 0), 0);
    if (i % 2 == 0) answer.reset();
  }
  EXPECT_TRUE(eventually([&] { return server_->counts().connections_open == 0; }));
  EXPECT_EQ(server_->counts().body_bytes, 0u);
  EXPECT_EQ(handler_->big.use_count(), 1);
}

TEST_F(HttpServerTest, HonoursClose) {
  start();
  Client asked = connect();
  auto answer = asked.post("/echo", "x", {{"Connection", "close"}});
  EXPECT_EQ(answer->find("connection"), "close");
  EXPECT_TRUE(asked.wait_for_close());
  Client told = connect();
  EXPECT_EQ(told.post("/close", "x")->find("connection"), "close");
  EXPECT_TRUE(told.wait_for_close());
  Client old = connect();
  ASSERT_TRUE(old.send("POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na").is_ok());
  EXPECT_EQ(old.receive()->find("connection"), "keep-alive");
  ASSERT_TRUE(old.send("POST /echo HTTP/1.0\r\nContent-Length: 1\r\n\r\nb").is_ok());
  EXPECT_EQ(old.receive()->body, "b");
  EXPECT_TRUE(old.wait_for_close());
}

TEST_F(HttpServerTest, AnswersHeadRequestsWithoutABody) {
  start();
  Client client = connect();
  ASSERT_TRUE(client.send("HEAD /echo HTTP/1.1\r\n\r\nPOST /echo HTTP/1.1\r\nContent-Length: 2\r\n\r\nok").is_ok());
  EXPECT_EQ(client.receive()->body, "");
  EXPECT_EQ(client.receive()->body, "ok");
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
