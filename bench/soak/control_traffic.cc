// SPDX-License-Identifier: Apache-2.0
// Those who run the server: loading, unloading, watching, and memory that is shared with it.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "server/protocol/grpc/inference_service.pb.h"
#include "server/protocol/grpc/test_client.h"
#include "server/protocol/http/client.h"
#include "soak/traffic.h"

namespace flywheel::soak {
namespace {

constexpr int kTimeoutMs = 120'000;

class ControlActor : public Actor {
 public:
  ControlActor(const Target& target, Tally& tally, uint64_t seed) : Actor(seed), target_(target), tally_(tally) {}

 protected:
  http::ClientResponse ask(std::string_view method, const std::string& path, std::string_view body = {}) {
    auto client = http::Client::connect("127.0.0.1", target_.http, kTimeoutMs);
    auto answer = client.is_ok() ? client->request(method, path, body) : client.status();
    if (answer.is_ok()) return std::move(answer).value();
    tally_.wrong(path + ": " + answer.status().to_string());
    return {};
  }
  void expect(const std::string& what, const http::ClientResponse& answer, int status, const std::string& text = "") {
    if (answer.status == 0) return;  // told already
    if (answer.status != status || answer.body.find(text) == std::string::npos)
      return tally_.wrong(
          fmt::format("{}: expected {} '{}', got {} {}", what, status, text, answer.status, answer.body));
    status == 200 ? tally_.answered() : tally_.refused();
  }
  http::ClientResponse infer(const std::string& model, const std::string& x) {
    return ask("POST", "/v2/models/" + model + "/infer",
               R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[)" + x + "]}]}");
  }
  template <class Request>
  int call(const std::string& method, const Request& request) {
    grpc::TestClient client(target_.grpc);
    const int32_t stream =
        client.begin("/inference.GRPCInferenceService/" + method, grpc::frame_message(request.SerializeAsString()));
    const grpc::TestClient::Call& call = client.get(stream);
    client.run_until([&] { return call.closed; }, kTimeoutMs);
    return call.status();
  }

  const Target target_;
  Tally& tally_;
};

// One such actor alone, so that it knows what is loaded.
class Loading : public ControlActor {
 public:
  using ControlActor::ControlActor;
  void round() override {
    switch (below(6)) {
      case 0: return expect("load of steady's stage", ask("POST", "/v2/repository/models/stage/load"), 200);
      case 1: return change_factor();
      case 2: return leave_and_return();
      case 3: return expect("load of digits", ask("POST", "/v2/repository/models/digits/load"), 200);
      case 4: return over_grpc();
      default: return fail();
    }
  }

 private:
  static std::string config_json(uint64_t max_batch_size, uint64_t factor, const std::string& quote) {
    std::string text = fmt::format(
        R"({{"backend":"soak","max_batch_size":{},"dynamic_batching":{{}},"parameters":{{"factor":{{"string_value":"{}"}}}},)"
        R"("input":[{{"name":"x","data_type":"TYPE_FP32","dims":[4]}}],)"
        R"("output":[{{"name":"y","data_type":"TYPE_FP32","dims":[4]}}]}})",
        max_batch_size, factor);
    for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += quote.size()) text.replace(at, 1, quote);
    return text;
  }
  void change_factor() {
    const uint64_t factor = 2 + below(2);
    const std::string config = config_json(4 + below(5), factor, "\\\"");
    expect("an override",
           ask("POST", "/v2/repository/models/swapped/load", R"({"parameters":{"config":")" + config + "\"}}"), 200);
    expect("the model of an override", infer("swapped", "1,2,3,4"), 200,
           factor == 2 ? "[2.0,4.0,6.0,8.0]" : "[3.0,6.0,9.0,12.0]");
  }
  void leave_and_return() {
    expect("unload", ask("POST", "/v2/repository/models/leaving/unload"), 200);
    for (int i = 0; i < 1000; ++i) {
      if (ask("GET", "/v2/models/leaving/ready").status != 200) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    expect("a model that left", infer("leaving", "1,2,3,4"), 404, "'leaving'");
    expect("load", ask("POST", "/v2/repository/models/leaving/load"), 200);
    expect("a model that returned", infer("leaving", "1,2,3,4"), 200, "[2.0,4.0,6.0,8.0]");
  }
  // Plainly, or with the model's files in the request.
  void over_grpc() {
    inference::RepositoryModelLoadRequest request;
    request.set_model_name(below(2) == 0 ? "stage" : "swapped");
    const bool with_files = request.model_name() == "swapped";
    if (with_files) {
      auto& parameters = *request.mutable_parameters();
      parameters["config"].set_string_param(config_json(8, 3, "\""));
      parameters["file:5/libflywheel_soak.so"].set_bytes_param(target_.library);
    }
    if (const int status = call("RepositoryModelLoad", request); status != 0)
      return tally_.wrong(fmt::format("RepositoryModelLoad: status {}", status));
    tally_.answered();
    if (!with_files) return;
    const auto answer = infer("swapped", "1,2,3,4");
    expect("a model that was sent", answer, 200, "[3.0,6.0,9.0,12.0]");
    expect("its version", answer, 200, R"("model_version":"5")");
  }
  // A load that fails leaves the model as it was.
  void fail() {
    expect("load of no model", ask("POST", "/v2/repository/models/absent/load"), 400, "absent");
    expect("a broken override",
           ask("POST", "/v2/repository/models/swapped/load",
               R"({"parameters":{"config":"{\"max_batch_size\":\"many\"}"}})"),
           400);
    expect("a model after a broken override", infer("swapped", "0,0,0,0"), 200, "[0.0,0.0,0.0,0.0]");
  }
};

