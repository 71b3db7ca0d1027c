// SPDX-License-Identifier: Apache-2.0
// The protocol itself, with a service that echoes: framing, compression, flow control both ways, deadlines, limits,
// floods, and the end of the server.
#include "server/protocol/grpc/grpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <zlib.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "server/protocol/grpc/test_client.h"

namespace flywheel::grpc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string text_of(const http::Body& body) { return std::string(body.text()); }

OutMessage message_of(std::string_view text) {
  OutMessage message;
  message.text += text;
  message.seal(false);
  return message;
}

// What handlers of all calls tell the test.
struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
  void add(std::string line) {
    std::lock_guard lock(mutex);
    lines.push_back(std::move(line));
  }
  size_t count(std::string_view line) {
    std::lock_guard lock(mutex);
    return static_cast<size_t>(std::count(lines.begin(), lines.end(), line));
  }
  bool wait_for(std::string_view line, size_t times = 1) {
    for (int i = 0; i < 2000; ++i) {
      if (count(line) >= times) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
};

// Gives back each message, and ends with the client. Paths: /echo; /slow: on the slow lane; /never: no answer; /one:
// takes one message and no more; /blob: as many bytes as the message says; /fail; /later: from another thread.
class EchoHandler : public CallHandler {
 public:
  EchoHandler(Call& call, Log& log) : call_(call), log_(log), kind_(call.head().path) {}
  ~EchoHandler() override {
    if (!thread_.joinable()) return;
    // Where the thread was the last to hold the call, this is that thread.
    thread_.get_id() == std::this_thread::get_id() ? thread_.detach() : thread_.join();
  }

  bool on_message(http::Body message) override {
    log_.add("message");
    ++received_;
    if (kind_ == "/never") return true;
    if (kind_ == "/one") return false;
    if (kind_ == "/fail") {
      call_.finish({StatusCode::kInvalidArgument, "100% wrong:\n\xC3\xBC"});
      return true;
    }
    if (kind_ == "/slow" || kind_ == "/later") {
      const std::string text = text_of(message);
      {
        std::lock_guard lock(mutex_);
        texts_.push_back(text);
      }
      if (kind_ == "/slow") {
        call_.wake();
      } else {
        if (thread_.joinable()) thread_.join();
        thread_ = std::thread([call = std::weak_ptr<Call>(call_.shared_from_this())] {
          if (const CallPtr strong = call.lock()) strong->wake();
        });
      }
      return true;
    }
    if (kind_ == "/blob") {
      auto bytes = std::make_shared<std::string>(std::stoul(text_of(message)), 'b');
      OutMessage out;
      out.text += "<>";
      out.blobs.push_back({OutMessage::kPrefixBytes + 1, {std::as_bytes(std::span(*bytes)), bytes}});
      out.seal(false);
      return call_.send(std::move(out));
    }
    return call_.send(message_of(message.text()));
  }
  bool is_slow(const http::Body&) const override { return kind_ == "/slow"; }
  void on_half_close() override {
    log_.add("half-close");
    half_closed_ = true;
    end();
  }
  void on_wake() override {
    std::vector<std::string> texts;
    {
      std::lock_guard lock(mutex_);
      texts.swap(texts_);
    }
    for (const std::string& text : texts) {
      call_.send(message_of(text));
      ++sent_;
    }
    end();
  }
  void on_abandoned() override { log_.add("abandoned"); }
  void on_drain() override { log_.add("drain"); }

 private:
  void end() {
    if (kind_ == "/never" || kind_ == "/one") return;
    if (half_closed_ && ((kind_ != "/slow" && kind_ != "/later") || sent_ == received_)) call_.finish({});
  }
  Call& call_;
  Log& log_;
  const std::string kind_;
  bool half_closed_ = false;
  std::atomic<size_t> received_{0};
  size_t sent_ = 0;
  std::mutex mutex_;
  std::vector<std::string> texts_;
  std::thread thread_;
};

class EchoService : public Service {
 public:
  explicit EchoService(Log& log) : log_(log) {}
  std::unique_ptr<CallHandler> open(Call& call) override {
    if (call.head().path == "/none") return nullptr;
    return std::make_unique<EchoHandler>(call, log_);
  }

 private:
  Log& log_;
};

class GrpcServerTest : public testing::Test {
 protected:
  GrpcServerTest() {
    options_.address = "127.0.0.1";
    options_.port = 0;
  }
  void start() {
    auto started = GrpcServer::start(options_, std::make_shared<EchoService>(log_));
    ASSERT_TRUE(started.is_ok()) << started.status().to_string();
    server_ = std::move(started).value();
  }
  std::unique_ptr<TestClient> connect(uint32_t window_bytes = 1 << 20) {
    return std::make_unique<TestClient>(server_->port(), window_bytes);
  }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return condition();
  }
  Log log_;
  GrpcOptions options_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(GrpcServerTest, AnswersWithMessageAndTrailers) {
  start();
  auto client = connect();
  const TestClient::Call& call = client->call("/echo", "hello");
  EXPECT_EQ(call.fields.at(":status"), "200");
  EXPECT_EQ(call.fields.at("content-type"), "application/grpc");
  EXPECT_THAT(call.messages(), ElementsAre("hello"));
  EXPECT_EQ(call.status(), 0);
  EXPECT_EQ(call.error, 0u);
  EXPECT_EQ(client->call("/later", "x").messages().size(), 1u);
  const GrpcCounts counts = server_->counts();
  EXPECT_EQ(counts.calls, 2u);
  EXPECT_EQ(counts.calls_by_status[0], 2u);
  EXPECT_EQ(counts.in_flight, 0u);
  EXPECT_TRUE(eventually([&] { return server_->counts().message_bytes == 0; }));
}

TEST_F(GrpcServerTest, ErrorsAreStatusesWithEncodedMessages) {
  start();
  auto client = connect();
  const TestClient::Call& failed = client->call("/fail", "x");
  EXPECT_EQ(failed.status(), 3);
  EXPECT_EQ(failed.message(), "100%25 wrong:%0A%C3%BC");
  EXPECT_TRUE(failed.messages().empty());
  EXPECT_EQ(client->call("/none", "x").status(), 12);
}

TEST_F(GrpcServerTest, MessagesMayComeInAnyPieces) {
  start();
  auto client = connect();
  const std::string data = frame_message("first") + frame_message("") + frame_message("third");
  const int32_t stream = client->begin("/echo", "", false);
  for (size_t i = 0; i < data.size(); ++i) {
    client->send(stream, data.substr(i, 1), i + 1 == data.size());
    client->run_until([] { return true; });
  }
  EXPECT_THAT(client->wait(stream).messages(), ElementsAre("first", "", "third"));
  EXPECT_EQ(client->get(stream).status(), 0);
}

TEST_F(GrpcServerTest, LargeMessagesPassBothWindows) {
  options_.call_window_bytes = 65535;
  options_.connection_window_bytes = 100'000;
  start();
  auto client = connect();
  std::string large(5 << 20, 'x');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761u >> 24);
  const TestClient::Call& call = client->call("/echo", large);
  ASSERT_EQ(call.messages().size(), 1u);
  EXPECT_TRUE(call.messages()[0] == large);
  EXPECT_EQ(call.status(), 0);
}

