// SPDX-License-Identifier: Apache-2.0
#include "soak/server_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace flywheel::soak {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);

}  // namespace

ServerProcess::~ServerProcess() {
  if (!runs()) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

Status ServerProcess::start(const std::string& program, const std::vector<std::string>& flags, int timeout_s) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string temporary = folder_ + "/temporary";
  std::error_code failed;
  std::filesystem::create_directories(temporary, failed);
  process_ = fork();
  if (process_ < 0) return unavailable("cannot start a process");
  if (process_ == 0) {
    const int log = open(log_path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0644);
    if (log >= 0) dup2(log, STDERR_FILENO);
    setenv("TMPDIR", temporary.c_str(), 1);
    execv(program.c_str(), arguments.data());
    _exit(127);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  while (log().find("all models are ready") == std::string::npos) {
    if (!runs()) return unavailable(fmt::format("'{}' ended before it was ready:\n{}", program, log()));
    if (std::chrono::steady_clock::now() > deadline)
      return unavailable(fmt::format("'{}' is not ready after {} s:\n{}", program, timeout_s, log()));
    std::this_thread::sleep_for(kPoll);
  }
  return {};
}

bool ServerProcess::runs() {
  if (process_ <= 0) return false;
  if (waitpid(process_, &exit_status_, WNOHANG) == 0) return true;
  process_ = -1;
  return false;
}

std::string ServerProcess::log() const {
  std::ifstream file(log_path_);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint16_t ServerProcess::port(const std::string& before) const {
  const std::string text = log();
  const size_t at = text.find(before);
  const size_t colon = at == std::string::npos ? at : text.find(':', text.find("127.0.0.1", at));
  return colon == std::string::npos ? uint16_t{0} : static_cast<uint16_t>(std::atoi(text.c_str() + colon + 1));
}

Holdings ServerProcess::look() const {
  Holdings seen;
  const std::string folder = fmt::format("/proc/{}/", process_);
  std::ifstream status(folder + "status");
  std::string word;
  while (status >> word) {
    if (word == "VmRSS:") status >> seen.memory_kb;
    if (word == "Threads:") status >> seen.threads;
  }
  std::error_code failed;
  for (auto it = std::filesystem::directory_iterator(folder + "fd", failed);
       it != std::filesystem::directory_iterator(); ++it) {
    const std::string target = std::filesystem::read_symlink(it->path(), failed).string();
    ++seen.files;
    if (target.starts_with("/dev/shm/") || target.starts_with("/memfd:")) ++seen.segments;
  }
  return seen;
}

int64_t ServerProcess::count_temporary_files() const {
  std::error_code failed;
  const std::filesystem::directory_iterator entries(folder_ + "/temporary", failed), end;
  return failed ? -1 : std::distance(entries, end);
}

Status ServerProcess::stop(int timeout_s) {
  if (!runs()) return internal_error(fmt::format("the server ended by itself, with status {:#x}", exit_status_));
  kill(process_, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  while (runs()) {
    if (std::chrono::steady_clock::now() > deadline)
      return Status(Code::kDeadlineExceeded, fmt::format("the server did not end within {} s", timeout_s));
    std::this_thread::sleep_for(kPoll);
  }
  if (exit_status_ == 0) return {};
  return internal_error(fmt::format("the server ended with status {:#x}", exit_status_));
}

}  // namespace flywheel::soak
