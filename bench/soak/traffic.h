// SPDX-License-Identifier: Apache-2.0
// What the soak's clients share. Each actor is one client on a thread of its own; its rounds send requests whose
// answers it knows, and tell the tally what came. soak.cc runs all actors side by side.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace flywheel::soak {

struct Target {
  uint16_t http = 0, grpc = 0;
  bool has_python = false;
  std::string library;  // the bytes of libflywheel_soak.so
};

// Counts of what became of requests. Any thread.
class Tally {
 public:
  void answered(uint64_t count = 1) { answered_ += count; }    // with the right value
  void refused(uint64_t count = 1) { refused_ += count; }      // with the error that was due
  void abandoned(uint64_t count = 1) { abandoned_ += count; }  // by the client
  // Answers of `steady`, which no reload resets: held against the server's own statistics.
  void steady(uint64_t count = 1) { steady_ += count; }
  void wrong(const std::string& what);

  uint64_t total() const { return answered_ + refused_ + abandoned_; }
  uint64_t steady_count() const { return steady_; }
  uint64_t wrong_count() const { return wrong_; }
  std::string summary() const;

 private:
  std::atomic<uint64_t> answered_{0}, refused_{0}, abandoned_{0}, steady_{0}, wrong_{0};
  std::mutex mutex_;
  std::map<std::string, int> printed_;
};

class Actor {
 public:
  explicit Actor(uint64_t seed) : random_(seed) {}
  virtual ~Actor() = default;
  virtual void round() = 0;

 protected:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  // A whole number that JSON and FP32 hold, four times over, without rounding.
  float value() { return static_cast<float>(below(1000)); }

 private:
  std::mt19937_64 random_;
};

struct ActorKind {
  std::string name;
  int count = 1;
  std::function<std::unique_ptr<Actor>(const Target& target, Tally& tally, uint64_t seed)> make;
};

std::vector<ActorKind> http_actors();
std::vector<ActorKind> grpc_actors();
std::vector<ActorKind> control_actors();

// The models of the soak, in a folder that is empty; `backend` is libflywheel_soak.so, `network` an ONNX file. Returns
// their names, which are to be loaded at the start.
std::vector<std::string> write_models(const std::string& folder, const std::string& backend, const std::string& network,
                                      bool has_python);

}  // namespace flywheel::soak
