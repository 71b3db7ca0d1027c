// SPDX-License-Identifier: Apache-2.0
// Times kernels on the problems of real models, without a compiler or a runtime around them.
//
// Usage: kernel_bench [--threads N] [--batch N] [--isa avx512|avx2|portable] [--tactic SUBSTRING] [--only SUBSTRING]
//                     [--seconds S] FILE...
// A FILE has one problem a line, as bench/problems/from_onnx.py writes them. Each accepting tactic is run for about
// S seconds (default 0.1) and its best time is printed, with the share of the peak that one tile kernel reaches on data
// in L1. Weights are read from memory, not from cache, as in a model: packed copies of at least 48 MB take turns.
// --batch multiplies images and rows. The last line of a file sums the fastest tactic of each problem over its count.
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "kernels/conv/conv.h"
#include "kernels/gemm/testing.h"
#include "kernels/gemm/tile_kernel.h"

namespace flywheel::kernels {
namespace {

struct Options {
  int threads = 2;
  int64_t batch = 1;
  double seconds = 0.1;
  std::string isa, tactic, only;
  std::vector<std::string> files;
};

struct Line {
  Problem problem;
  int64_t count = 1;
  double flops = 0;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> out;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, 'x');) out.push_back(std::stoll(part));
  return out;
}

TensorDesc f32(Dims dims) { return TensorDesc::contiguous(DType::kFloat32, std::move(dims)); }

