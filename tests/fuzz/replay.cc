// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: over every file of the folders given, then over mutations of them that depend
// on the seed alone. A crash ends the process, after the input that caused it was written to replay-crash.bin in the
// working folder.
//   fuzz_x [--mutations N] [--seed S] FOLDER_OR_FILE...
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                                                unsigned seed);
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

constexpr size_t kMaxBytes = 1 << 16;
using Bytes = std::vector<uint8_t>;

std::mt19937_64 random_bits;
Bytes current;

size_t below(size_t bound) { return bound == 0 ? 0 : random_bits() % bound; }

void save_current(int signal_number) {
  if (FILE* file = std::fopen("replay-crash.bin", "wb")) {
    std::fwrite(current.data(), 1, current.size(), file);
    std::fclose(file);
    std::fputs("the input is in replay-crash.bin\n", stderr);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void run(Bytes input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

}  // namespace

// libFuzzer's byte mutations, in small.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  static constexpr uint8_t kTelling[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, '"', '\\', '\n', '{', '}'};
  switch (below(5)) {
    case 0:  // a bit
      if (size > 0) data[below(size)] ^= static_cast<uint8_t>(1u << below(8));
      return size;
    case 1:  // a byte
      if (size > 0)
        data[below(size)] = below(2) == 0 ? kTelling[below(sizeof(kTelling))] : static_cast<uint8_t>(random_bits());
      return size;
    case 2: {  // insert
      if (size >= max_size) return size;
      const size_t at = below(size + 1);
      std::memmove(data + at + 1, data + at, size - at);
      data[at] = static_cast<uint8_t>(random_bits());
      return size + 1;
    }
    case 3: {  // erase
      if (size < 2) return size;
      const size_t at = below(size), count = 1 + below(std::min<size_t>(size - at, 16) - 0);
      const size_t erased = std::min({count, size - at, size - 1});
      std::memmove(data + at, data + at + erased, size - at - erased);
      return size - erased;
    }
    default: {  // copy a part over another
      if (size < 2) return size;
      const size_t from = below(size), to = below(size), count = below(std::min(size - from, size - to)) + 1;
      std::memmove(data + to, data + from, std::min({count, size - from, size - to}));
      return size;
    }
  }
}

int main(int argc, char** argv) {
  uint64_t mutations = 0, seed = 1;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mutations" && i + 1 < argc) {
      mutations = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::filesystem::is_directory(argument)) {
      for (const auto& entry : std::filesystem::directory_iterator(argument)) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    } else {
      files.emplace_back(argument);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> seeds;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", path.c_str());
      return 2;
    }
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (seeds.empty()) {
    std::fputs("no inputs: give a folder of them\n", stderr);
    return 2;
  }
  for (int signal_number : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL}) signal(signal_number, save_current);

  for (const Bytes& input : seeds) run(input);
  run({});
  random_bits.seed(seed);
  for (uint64_t i = 0; i < mutations; ++i) {
    Bytes input = seeds[below(seeds.size())];
    size_t size = std::min(input.size(), kMaxBytes);
    input.resize(kMaxBytes);
    for (size_t rounds = 1 + below(4); rounds > 0; --rounds) {
      size = LLVMFuzzerCustomMutator != nullptr
                 ? LLVMFuzzerCustomMutator(input.data(), size, kMaxBytes, static_cast<unsigned>(random_bits()))
                 : LLVMFuzzerMutate(input.data(), size, kMaxBytes);
    }
    input.resize(size);
    run(std::move(input));
  }
  std::printf("%zu inputs and %llu mutations\n", seeds.size(), static_cast<unsigned long long>(mutations));
  return 0;
}
