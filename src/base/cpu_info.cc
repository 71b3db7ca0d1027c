// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_info.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace flywheel {
namespace {

Isa detect_hardware_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // What cmake/flywheel.cmake compiles the kernels with. Clang's builtin does not know f16c.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx2 && avx512) return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

int64_t read_cache_bytes(int index, int64_t fallback) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
  int64_t size = 0;
  char unit = 0;
  if (!(file >> size)) return fallback;
  file >> unit;
  if (unit == 'K') size <<= 10;
  if (unit == 'M') size <<= 20;
  return size > 0 ? size : fallback;
}

// The CPU quota of the cgroup in whole cores, or 0 when there is none (cgroup v2, then v1).
int cgroup_quota_cores() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) {
    return std::max(1, static_cast<int>(std::strtod(quota.c_str(), nullptr) / period + 0.5));
  }
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota_us = 0;
  if (v1_quota >> quota_us && v1_period >> period && quota_us > 0 && period > 0) {
    return std::max(1, static_cast<int>(quota_us / period + 0.5));
  }
  return 0;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores =
      sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  int quota = cgroup_quota_cores();
  return std::max(1, quota > 0 ? std::min(cores, quota) : cores);
}

std::string read_cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, name, family, model;
  auto value = [&] { return line.substr(std::min(line.size(), line.find(':') + 2)); };
  while (std::getline(info, line)) {
    if (line.rfind("model name", 0) == 0 && name.empty()) name = value();
    if (line.rfind("cpu family", 0) == 0 && family.empty()) family = value();
    if (line.rfind("model\t", 0) == 0 && model.empty()) model = value();
    if (line.empty()) break;
  }
  return fmt::format("{} (family {} model {})", name.empty() ? "unknown CPU" : name, family, model);
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
  }
  return "unknown";
}

Result<Isa> parse_isa(std::string_view name) {
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (name == isa_name(isa)) return isa;
  }
  return invalid_argument(fmt::format("unknown instruction set '{}': use portable, avx2 or avx512", name));
}

std::string Machine::fingerprint() const {
  return fmt::format("{}; {}; L1 {} L2 {} L3 {}", cpu_name, isa_name(isa), l1_bytes, l2_bytes, l3_bytes);
}

Result<Machine> detect_machine() {
  Machine machine;
  machine.hardware_isa = machine.isa = detect_hardware_isa();
  machine.cores = usable_cores();
  machine.l1_bytes = read_cache_bytes(0, machine.l1_bytes);
  machine.l2_bytes = read_cache_bytes(2, machine.l2_bytes);
  machine.l3_bytes = read_cache_bytes(3, machine.l3_bytes);
  machine.cpu_name = read_cpu_name();
  if (const char* forced = std::getenv("FLYWHEEL_ISA"); forced != nullptr && *forced != 0) {
    Result<Isa> isa = parse_isa(forced);
    if (!isa.is_ok()) return isa.status().with_context("FLYWHEEL_ISA");
    if (*isa > machine.hardware_isa) {
      return incompatible(fmt::format("FLYWHEEL_ISA={} but this CPU ({}) has {} at most: unset it or name a lower one",
                                      forced, machine.cpu_name, isa_name(machine.hardware_isa)));
    }
    machine.isa = *isa;
  }
  return machine;
}

}  // namespace flywheel