TEST_F(GrpcServerTest, BlobsAreSentInTheirPlace) {
  start();
  auto client = connect();
  for (const size_t size : {0, 1, 8192, 8193, 1000000}) {
    const TestClient::Call& call = client->call("/blob", std::to_string(size));
    ASSERT_EQ(call.messages().size(), 1u) << size;
    EXPECT_TRUE(call.messages()[0] == "<" + std::string(size, 'b') + ">") << size;
  }
}

TEST_F(GrpcServerTest, ManyCallsOfOneConnectionAtOnce) {
  options_.threads = 2;
  start();
  auto client = connect();
  std::vector<int32_t> streams;
  for (int i = 0; i < 500; ++i) streams.push_back(client->begin("/later", frame_message(std::to_string(i))));
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_THAT(client->wait(streams[i]).messages(), ElementsAre(std::to_string(i)));
  }
}

TEST_F(GrpcServerTest, SlowMessagesKeepTheirOrder) {
  start();
  auto client = connect();
  std::string data;
  std::vector<std::string> texts;
  for (int i = 0; i < 50; ++i) {
    texts.push_back(std::to_string(i));
    data += frame_message(texts.back());
  }
  EXPECT_EQ(client->wait(client->begin("/slow", data)).messages(), texts);
}

std::string zlib(const std::string& text, bool gzip) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, gzip ? 31 : 15, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST_F(GrpcServerTest, CompressedMessagesAreDecompressed) {
  start();
  auto client = connect();
  std::string noise(300'000, ' ');
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * i >> 3);
  for (const std::string& text : {std::string("small"), noise}) {
    for (const bool gzip : {false, true}) {
      const int32_t stream = client->begin("/echo", frame_message(zlib(text, gzip), true), true,
                                           {{"grpc-encoding", gzip ? "gzip" : "deflate"}});
      ASSERT_EQ(client->wait(stream).messages().size(), 1u);
      EXPECT_TRUE(client->get(stream).messages()[0] == text);
    }
  }
  EXPECT_EQ(
      client->wait(client->begin("/echo", frame_message("junk", true), true, {{"grpc-encoding", "gzip"}})).status(),
      13);
  EXPECT_EQ(client->wait(client->begin("/echo", frame_message("x", true))).status(), 13);
  EXPECT_EQ(client->call("/echo", "x", {{"grpc-encoding", "snappy"}}).status(), 12);
}

