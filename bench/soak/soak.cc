// SPDX-License-Identifier: Apache-2.0
// Does the server stay whole? Mixed load for as long as one likes: both protocols, streams, sequences, ensembles,
// shared memory, clients that leave, bad requests, models that are loaded, unloaded and changed meanwhile. Every
// request has to be answered once, with the right value or the error that is due, and the server may hold no more at
// the end than it did after warming up. `make soak` runs it; exits with 0 when all of that is so.
//
//   soak --server build/flywheel --backend build/bench/bin/libflywheel_soak.so --network
//   models/fashion_mnist/model.onnx
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "server/protocol/http/client.h"
#include "soak/server_process.h"
#include "soak/traffic.h"

namespace flywheel::soak {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  std::string server, backend, network;
  double seconds = 600;
  double max_growth_kb_per_s = 20;  // of resident memory; below 0: not checked
  uint64_t seed = 1;
};

struct Sample {
  double at_s = 0;
  double memory_kb = 0;
};

// How fast memory grows, by least squares.
double slope(const std::vector<Sample>& samples) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Sample& sample : samples) {
    n += 1;
    x += sample.at_s;
    y += sample.memory_kb;
    xx += sample.at_s * sample.at_s;
    xy += sample.at_s * sample.memory_kb;
  }
  const double spread = n * xx - x * x;
  return spread > 0 ? (n * xy - x * y) / spread : 0;
}

// All actors side by side; returns the server's memory meanwhile.
std::vector<Sample> run_actors(const Target& target, ServerProcess& server, Tally& tally, double seconds,
                               uint64_t seed) {
  std::vector<ActorKind> kinds;
  for (auto list : {http_actors(), grpc_actors(), control_actors()})
    kinds.insert(kinds.end(), list.begin(), list.end());
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Actor>> actors;
  for (const ActorKind& kind : kinds) {
    for (int i = 0; i < kind.count; ++i) actors.push_back(kind.make(target, tally, ++seed));
  }
  for (const auto& actor : actors) {
    threads.emplace_back([&] {
      while (!ends) actor->round();
    });
  }
  std::vector<Sample> samples;
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  double told_s = 0;
  while (elapsed() < seconds && server.runs()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    samples.push_back({elapsed(), static_cast<double>(server.look().memory_kb)});
    if (elapsed() - told_s < 30) continue;
    told_s = elapsed();
    std::printf("%4.0f s: %s; %.0f MB\n", told_s, tally.summary().c_str(), samples.back().memory_kb / 1024);
    std::fflush(stdout);
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  return samples;
}

// Once clients are gone: what is closed takes the server a moment to notice. Waits until it holds no more than
// `before`.
Holdings settle(const ServerProcess& server, const Holdings* before) {
  Holdings now = server.look();
  for (int i = 0; i < 300; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(i == 0 ? 1000 : 50));
    now = server.look();
    if (before != nullptr && now.files <= before->files && now.threads <= before->threads &&
        now.segments <= before->segments)
      break;
    if (before == nullptr && i == 40) break;
  }
  return now;
}

uint64_t served_by_steady(uint16_t port) {
  auto client = http::Client::connect("127.0.0.1", port);
  if (!client.is_ok()) return 0;
  const auto answer = client->get("/v2/models/steady/stats");
  constexpr std::string_view kBefore = R"("success":{"count":)";
  const size_t at = answer.is_ok() ? answer->body.find(kBefore) : std::string::npos;
  return at == std::string::npos ? 0 : std::strtoull(answer->body.c_str() + at + kBefore.size(), nullptr, 10);
}

