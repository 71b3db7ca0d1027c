// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "server/protocol/grpc/inference_service.pb.h"
#include "server/protocol/grpc/test_client.h"
#include "soak/traffic.h"

namespace flywheel::soak {
namespace {

using grpc::frame_message;
using grpc::TestClient;

constexpr int kTimeoutMs = 60'000;
const std::string kInfer = "/inference.GRPCInferenceService/ModelInfer";
const std::string kStream = "/inference.GRPCInferenceService/ModelStreamInfer";
enum GrpcStatus {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kUnimplemented = 12,
  kUnavailable = 14
};

// A request and what its answer has to be.
struct Question {
  inference::ModelInferRequest request;
  std::vector<float> expected;
  bool steady = false;
};

class GrpcActor : public Actor {
 public:
  GrpcActor(const Target& target, Tally& tally, uint64_t seed) : Actor(seed), target_(target), tally_(tally) {}

 protected:
  TestClient& connect() {
    // A connection is not kept for ever: those of real clients come and go as well.
    if (client_ == nullptr || client_->ended() || ++rounds_ % 200 == 0)
      client_ = std::make_unique<TestClient>(target_.grpc);
    return *client_;
  }
  static void add_input(inference::ModelInferRequest& request, const std::string& name, const std::string& type,
                        const std::vector<int64_t>& shape, std::string bytes) {
    auto* input = request.add_inputs();
    input->set_name(name);
    input->set_datatype(type);
    for (int64_t extent : shape) input->add_shape(extent);
    request.add_raw_input_contents(std::move(bytes));
  }
  static std::string bytes_of(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }
  Question ask_about(const std::string& model, float factor) {
    Question question;
    question.request.set_model_name(model);
    question.request.set_id(fmt::format("{:x}", below(uint64_t{1} << 48)));
    std::vector<float> x;
    for (uint64_t rows = 1 + below(4); x.size() < rows * 4;) x.push_back(value());
    add_input(question.request, "x", "FP32", {static_cast<int64_t>(x.size() / 4), 4}, bytes_of(x));
    for (float v : x) question.expected.push_back(factor * v);
    question.steady = model == "steady" || model == "pipeline";
    return question;
  }
  Question any_question() {
    const uint64_t choice = below(4);
    return choice == 0 ? ask_about("pipeline", 4) : choice == 1 ? ask_about("cached", 2) : ask_about("steady", 2);
  }
  void check(const Question& question, const inference::ModelInferResponse& response) {
    if (response.id() == question.request.id() && response.raw_output_contents_size() == 1 &&
        response.raw_output_contents(0) == bytes_of(question.expected)) {
      tally_.answered();
      if (question.steady) tally_.steady();
    } else {
      tally_.wrong("gRPC: to " + question.request.ShortDebugString() + " came " + response.ShortDebugString());
    }
  }
  // An answer to a unary call: one message and OK, or no message and an error.
  void check(const Question& question, const TestClient::Call& call) {
    const std::vector<std::string> messages = call.messages();
    inference::ModelInferResponse response;
    if (!call.closed || call.status() != kOk || messages.size() != 1 || !response.ParseFromString(messages[0]))
      return tally_.wrong(fmt::format("gRPC: to {} came status {} '{}' and {} messages",
                                      question.request.ShortDebugString(), call.status(), call.message(),
                                      messages.size()));
    check(question, response);
  }
  TestClient::Call& wait(TestClient& client, int32_t stream) {
    TestClient::Call& call = client.get(stream);
    client.run_until([&] { return call.closed; }, kTimeoutMs);
    return call;
  }
  Question ask_slow(uint64_t wait_us) {
    Question question;
    question.request.set_model_name("slow");
    add_input(question.request, "x", "FP32", {1, 4}, bytes_of({1, 2, 3, 4}));
    const auto wait = static_cast<int32_t>(wait_us);
    add_input(question.request, "wait_us", "INT32", {1, 1}, {reinterpret_cast<const char*>(&wait), sizeof wait});
    question.expected = {2, 4, 6, 8};
    return question;
  }