Line parse(const std::string& text, int64_t batch) {
  std::stringstream words(text);
  std::string family;
  words >> family;
  std::map<std::string, std::string> at;
  for (std::string word; words >> word;) at[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  auto dims = [&](const char* key) { return numbers(at.at(key)); };
  Line line;
  line.count = at.count("count") ? std::stoll(at["count"]) : 1;
  Problem& p = line.problem;
  if (family == "conv" || family == "conv_transpose") {
    p.family = family == "conv" ? Family::kConv : Family::kConvTranspose;
    Dims x = dims("x"), w = dims("w"), y = dims("y"), s = dims("s"), pads = dims("p"), d = dims("d");
    x[0] *= batch;
    y[0] *= batch;
    p.inputs = {f32(x), f32(w)};
    p.outputs = {f32(y)};
    ConvParams params{w[2], w[3], s[0], s[1], pads[0], pads[1], pads[2], pads[3], d[0], d[1], std::stoll(at["g"])};
    p.ints = params.to_ints();
    const Dims& pixels = family == "conv" ? y : x;
    line.flops = 2.0 * static_cast<double>(pixels[0] * pixels[1] * pixels[2] * element_count(w));
  } else if (family == "gemm") {
    const int64_t m = std::stoll(at["m"]) * batch, n = std::stoll(at["n"]), k = std::stoll(at["k"]);
    p.family = Family::kGemm;
    p.ints = {std::stoll(at["tb"])};
    p.inputs = {f32({m, k}), f32(p.ints[0] ? Dims{n, k} : Dims{k, n})};
    p.outputs = {f32({m, n})};
    line.flops = 2.0 * static_cast<double>(m * n * k);
  } else {
    p.family = Family::kMatMul;
    Dims a = dims("a"), b = dims("b"), y = a;
    a[0] *= batch;
    b[0] *= batch;
    y[0] *= batch;
    y.back() = b.back();
    p.inputs = {f32(a), f32(b)};
    p.outputs = {f32(y)};
    line.flops = 2.0 * static_cast<double>(element_count(y) * a.back());
  }
  p.constant = {false, p.family != Family::kMatMul};
  if (!testing::add_ending(p, at["end"])) throw std::runtime_error("unknown epilogue in: " + text);
  return line;
}

// Multiply-adds a second that all threads reach together on tiles in L1.
double peak_flops(ThreadTeam& team, Isa isa) {
  const TileKernels& kernels = tile_kernels(isa);
  constexpr int64_t kSteps = 64;
  double best = 0;
  for (int round = 0; round < 20; ++round) {
    const double begin = now();
    constexpr int kCalls = 2000;
    team.run([&](Worker&) {
      alignas(64) static thread_local float a[kMaxTileRows * kSteps], b[kSteps * 32], out[kMaxTileRows * 32];
      TileArgs args{};
      args.a = a;
      args.a_step = kSteps;
      args.outer = args.middle = 1;
      args.run = kSteps;
      args.b = b;
      args.out = out;
      args.out_step = kernels.panel;
      args.columns = kernels.panel;
      for (int i = 0; i < kCalls; ++i) kernels.full[kernels.max_rows](args);
    });
    const double flops = 2.0 * kSteps * kernels.max_rows * kernels.panel * kCalls * team.size();
    best = std::max(best, flops / (now() - begin));
  }
  return best;
}

double best_time(const Tactic& tactic, const Line& line, ThreadTeam& team, double seconds) {
  const std::vector<testing::Tensor> inputs = testing::random_inputs(line.problem, 1);
  std::vector<AlignedBuffer> buffers, packed;
  std::vector<bool> consumed(inputs.size(), false);
  std::vector<const void*> constants, pointers;
  // Operands in memory as the runtime would place them: aligned, in huge pages.
  for (size_t i = 0; i < inputs.size(); ++i) {
    constants.push_back(line.problem.constant[i] ? inputs[i].data() : nullptr);
    const TensorDesc& desc = inputs[i].desc();
    int64_t span = 1;
    for (int d = 0; d < desc.rank(); ++d) span += (desc.dims[d] - 1) * desc.strides[d];
    buffers.push_back(AlignedBuffer::allocate(static_cast<size_t>(span) * 4, "input").value());
    std::copy_n(static_cast<const float*>(inputs[i].data()), span, reinterpret_cast<float*>(buffers.back().data()));
    pointers.push_back(buffers.back().data());
  }
  if (tactic.pack != nullptr) {
    size_t bytes = 0;
    do {
      auto copy = tactic.pack(line.problem, constants, consumed);
      if (!copy.is_ok()) throw std::runtime_error(copy.status().to_string());
      packed.push_back(std::move(copy).value());
      bytes += std::max<size_t>(packed.back().size_bytes(), 1);
    } while (bytes < (size_t{48} << 20) && packed.size() < 24);
  }
  auto kernel = tactic.bind(line.problem, testing::machine(), team.size());
  if (!kernel.is_ok()) throw std::runtime_error(kernel.status().to_string());
  AlignedBuffer workspace = AlignedBuffer::allocate((*kernel)->workspace_bytes(), "workspace").value();
  AlignedBuffer output =
      AlignedBuffer::allocate(static_cast<size_t>(line.problem.outputs[0].size_bytes()), "output").value();
  void* out = output.data();
  std::atomic<uint32_t> faults{0};
  double best = 1e9;
  const double end = now() + seconds;
  for (int round = 0; round < 3 || now() < end; ++round) {
    const std::byte* weights = packed.empty() ? nullptr : packed[static_cast<size_t>(round) % packed.size()].data();
    const Operands operands{pointers.data(), &out, weights, workspace.data(), &faults};
    const double begin = now();
    team.run([&](Worker& worker) { (*kernel)->launch(operands, worker); });
    if (round > 0) best = std::min(best, now() - begin);
  }
  return best;
}

int main_or_throw(const Options& options) {
  auto team = ThreadTeam::create(options.threads);
  if (!team.is_ok()) throw std::runtime_error(team.status().to_string());
  (*team)->run([](Worker& worker) {  // a member a core, or two may share one for a whole measurement
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(worker.rank(), &cpus);
    pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
  });
  Machine machine = testing::machine();
  if (!options.isa.empty()) machine.isa = parse_isa(options.isa).value();
  const double peak = peak_flops(**team, machine.isa);
  fmt::print("peak {:.0f} GFLOP/s on {} threads\n", peak / 1e9, options.threads);
  for (const std::string& file : options.files) {
    std::ifstream stream(file);
    if (!stream) throw std::runtime_error("cannot read " + file);
    double total = 0, flops = 0;
    for (std::string text; std::getline(stream, text);) {
      if (text.empty() || text[0] == '#' || text.find(options.only) == std::string::npos) continue;
      const Line line = parse(text, options.batch);
      double fastest = 1e9;
      fmt::print("{}\n", text);
      for (const Tactic& tactic : tactics(line.problem.family)) {
        const std::string_view name = tactic.name;
        if (name.ends_with("_reference") || name.find(options.tactic) == std::string_view::npos) continue;
        if (!machine.has(tactic.isa) || (!options.isa.empty() && tactic.isa != machine.isa)) continue;
        if (!tactic.accepts(line.problem, machine).is_ok()) continue;
        if (options.isa.empty() && tactic.isa != machine.isa) continue;
        const double time = best_time(tactic, line, **team, options.seconds);
        fastest = std::min(fastest, time);
        fmt::print("    {:<32} {:8.4f} ms {:7.1f} GFLOP/s {:4.0f}%\n", name, time * 1e3, line.flops / time / 1e9,
                   100 * line.flops / time / peak);
        std::fflush(stdout);
      }
      if (fastest < 1e9) {
        total += fastest * static_cast<double>(line.count);
        flops += line.flops * static_cast<double>(line.count);
      }
    }
    fmt::print("{}: {:.3f} ms, {:.1f} GFLOP, {:.0f}% of peak\n", file, total * 1e3, flops / 1e9,
               100 * flops / total / peak);
  }
  return 0;
}

}  // namespace
}  // namespace flywheel::kernels

int main(int argc, char** argv) {
  flywheel::kernels::Options options;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string arg = argv[i];
      auto value = [&]() -> std::string {
        if (++i >= argc) throw std::runtime_error(arg + " needs a value");
        return argv[i];
      };
      if (arg == "--threads") {
        options.threads = std::stoi(value());
      } else if (arg == "--batch") {
        options.batch = std::stoll(value());
      } else if (arg == "--seconds") {
        options.seconds = std::stod(value());
      } else if (arg == "--isa") {
        options.isa = value();
      } else if (arg == "--tactic") {
        options.tactic = value();
      } else if (arg == "--only") {
        options.only = value();
      } else if (arg.starts_with("--")) {
        throw std::runtime_error("unknown option " + arg);
      } else {
        options.files.push_back(arg);
      }
    }
    return flywheel::kernels::main_or_throw(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernel_bench: {}\n", error.what());
    return 1;
  }
}