TEST_F(GrpcServerTest, MessagesBeyondTheLimitsAreRefused) {
  options_.max_message_bytes = 1000;
  options_.max_total_message_bytes = 1 << 20;
  start();
  auto client = connect();
  EXPECT_EQ(client->call("/echo", std::string(1000, 'x')).status(), 0);
  const TestClient::Call& call = client->call("/echo", std::string(1001, 'x'));
  EXPECT_EQ(call.status(), 8);
  EXPECT_THAT(call.message(), HasSubstr("larger than max (1001 vs. 1000)"));
  // Small when it comes, large when it is read.
  EXPECT_NE(client
                ->wait(client->begin("/echo", frame_message(zlib(std::string(5000, 'x'), true), true), true,
                                     {{"grpc-encoding", "gzip"}}))
                .status(),
            0);
  EXPECT_EQ(client->call("/echo", "still here").status(), 0);
}

TEST_F(GrpcServerTest, AnswersThatNobodyTakesAreBounded) {
  options_.max_total_message_bytes = 4 << 20;
  start();
  auto client = connect(1000);
  std::vector<int32_t> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(client->begin("/blob", frame_message("1000000")));
  // Four fit, the others are told at once.
  auto refused = [&] {
    return std::count_if(streams.begin(), streams.end(), [&](int32_t id) { return client->get(id).status() == 8; });
  };
  EXPECT_TRUE(client->run_until([&] { return refused() >= 4; }));
  EXPECT_EQ(refused(), 4);
  EXPECT_LE(server_->counts().message_bytes, uint64_t{4} << 20);
  client.reset();
  EXPECT_TRUE(eventually([&] { return server_->counts().message_bytes == 0; }));
}