  const Target target_;
  Tally& tally_;
  std::unique_ptr<TestClient> client_;
  uint64_t rounds_ = 0;
};

class Unary : public GrpcActor {
 public:
  using GrpcActor::GrpcActor;
  void round() override {
    TestClient& client = connect();
    std::vector<std::pair<int32_t, Question>> calls;
    for (uint64_t i = 0; i <= below(8); ++i) {
      Question question = any_question();
      const int32_t stream = client.begin(kInfer, frame_message(question.request.SerializeAsString()));
      calls.emplace_back(stream, std::move(question));
    }
    for (const auto& [stream, question] : calls) check(question, wait(client, stream));
  }
};

// Requests and answers of one call, in one order; sequences; what fails does not end the stream.
class Streams : public GrpcActor {
 public:
  using GrpcActor::GrpcActor;
  void round() override {
    if (target_.has_python && below(4) == 0) return decoupled();
    TestClient& client = connect();
    const int32_t stream = client.begin(kStream, {}, false);
    std::vector<Question> asked;
    if (below(2) == 0) {
      ask_sequence(asked);
    } else {
      for (uint64_t i = 0; i <= below(20); ++i) asked.push_back(any_question());
      if (below(3) == 0) {
        asked.push_back(any_question());
        asked.back().request.set_model_name("absent");
        asked.back().expected.clear();
      }
    }
    for (const Question& question : asked)
      client.send(stream, frame_message(question.request.SerializeAsString()), false);
    client.send(stream, {}, true);
    const TestClient::Call& call = wait(client, stream);
    const std::vector<std::string> messages = call.messages();
    if (call.status() != kOk || messages.size() != asked.size())
      return tally_.wrong(fmt::format("a stream of {} requests ended with status {} '{}' and {} answers", asked.size(),
                                      call.status(), call.message(), messages.size()));
    for (size_t i = 0; i < asked.size(); ++i) {
      inference::ModelStreamInferResponse answer;
      if (!answer.ParseFromString(messages[i])) return tally_.wrong("a stream's message is none");
      if (answer.error_message().empty()) {
        check(asked[i], answer.infer_response());
      } else if (asked[i].expected.empty() && answer.error_message().find("unknown model") != std::string::npos) {
        tally_.refused();
      } else {
        tally_.wrong(fmt::format("stream, {}: {}", asked[i].request.ShortDebugString(), answer.error_message()));
      }
    }
  }

 private:
  void ask_sequence(std::vector<Question>& asked) {
    const std::string model = below(2) == 0 ? "direct_sums" : "oldest_sums";
    const auto id = static_cast<int64_t>(1 + below(uint64_t{1} << 62));
    const uint64_t length = 1 + below(8);
    float sum = 0;
    for (uint64_t step = 0; step < length; ++step) {
      Question question;
      question.request.set_model_name(model);
      question.request.set_id(fmt::format("{}/{}", id, step));
      auto& parameters = *question.request.mutable_parameters();
      parameters["sequence_id"].set_int64_param(id);
      parameters["sequence_start"].set_bool_param(step == 0);
      parameters["sequence_end"].set_bool_param(step + 1 == length);
      const float x = value();
      sum += x;
      add_input(question.request, "x", "FP32", {1, 1}, bytes_of({x}));
      question.expected = {sum};
      asked.push_back(std::move(question));
    }
  }
  void decoupled() {
    TestClient& client = connect();
    inference::ModelInferRequest request;
    request.set_model_name("repeat");
    request.set_id(fmt::format("{:x}", below(uint64_t{1} << 48)));
    std::vector<float> x(1 + below(6));
    for (float& v : x) v = value();
    add_input(request, "x", "FP32", {static_cast<int64_t>(x.size())}, bytes_of(x));
    const int32_t stream = client.begin(kStream, frame_message(request.SerializeAsString()));
    const TestClient::Call& call = wait(client, stream);
    std::vector<float> got;
    for (const std::string& message : call.messages()) {
      inference::ModelStreamInferResponse answer;
      float v = -1;
      if (answer.ParseFromString(message) && answer.infer_response().raw_output_contents_size() == 1 &&
          answer.infer_response().raw_output_contents(0).size() == sizeof v)
        std::memcpy(&v, answer.infer_response().raw_output_contents(0).data(), sizeof v);
      got.push_back(v);
    }
    if (call.status() == kOk && got == x) return tally_.answered();
    tally_.wrong(fmt::format("decoupled: {} values gave status {} '{}' and {} answers", x.size(), call.status(),
                             call.message(), got.size()));
  }
};

// Deadlines, resets and clients that vanish with calls open.
class Cancels : public GrpcActor {
 public:
  using GrpcActor::GrpcActor;
  void round() override {
    switch (below(4)) {
      case 0: return vanish();
      case 1: return reset();
      default: return meet_deadline();
    }
  }