class Watching : public ControlActor {
 public:
  using ControlActor::ControlActor;
  void round() override {
    constexpr const char* kPaths[] = {"/v2",
                                      "/v2/health/live",
                                      "/v2/models/steady",
                                      "/v2/models/steady/config",
                                      "/v2/models/stats",
                                      "/v2/models/pipeline/stats",
                                      "/v2/trace/setting",
                                      "/v2/logging",
                                      "/openapi.json"};
    const std::string path = kPaths[below(std::size(kPaths))];
    expect(path, ask("GET", path), 200);
    expect("index", ask("POST", "/v2/repository/index", "{}"), 200, "\"steady\"");
    inference::ModelStatisticsRequest request;
    if (const int status = call("ModelStatistics", request); status != 0)
      return tally_.wrong(fmt::format("ModelStatistics: status {}", status));
    tally_.answered();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
};

class Memory : public ControlActor {
 public:
  using ControlActor::ControlActor;
  void round() override {
    const std::string name = fmt::format("flywheel-soak-{}-{:x}", getpid(), below(uint64_t{1} << 40));
    const int file = shm_open(("/" + name).c_str(), O_CREAT | O_RDWR | O_EXCL, 0600);
    if (file < 0 || ftruncate(file, kBytes) != 0) return tally_.wrong("no shared memory for the client");
    auto* floats = static_cast<float*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    if (floats != MAP_FAILED) use(name, file, floats);
    munmap(floats, kBytes);
    close(file);
    shm_unlink(("/" + name).c_str());
  }

 private:
  static constexpr size_t kBytes = 8192;
  static constexpr size_t kOutput = 1024;  // where the output begins, in floats

  void use(const std::string& name, int file, float* floats) {
    const std::string region = "/v2/systemsharedmemory/region/" + name;
    if (below(2) == 0) {
      expect(
          "register",
          ask("POST", region + "/register", fmt::format(R"({{"key":"/{}","offset":0,"byte_size":{}}})", name, kBytes)),
          200);
    } else {
      inference::SystemSharedMemoryRegisterRequest request;
      request.set_name(name);
      request.set_key("/" + name);
      request.set_byte_size(kBytes);
      if (const int status = call("SystemSharedMemoryRegister", request); status != 0)
        tally_.wrong(fmt::format("SystemSharedMemoryRegister: status {}", status));
    }
    const std::string body = fmt::format(
        R"({{"inputs":[{{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{{"shared_memory_region":"{0}","shared_memory_byte_size":16}}}}],)"
        R"("outputs":[{{"name":"y","parameters":{{"shared_memory_region":"{0}","shared_memory_byte_size":16,"shared_memory_offset":{1}}}}}]}})",
        name, kOutput * sizeof(float));
    for (int i = 0; i < 10; ++i) {
      for (size_t k = 0; k < 4; ++k) floats[k] = value();
      std::memset(floats + kOutput, 0, 16);
      const auto answer = ask("POST", "/v2/models/steady/infer", body);
      if (answer.status != 200) return tally_.wrong(fmt::format("shared memory: {} {}", answer.status, answer.body));
      for (size_t k = 0; k < 4; ++k) {
        if (floats[kOutput + k] != 2 * floats[k]) return tally_.wrong("shared memory: the output has a wrong value");
      }
      tally_.answered();
      tally_.steady();
    }
    if (below(2) == 0 && ftruncate(file, 8) == 0)
      expect("memory that was cut short", ask("POST", "/v2/models/steady/infer", body), 400, name);
    expect("unregister", ask("POST", region + "/unregister"), 200);
    expect("memory that is not registered", ask("POST", "/v2/models/steady/infer", body), 404, name);
  }
};

template <class A>
ActorKind kind(const std::string& name, int count) {
  return {name, count,
          [](const Target& target, Tally& tally, uint64_t seed) { return std::make_unique<A>(target, tally, seed); }};
}

}  // namespace

std::vector<ActorKind> control_actors() {
  return {kind<Loading>("loading", 1), kind<Watching>("watching", 1), kind<Memory>("shared memory", 1)};
}

}  // namespace flywheel::soak