TEST_F(GrpcServerTest, AHandlerThatWantsNoMoreClosesTheCallsWindowAlone) {
  options_.call_window_bytes = 65535;
  start();
  auto client = connect();
  const std::string message = frame_message(std::string(10'000, 'x'));
  std::string data;
  for (int i = 0; i < 50; ++i) data += message;
  const int32_t stream = client->begin("/one", data, false);
  EXPECT_TRUE(client->run_until([&] { return log_.count("message") > 0; }));
  // The others go on, and no more than a window is held.
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client->call("/echo", std::string(100'000, 'y')).status(), 0);
  EXPECT_EQ(log_.count("message"), 21u);
  EXPECT_LE(server_->counts().message_bytes, 200'000u);
  EXPECT_FALSE(client->get(stream).closed);
  client->reset(stream);
  EXPECT_TRUE(client->run_until([&] { return server_->counts().message_bytes == 0; }));
}

TEST_F(GrpcServerTest, DeadlinesEndCalls) {
  start();
  auto client = connect();
  const TestClient::Call& call = client->call("/never", "x", {{"grpc-timeout", "20m"}});
  EXPECT_EQ(call.status(), 4);
  EXPECT_EQ(log_.count("abandoned"), 1u);
  EXPECT_EQ(client->call("/echo", "x", {{"grpc-timeout", "99999999H"}}).status(), 0);
  EXPECT_EQ(client->call("/echo", "x", {{"grpc-timeout", "soon"}}).status(), 13);
}

TEST_F(GrpcServerTest, CallsThatAreResetOrLeftAreAbandoned) {
  start();
  auto client = connect();
  const int32_t stream = client->begin("/never", frame_message("x"));
  EXPECT_TRUE(client->run_until([&] { return log_.count("message") == 1; }));
  client->reset(stream);
  EXPECT_TRUE(client->run_until([&] { return log_.count("abandoned") == 1; }));
  client->begin("/never", frame_message("x"));
  EXPECT_TRUE(client->run_until([&] { return log_.count("message") == 2; }));
  client.reset();
  EXPECT_TRUE(log_.wait_for("abandoned", 2));
  EXPECT_TRUE(eventually([&] { return server_->counts().connections_open == 0; }));
  EXPECT_EQ(server_->counts().calls_abandoned, 2u);
  EXPECT_EQ(server_->counts().in_flight, 0u);
}

TEST_F(GrpcServerTest, RequestsThatAreNotGrpcGetAnswersOfHttp) {
  start();
  auto client = connect();
  const TestClient::Fields get = {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "x"}};
  EXPECT_EQ(client->wait(client->begin("", "", true, {}, get)).fields.at(":status"), "405");
  TestClient::Fields json = get;
  json[0].second = "POST";
  json.emplace_back("content-type", "application/json");
  EXPECT_EQ(client->wait(client->begin("", "{}", true, {}, json)).fields.at(":status"), "415");
  EXPECT_EQ(client->call("/echo", "x").status(), 0);
}

TEST_F(GrpcServerTest, AnHttp1ClientIsClosed) {
  start();
  TestClient client(server_->port());
  const std::string text = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_GT(::send(client.socket(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  char buffer[1000];
  ssize_t got = 0;
  while ((got = ::recv(client.socket(), buffer, sizeof buffer, 0)) > 0) {}
  EXPECT_LE(got, 0);
  EXPECT_EQ(server_->counts().protocol_errors, 1u);
}

TEST_F(GrpcServerTest, MetadataBeyondTheLimitIsRefused) {
  start();
  auto client = connect();
  EXPECT_EQ(client->call("/echo", "x", {{"a", std::string(10'000, 'x')}}).status(), 0);
  EXPECT_EQ(client->call("/echo", "x", {{"a", std::string(20'000, 'x')}}).status(), 8);
  EXPECT_EQ(client->call("/echo", "x").status(), 0);
}

TEST_F(GrpcServerTest, ARequestThatEndsWithinAMessageFails) {
  start();
  auto client = connect();
  EXPECT_EQ(client->wait(client->begin("/echo", frame_message("hello").substr(0, 7))).status(), 13);
  EXPECT_EQ(client->wait(client->begin("/echo", "\0\0")).status(), 0);  // an empty string: no message at all
}

TEST_F(GrpcServerTest, MessagesThatDoNotComeAreNotWaitedFor) {
  options_.message_timeout_ms = 100;
  start();
  auto client = connect();
  const int32_t stream = client->begin("/echo", frame_message("hello").substr(0, 7), false);
  EXPECT_EQ(client->wait(stream).status(), 4);
  EXPECT_EQ(server_->counts().timeouts, 1u);
}

TEST_F(GrpcServerTest, ClientsThatSayNothingAreClosed) {
  options_.handshake_timeout_ms = 50;
  start();
  TestClient client(server_->port());
  char byte = 0;
  EXPECT_EQ(::recv(client.socket(), &byte, 1, 0), 0);
}

TEST_F(GrpcServerTest, AnswersThatNobodyTakesForLongAreDropped) {
  options_.stalled_call_timeout_ms = 100;
  options_.message_timeout_ms = 100;  // looks more often
  start();
  auto client = connect(1000);
  const int32_t stream = client->begin("/blob", frame_message("1000000"));
  EXPECT_TRUE(client->wait(stream).closed);
  EXPECT_EQ(client->get(stream).error, static_cast<uint32_t>(NGHTTP2_CANCEL));
  EXPECT_TRUE(eventually([&] { return server_->counts().message_bytes == 0; }));
}

TEST_F(GrpcServerTest, SilentClientsArePinged) {
  options_.keepalive_time_ms = 50;
  options_.keepalive_timeout_ms = 100;
  start();
  auto client = connect();
  client->begin("/never", frame_message("x"));
  // One that answers stays, one that does not is closed.
  EXPECT_FALSE(client->run_until([&] { return client->ended(); }, 500));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_TRUE(client->wait_for_end());
}

TEST_F(GrpcServerTest, FloodsOfResetsEndTheConnection) {
  options_.reset_burst = 50;
  options_.resets_per_s = 0;
  start();
  auto client = connect();
  for (int i = 0; i < 200; ++i) {
    const int32_t stream = client->begin("/never", frame_message("x"));
    client->run_until([] { return true; });
    client->reset(stream);
    client->run_until([] { return false; }, 1);
    if (client->ended()) break;
  }
  EXPECT_TRUE(client->wait_for_end());
  EXPECT_EQ(client->goaway_error(), static_cast<uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
  EXPECT_LT(server_->counts().calls, 120u);
}

TEST_F(GrpcServerTest, FloodsOfPingsEndTheConnection) {
  options_.control_burst = 100;
  options_.controls_per_s = 0;
  start();
  auto client = connect();
  for (int i = 0; i < 300 && !client->ended(); ++i) {
    nghttp2_submit_ping(client->session(), NGHTTP2_FLAG_NONE, nullptr);
    client->run_until([] { return false; }, 1);
  }
  EXPECT_TRUE(client->wait_for_end());
  EXPECT_EQ(client->goaway_error(), static_cast<uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
}

TEST_F(GrpcServerTest, CallsBeyondTheLimitWaitAtTheClient) {
  options_.max_calls = 3;
  start();
  auto client = connect();
  client->call("/echo", "x");  // the server's settings have come
  for (int i = 0; i < 10; ++i) client->begin("/never", frame_message("x"));
  EXPECT_TRUE(client->run_until([&] { return log_.count("message") >= 4; }));
  client->run_until([] { return false; }, 50);
  EXPECT_EQ(log_.count("message"), 4u);
}

TEST_F(GrpcServerTest, ConnectionsBeyondTheLimitAreRefused) {
  options_.max_connections = 1;
  start();
  auto client = connect();
  const int32_t stream = client->begin("/never", frame_message("x"));
  EXPECT_TRUE(client->run_until([&] { return log_.count("message") == 1; }));
  auto other = connect();
  EXPECT_TRUE(other->wait_for_end());  // the GOAWAY is lost where the client's preface comes before the end
  EXPECT_EQ(server_->counts().connections_refused, 1u);
  EXPECT_FALSE(client->get(stream).closed);
}

TEST_F(GrpcServerTest, StoppingAnswersWhatWasAcceptedAndRefusesTheRest) {
  start();
  auto client = connect();
  auto idle = connect();
  EXPECT_EQ(idle->call("/echo", "x").status(), 0);
  const int32_t stream = client->begin("/echo", frame_message("first"), false);
  EXPECT_TRUE(client->run_until([&] { return client->get(stream).messages().size() == 1; }));
  server_->begin_drain();
  EXPECT_TRUE(client->run_until([&] { return client->told_to_go(); }));
  EXPECT_EQ(log_.count("drain"), 1u);
  std::thread stopping([&] { EXPECT_TRUE(server_->stop(10'000).is_ok()); });
  EXPECT_TRUE(idle->wait_for_end());
  EXPECT_TRUE(idle->told_to_go());
  client->send(stream, frame_message("second"), true);
  EXPECT_THAT(client->wait(stream).messages(), ElementsAre("first", "second"));
  EXPECT_EQ(client->get(stream).status(), 0);
  EXPECT_TRUE(client->wait_for_end());
  stopping.join();
}

TEST_F(GrpcServerTest, StoppingSaysWhatItLeft) {
  start();
  auto client = connect();
  client->begin("/never", frame_message("x"));
  EXPECT_TRUE(client->run_until([&] { return log_.count("message") == 1; }));
  const Status stopped = server_->stop(50);
  EXPECT_EQ(stopped.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(stopped.message(), HasSubstr("1 calls unanswered"));
  EXPECT_EQ(log_.count("abandoned"), 1u);
}

TEST_F(GrpcServerTest, OldConnectionsAreToldToGo) {
  options_.max_connection_age_ms = 100;
  options_.drain_notice_ms = 50;
  start();
  auto client = connect();
  EXPECT_EQ(client->call("/echo", "x").status(), 0);
  EXPECT_TRUE(client->wait_for_end());
  EXPECT_TRUE(client->told_to_go());
  EXPECT_EQ(client->goaway_error(), 0u);
}

}  // namespace
}  // namespace flywheel::grpc