 private:
  void vanish() {
    TestClient client(target_.grpc);
    for (uint64_t i = 0; i <= below(4); ++i) {
      client.begin(below(2) == 0 ? kInfer : kStream, frame_message(ask_slow(2000).request.SerializeAsString()),
                   below(2) == 0);
      tally_.abandoned();
    }
    client.run_until([] { return false; }, static_cast<int>(below(6)));
  }
  void reset() {
    TestClient& client = connect();
    const bool streams = below(2) == 0;
    const int32_t stream = client.begin(streams ? kStream : kInfer,
                                        frame_message(ask_slow(below(3000)).request.SerializeAsString()), !streams);
    client.run_until([&] { return client.get(stream).closed; }, static_cast<int>(below(5)));
    if (!client.get(stream).closed) client.reset(stream);
    client.run_until([] { return true; });
    tally_.abandoned();
  }
  void meet_deadline() {
    TestClient& client = connect();
    const Question question = ask_slow(below(4000));
    const int32_t stream = client.begin(kInfer, frame_message(question.request.SerializeAsString()), true,
                                        {{"grpc-timeout", fmt::format("{}m", 1 + below(8))}});
    const TestClient::Call& call = wait(client, stream);
    if (call.status() == kOk) return check(question, call);
    if (call.messages().empty() && (call.status() == kDeadlineExceeded || call.status() == kUnavailable))
      return tally_.refused();
    tally_.wrong(fmt::format("a call with a deadline ended with status {} '{}', {} messages", call.status(),
                             call.message(), call.messages().size()));
  }
};

class BadCalls : public GrpcActor {
 public:
  using GrpcActor::GrpcActor;
  void round() override {
    inference::ModelInferRequest request = ask_about("steady", 2).request;
    switch (below(7)) {
      case 0: request.set_model_name("absent"); return expect(request, kNotFound, "unknown model");
      case 1: request.mutable_inputs(0)->set_name("z"); return expect(request, kInvalidArgument, "");
      case 2: request.mutable_inputs(0)->set_datatype("FP31"); return expect(request, kInvalidArgument, "");
      case 3: request.mutable_inputs(0)->add_shape(INT64_MAX); return expect(request, kInvalidArgument, "");
      case 4: request.mutable_raw_input_contents(0)->pop_back(); return expect(request, kInvalidArgument, "");
      case 5: {
        const TestClient::Call& call = connect().call("/inference.GRPCInferenceService/Nothing", "x");
        if (call.status() == kUnimplemented) return tally_.refused();
        return tally_.wrong(fmt::format("an unknown method ended with status {}", call.status()));
      }
      default: return noise();
    }
  }

 private:
  void expect(const inference::ModelInferRequest& request, int status, const std::string& text) {
    TestClient& client = connect();
    const TestClient::Call& call = wait(client, client.begin(kInfer, frame_message(request.SerializeAsString())));
    if (call.status() == status && call.messages().empty() && call.message().find(text) != std::string::npos)
      return tally_.refused();
    tally_.wrong(fmt::format("expected status {} '{}', got {} '{}'", status, text, call.status(), call.message()));
  }
  // Bytes that are no HTTP/2, and messages that are none.
  void noise() {
    std::string bytes;
    for (uint64_t i = 0, size = 1 + below(500); i < size; ++i) bytes += static_cast<char>(below(256));
    TestClient client(target_.grpc);
    if (below(2) == 0) {
      client.run_until([] { return true; });
      (void)::send(client.socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      client.run_until([&] { return client.ended(); }, 20);
      return tally_.refused();
    }
    const TestClient::Call& call = client.call(kInfer, bytes);
    if (call.status() == kOk) return tally_.wrong("noise was answered with OK");
    tally_.refused();
  }
};

template <class A>
ActorKind kind(const std::string& name, int count) {
  return {name, count,
          [](const Target& target, Tally& tally, uint64_t seed) { return std::make_unique<A>(target, tally, seed); }};
}

}  // namespace

std::vector<ActorKind> grpc_actors() {
  return {kind<Unary>("gRPC calls", 2), kind<Streams>("gRPC streams", 2), kind<Cancels>("gRPC cancels", 2),
          kind<BadCalls>("gRPC bad calls", 1)};
}

}  // namespace flywheel::soak
