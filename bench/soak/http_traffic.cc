// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <span>

#include "server/protocol/http/client.h"
#include "soak/traffic.h"

namespace flywheel::soak {
namespace {

using http::ClientResponse;

constexpr int kTimeoutMs = 60'000;

std::string bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

class HttpActor : public Actor {
 public:
  HttpActor(const Target& target, Tally& tally, uint64_t seed) : Actor(seed), target_(target), tally_(tally) {}

 protected:
  http::Client* connect() {
    if (client_) return &*client_;
    auto connected = http::Client::connect("127.0.0.1", target_.http, kTimeoutMs);
    if (!connected.is_ok()) {
      tally_.wrong("HTTP: " + connected.status().to_string());
      return nullptr;
    }
    client_.emplace(std::move(connected).value());
    return &*client_;
  }
  // The next answer of those that are due.
  std::optional<ClientResponse> receive(const std::string& what) {
    auto answer = client_->receive();
    if (!answer.is_ok()) {
      tally_.wrong(what + ": " + answer.status().to_string());
      client_.reset();
      return std::nullopt;
    }
    return std::move(answer).value();
  }
  std::optional<ClientResponse> ask(std::string_view method, const std::string& path, std::string_view body,
                                    const http::Fields& fields = {}) {
    http::Client* client = connect();
    if (client == nullptr) return std::nullopt;
    (void)client->send(http::format_request(method, path, fields, body));  // what is refused early may not be taken
    auto answer = receive(path);
    char byte;
    if (answer && answer->find("connection") != "close" &&
        ::recv(client->socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
      tally_.wrong(path + ": more than one answer to a request");
    if (answer && answer->find("connection") == "close") client_.reset();
    return answer;
  }
  std::optional<ClientResponse> infer(const std::string& model, std::string_view body,
                                      const http::Fields& fields = {}) {
    return ask("POST", "/v2/models/" + model + "/infer", body, fields);
  }
  std::string next_id() { return fmt::format("{:x}", below(uint64_t{1} << 48)); }

  void expect_refusal(const std::optional<ClientResponse>& answer, int status, std::string_view text) {
    if (!answer) return;
    if (answer->status == status && answer->body.find(text) != std::string::npos) return tally_.refused();
    tally_.wrong(fmt::format("expected {} '{}', got {} {}", status, text, answer->status, answer->body));
  }
  bool expect_values(const std::string& what, const ClientResponse& answer, const std::string& id,
                     const std::vector<float>& values) {
    const bool right = answer.status == 200 && answer.body.find("\"id\":\"" + id + "\"") != std::string::npos &&
                       answer.body.find(fmt::format("\"data\":[{:.1f}]", fmt::join(values, ","))) != std::string::npos;
    if (right) {
      tally_.answered();
    } else {
      tally_.wrong(fmt::format("{}: expected id {} and [{:.1f}], got {} {}", what, id, fmt::join(values, ","),
                               answer.status, answer.body));
    }
    return right;
  }
  std::string json(const std::string& id, const std::vector<float>& x, const std::string& more = "") {
    return fmt::format(R"({{"id":"{}",{}"inputs":[{{"name":"x","shape":[{},4],"datatype":"FP32","data":[{}]}}]}})", id,
                       more, x.size() / 4, fmt::join(x, ","));
  }
  std::vector<float> make_row() {
    const float first = value();
    return {first, first + 1, value(), 0};
  }
  static std::vector<float> times(float factor, std::vector<float> values) {
    for (float& value : values) value *= factor;
    return values;
  }

  const Target target_;
  Tally& tally_;
  std::optional<http::Client> client_;
};

// JSON, binary tensors, several requests on their way at once; a model, an ensemble of it, a model that is reloaded,
// one with a cache, and a network.
class Inference : public HttpActor {
 public:
  using HttpActor::HttpActor;
  void round() override {
    switch (below(8)) {
      case 0: return binary();
      case 1: return pipelined();
      case 2: return network();
      case 3: return generate();
      case 4: return ask_json("pipeline", 4);
      case 5: return ask_json("cached", 2, static_cast<float>(below(8)));
      case 6: return changing();
      default: return ask_json("steady", 2);
    }
  }

 private:
  void ask_json(const std::string& model, float factor, std::optional<float> repeated = {}) {
    const std::string id = next_id();
    const std::vector<float> x = repeated ? std::vector<float>(4, *repeated) : make_row();
    const auto answer = infer(model, json(id, x));
    if (answer && expect_values(model, *answer, id, times(factor, x)) && model != "cached") tally_.steady();
  }
  // Of a model that comes and goes, and of one whose factor is 2 or 3.
  void changing() {
    const std::string id = next_id();
    const std::vector<float> x = make_row();
    if (below(2) == 0) {
      const auto answer = infer("swapped", json(id, x));
      if (!answer) return;
      const bool three = answer->body.find(fmt::format("[{:.1f}]", fmt::join(times(3, x), ","))) != std::string::npos;
      expect_values("swapped", *answer, id, times(three ? 3 : 2, x));
      return;
    }
    const auto answer = infer("leaving", json(id, x));
    if (!answer) return;
    if (answer->status == 200) {
      expect_values("leaving", *answer, id, times(2, x));
    } else if (answer->body.find("'leaving' has no available versions") != std::string::npos ||
               answer->body.find("'leaving' is not found") != std::string::npos ||
               answer->body.find("stopped accepting new inference requests") != std::string::npos) {
      tally_.refused();
    } else {
      tally_.wrong(fmt::format("leaving: {} {}", answer->status, answer->body));
    }
  }
  void binary() {
    const std::string id = next_id();
    std::vector<float> x;
    for (uint64_t rows = 1 + below(8); x.size() < rows * 4;) x.push_back(value());
    const std::string head = fmt::format(
        R"({{"id":"{}","inputs":[{{"name":"x","shape":[{},4],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}],)"
        R"("parameters":{{"binary_data_output":true}}}})",
        id, x.size() / 4, x.size() * 4);
    const auto answer =
        infer("steady", head + bytes_of(x), {{"Inference-Header-Content-Length", std::to_string(head.size())}});
    if (!answer) return;
    if (answer->status == 200 && answer->body.find("\"id\":\"" + id + "\"") != std::string::npos &&
        answer->body.ends_with(bytes_of(times(2, x)))) {
      tally_.answered();
      tally_.steady();
    } else {
      tally_.wrong(fmt::format("binary steady: {} {}", answer->status, answer->body));
    }
  }
  void pipelined() {
    http::Client* client = connect();
    if (client == nullptr) return;
    std::vector<std::pair<std::string, std::vector<float>>> sent;
    std::string text;
    for (uint64_t i = 0; i < 6; ++i) {
      sent.emplace_back(next_id(), make_row());
      text += http::format_request("POST", "/v2/models/steady/infer", {}, json(sent.back().first, sent.back().second));
    }
    (void)client->send(text);
    for (const auto& [id, x] : sent) {
      const auto answer = receive("pipelined requests");
      if (!answer) return;
      if (expect_values("pipelined steady", *answer, id, times(2, x))) tally_.steady();
    }
  }
  // A row's result depends on the row alone: whatever it is batched with, its bits are those of the first time.
  void network() {
    const uint64_t image = below(4);
    std::vector<float> pixels(784);
    for (size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<float>((i * (image + 3) + image * 31) % 256) / 256;
    const std::string head = fmt::format(
        R"({{"inputs":[{{"name":"image","shape":[1,1,28,28],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}],)"
        R"("parameters":{{"binary_data_output":true}}}})",
        pixels.size() * 4);
    const auto answer =
        infer("digits", head + bytes_of(pixels), {{"Inference-Header-Content-Length", std::to_string(head.size())}});
    if (!answer) return;
    const std::string tensor = answer->body.substr(answer->body.rfind('}') + 1);
    if (first_[image].empty()) first_[image] = tensor;
    if (answer->status == 200 && tensor.size() == 40 && tensor == first_[image]) return tally_.answered();
    tally_.wrong(
        fmt::format("digits: image {} has another result than before: {} {}", image, answer->status, answer->body));
  }
  void generate() {
    const std::vector<float> x = make_row();
    if (target_.has_python && below(4) == 0) {
      const auto answer =
          ask("POST", "/v2/models/repeat/generate_stream", fmt::format(R"({{"x":[{}]}})", fmt::join(x, ",")));
      if (!answer) return;
      std::string expected;
      for (float value : x)
        expected += fmt::format("data: {{\"model_name\":\"repeat\",\"model_version\":\"1\",\"y\":{:.1f}}}\n\n", value);
      if (answer->status == 200 && answer->body == expected) return tally_.answered();
      return tally_.wrong(
          fmt::format("generate_stream: expected {}, got {} {}", expected, answer->status, answer->body));
    }
    const auto answer =
        ask("POST", "/v2/models/steady/generate", fmt::format(R"({{"x":[{}],"more":true}})", fmt::join(x, ",")));
    if (!answer) return;
    const std::string expected = fmt::format("\"y\":[{:.1f}]", fmt::join(times(2, x), ","));
    if (answer->status != 200 || answer->body.find(expected) == std::string::npos)
      return tally_.wrong(fmt::format("generate: {} {}", answer->status, answer->body));
    tally_.answered();
    tally_.steady();
  }
  std::string first_[4];
};

// Running sums, two sequences at once; now and then one is left without an end.
class Sequences : public HttpActor {
 public:
  using HttpActor::HttpActor;
  void round() override {
    const std::string model = below(2) == 0 ? "direct_sums" : "oldest_sums";
    const std::string ids[] = {fmt::format("{}", 1 + below(uint64_t{1} << 62)), fmt::format("\"s{}\"", next_id())};
    float sums[] = {0, 0};
    const uint64_t length = 1 + below(6);
    const bool left = below(1000) == 0;
    for (uint64_t step = 0; step < length; ++step) {
      for (size_t s = 0; s < 2; ++s) {
        const float x = value();
        sums[s] += x;
        const std::string id = next_id();
        const auto answer = infer(
            model, fmt::format(R"({{"id":"{}","parameters":{{"sequence_id":{},"sequence_start":{},"sequence_end":{}}},)"
                               R"("inputs":[{{"name":"x","shape":[1,1],"datatype":"FP32","data":[{}]}}]}})",
                               id, ids[s], step == 0, step + 1 == length && !left, x));
        if (!answer || !expect_values(model, *answer, id, {sums[s]})) return;
      }
    }
  }
};

// Clients that leave: in the middle of a body, while their request waits, with an answer half read. And time-outs.
class Leavers : public HttpActor {
 public:
  using HttpActor::HttpActor;
  void round() override {
    if (below(2) == 0) return time_out();
    auto client = http::Client::connect("127.0.0.1", target_.http, kTimeoutMs);
    if (!client.is_ok()) return tally_.wrong("HTTP: " + client.status().to_string());
    std::string text;
    for (uint64_t i = 0; i <= below(3); ++i)
      text += http::format_request("POST", "/v2/models/slow/infer", {}, slow(2000));
    const bool is_cut = below(2) == 0;
    if (is_cut) text.resize(1 + below(text.size()));
    (void)client->send(text);
    if (!is_cut && below(3) == 0) (void)client->receive();
    below(2) == 0 ? client->reset() : client->close();
    tally_.abandoned();
  }

 private:
  std::string slow(uint64_t wait_us, const std::string& more = "") {
    return fmt::format(R"({{"id":"7",{}"inputs":[{{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}},)"
                       R"({{"name":"wait_us","shape":[1,1],"datatype":"INT32","data":[{}]}}]}})",
                       more, wait_us);
  }
  void time_out() {
    const auto answer = infer("slow", slow(below(3000), fmt::format(R"("parameters":{{"timeout":{},"priority":{}}},)",
                                                                    1 + below(4000), below(3))));
    if (!answer) return;
    if (answer->status == 200) {
      expect_values("slow", *answer, "7", {2, 4, 6, 8});
    } else if (answer->status == 503 && (answer->body.find("Request timeout expired") != std::string::npos ||
                                         answer->body.find("Exceeds maximum queue size") != std::string::npos)) {
      tally_.refused();
    } else {
      tally_.wrong(fmt::format("slow: {} {}", answer->status, answer->body));
    }
  }
};

class BadRequests : public HttpActor {
 public:
  using HttpActor::HttpActor;
  void round() override {
    const std::vector<float> x = {1, 2, 3, 4};
    const std::string good = json("1", x);
    const auto with = [&](const std::string& from, const std::string& to) {
      std::string changed = good;
      return changed.replace(changed.find(from), from.size(), to);
    };
    switch (below(14)) {
      case 0: return expect_refusal(infer("steady", "{broken"), 400, "");
      case 1: return expect_refusal(infer("absent", good), 404, "unknown model");
      case 2: return expect_refusal(infer("steady", with("[1,4]", "[1,3]")), 400, "");
      case 3: return expect_refusal(infer("steady", with("[1,2,3,4]", "[1,2,3]")), 400, "");
      case 4: return expect_refusal(infer("steady", with("[1,4]", "[9223372036854775807,4]")), 400, "");
      case 5: return expect_refusal(infer("steady", with("FP32", "FP31")), 400, "");
      case 6: return expect_refusal(infer("steady", with("\"x\"", "\"z\"")), 400, "");
      case 7: return expect_refusal(infer("steady", json("1", x, R"("outputs":[{"name":"z"}],)")), 400, "");
      case 8: return expect_refusal(ask("GET", "/v2/models/steady/infer", ""), 405, "Method Not Allowed");
      case 9: return expect_refusal(ask("POST", "/v2/nothing", good), 404, "");
      case 10: return expect_refusal(infer("steady", good, {{"Inference-Header-Content-Length", "99999"}}), 400, "");
      case 11: return expect_refusal(infer("steady", json("1", {-1, 2, 3, 4})), 400, "must not begin with a negative");
      case 12: return expect_refusal(infer("pipeline", json("1", {-1, 2, 3, 4})), 400, "in ensemble 'pipeline'");
      default: {
        const std::string deep(1 + below(200'000), '[');
        return expect_refusal(infer("steady", with("[1,2,3,4]", deep)), 400, "");
      }
    }
  }
};

// What is not HTTP at all.
class Noise : public HttpActor {
 public:
  using HttpActor::HttpActor;
  void round() override {
    auto client = http::Client::connect("127.0.0.1", target_.http, kTimeoutMs);
    if (!client.is_ok()) return tally_.wrong("HTTP: " + client.status().to_string());
    std::string text;
    for (uint64_t i = 0, size = 1 + below(4000); i < size; ++i) text += static_cast<char>(below(256));
    (void)client->send(text + "\r\n\r\n");
    client->end_sending();
    const auto answer = client->receive();
    if (answer.is_ok() && answer->status != 400 && answer->status != 431)
      tally_.wrong(fmt::format("noise was answered with {} {}", answer->status, answer->body));
    tally_.refused();
  }
};

template <class A>
ActorKind kind(const std::string& name, int count) {
  return {name, count,
          [](const Target& target, Tally& tally, uint64_t seed) { return std::make_unique<A>(target, tally, seed); }};
}

}  // namespace

std::vector<ActorKind> http_actors() {
  return {kind<Inference>("http inference", 4), kind<Sequences>("http sequences", 2), kind<Leavers>("http leavers", 2),
          kind<BadRequests>("http bad requests", 1), kind<Noise>("http noise", 1)};
}

}  // namespace flywheel::soak
