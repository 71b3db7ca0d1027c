// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <unistd.h>

#include "server/protocol/http/http_server_test_data.h"

namespace flywheel::http {
namespace {

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

TEST_F(HttpServerTest, AnswersAndStopsWhileItPollsForTheNextRequest) {
  HttpOptions options;
  options.threads = 1;
  options.busy_poll_us = 10'000;
  start(options);
  Client client = connect();
  for (int i = 0; i < 50; ++i) ASSERT_EQ(client.post("/echo", std::to_string(i))->body, std::to_string(i));
  EXPECT_EQ(connect().post("/echo", "another client")->body, "another client");
  EXPECT_TRUE(server_->stop(10'000).is_ok());
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

}  // namespace
}  // namespace flywheel::http