int run(const Flags& flags) {
  std::string folder = (std::filesystem::temp_directory_path() / "flywheel-soak-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 2;
  const bool has_python = std::system("python3 -c 'import numpy' 2>/dev/null") == 0;
  std::vector<std::string> arguments = {"serve",
                                        "--model-repository",
                                        folder + "/models",
                                        "--model-control-mode",
                                        "explicit",
                                        "--http-address",
                                        "127.0.0.1",
                                        "--http-port",
                                        "0",
                                        "--grpc-port",
                                        "0",
                                        "--metrics-port",
                                        "0",
                                        "--allow-client-shm",
                                        "true",
                                        "--cache-config",
                                        "local,size=1048576"};
  for (const std::string& name : write_models(folder + "/models", flags.backend, flags.network, has_python)) {
    arguments.insert(arguments.end(), {"--load-model", name});
  }
  ServerProcess server(folder);
  if (const Status started = server.start(flags.server, arguments, 600); !started.is_ok()) {
    std::fprintf(stderr, "%s\n", started.message().c_str());
    return 2;
  }
  std::ifstream library(flags.backend, std::ios::binary);
  const Target target{server.http_port(),
                      server.grpc_port(),
                      has_python,
                      {std::istreambuf_iterator<char>(library), std::istreambuf_iterator<char>()}};
  std::printf("mixed load for %.0f s, seed %llu%s\n", flags.seconds, static_cast<unsigned long long>(flags.seed),
              has_python ? "" : "; no python3 with numpy, so without decoupled models");
  std::fflush(stdout);
  Tally tally;
  bool good = true;
  const auto check = [&](bool holds, const std::string& what) {
    std::printf("%s  %s\n", holds ? "ok    " : "FAILED", what.c_str());
    good = good && holds;
  };

  const double warm_up_s = std::min(60.0, flags.seconds / 4);
  run_actors(target, server, tally, warm_up_s, flags.seed);
  const Holdings before = settle(server, nullptr);
  const std::vector<Sample> samples = run_actors(target, server, tally, flags.seconds - warm_up_s, flags.seed + 1000);
  const Holdings after = settle(server, &before);

  check(tally.wrong_count() == 0 && tally.total() > 0, tally.summary());
  const uint64_t served = served_by_steady(target.http);
  check(served == tally.steady_count(),
        fmt::format("the server counts {} answers of 'steady', its clients got {}", served, tally.steady_count()));
  const double growth = slope(samples);
  if (flags.max_growth_kb_per_s >= 0) {
    check(growth <= flags.max_growth_kb_per_s,
          fmt::format("memory grows by {:.1f} kB/s, {:.1f} at most; {} MB before, {} MB after", growth,
                      flags.max_growth_kb_per_s, before.memory_kb / 1024, after.memory_kb / 1024));
  }
  check(after.files <= before.files, fmt::format("{} open files before, {} after", before.files, after.files));
  check(after.threads <= before.threads, fmt::format("{} threads before, {} after", before.threads, after.threads));
  check(after.segments <= before.segments,
        fmt::format("{} segments of shared memory before, {} after", before.segments, after.segments));
  const Status stopped = server.stop(60);
  check(stopped.is_ok(), stopped.is_ok() ? "the server ended as asked" : stopped.message());
  check(server.count_temporary_files() == 0,
        fmt::format("{} temporary files are left", server.count_temporary_files()));
  const std::string log = server.log();
  const bool clean = log.find("Sanitizer") == std::string::npos && log.find("runtime error") == std::string::npos;
  check(clean, "no sanitizer has spoken");
  if (good) {
    std::filesystem::remove_all(folder);
  } else {
    std::printf("the server's log: %s/server.log\n", folder.c_str());
  }
  std::printf("%s\n", good ? "passed" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace flywheel::soak

int main(int argc, char** argv) {
  flywheel::soak::Flags flags;
  CLI::App app("Mixed load on `flywheel serve`, every answer checked");
  app.add_option("--server", flags.server, "The program")->required();
  app.add_option("--backend", flags.backend, "libflywheel_soak.so")->required();
  app.add_option("--network", flags.network, "models/fashion_mnist/model.onnx")->required();
  app.add_option("--seconds", flags.seconds, "How long, a quarter (60 s at most) of it to warm up")
      ->capture_default_str();
  app.add_option("--max-growth", flags.max_growth_kb_per_s,
                 "kB/s of resident memory after the warm-up; -1: do not check")
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Of all that is random")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return flywheel::soak::run(flags);
}
