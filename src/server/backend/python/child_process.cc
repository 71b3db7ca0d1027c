// SPDX-License-Identifier: Apache-2.0
#include "server/backend/python/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "server/backend/python/process_source.h"

extern char** environ;

namespace flywheel::python {
namespace {

// Numbers that the child gets, whatever they are here.
constexpr int kConnectionFd = 3;
constexpr int kSourceFd = 4;
// Reads the program from its descriptor, so that nothing has to be installed beside the server.
constexpr const char* kBootstrap =
    "import os\n"
    "with os.fdopen(4, 'rb') as file: utils, source = file.read().split(b'\\0')\n"
    "exec(compile(source, '<flywheel>', 'exec'), {'__name__': '__main__', 'UTILS_SOURCE': utils})\n";

// A descriptor from which the program can be read.
Result<int> open_source() {
  const int fd = ::memfd_create("flywheel-process.py", MFD_CLOEXEC);
  if (fd < 0) return internal_error(fmt::format("cannot start a Python process: {}", std::strerror(errno)));
  const std::string text = std::string(kUtilsSource) + '\0' + std::string(kProcessSource);
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t size = ::write(fd, text.data() + written, text.size() - written);
    if (size <= 0) {
      ::close(fd);
      return internal_error(fmt::format("cannot start a Python process: {}", std::strerror(errno)));
    }
    written += static_cast<size_t>(size);
  }
  (void)::lseek(fd, 0, SEEK_SET);
  return fd;
}

std::vector<std::string> make_environment(const std::string& environment) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!environment.empty() &&
        (text.starts_with("PATH=") || text.starts_with("PYTHONHOME=") || text.starts_with("VIRTUAL_ENV=")))
      continue;
    variables.emplace_back(text);
  }
  if (!environment.empty()) {
    const char* path = std::getenv("PATH");
    variables.push_back(fmt::format("PATH={}/bin:{}", environment, path == nullptr ? "/usr/bin:/bin" : path));
    variables.push_back("VIRTUAL_ENV=" + environment);
  }
  return variables;
}

// Between fork and exec: nothing that allocates or locks.
[[noreturn]] void become_child(const char* interpreter, char* const* arguments, char* const* variables, int connection,
                               int source, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaction(signal, &standard, nullptr);
  // Out of the way first: either may have the other's number.
  const int high_connection = ::fcntl(connection, F_DUPFD, 16);
  const int high_source = ::fcntl(source, F_DUPFD, 16);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0 && null != 0) ::dup2(null, 0);
  if (high_connection < 0 || high_source < 0 || ::dup2(high_connection, kConnectionFd) < 0 ||
      ::dup2(high_source, kSourceFd) < 0)
    ::_exit(127);
  if (::syscall(SYS_close_range, kSourceFd + 1, ~0u, 0) != 0) {
    for (int fd = kSourceFd + 1; fd < 65536; ++fd) ::close(fd);
  }
  ::execve(interpreter, arguments, variables);
  ::_exit(127);
}

}  // namespace

Result<std::string> find_interpreter(const std::string& environment) {
  std::error_code ignored;
  if (!environment.empty()) {
    std::string path = environment + "/bin/python3";
    if (::access(path.c_str(), X_OK) == 0) return path;
    return not_found(fmt::format(
        "'{}' is not there: EXECUTION_ENV_PATH must be the folder of a Python environment (an archive has to "
        "be unpacked first)",
        path));
  }
  const char* variable = std::getenv("PATH");
  std::string_view folders = variable == nullptr ? "/usr/local/bin:/usr/bin:/bin" : variable;
  while (!folders.empty()) {
    const size_t end = std::min(folders.find(':'), folders.size());
    const std::string path = std::string(folders.substr(0, end)) + "/python3";
    if (::access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path, ignored)) return path;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return not_found(
      "there is no python3 in the PATH: install it, or name a Python environment with the parameter "
      "EXECUTION_ENV_PATH");
}

Result<ChildProcess> ChildProcess::start(const std::string& interpreter, const std::string& environment,
                                         int process_fd) {
  const Result<int> source = open_source();
  if (!source.is_ok()) {
    ::close(process_fd);
    return source.status();
  }
  std::vector<std::string> variables = make_environment(environment);
  std::vector<char*> variable_pointers;
  for (std::string& variable : variables) variable_pointers.push_back(variable.data());
  variable_pointers.push_back(nullptr);
  std::string program = interpreter, unbuffered = "-u", command = "-c", bootstrap = kBootstrap;
  char* const arguments[] = {program.data(), unbuffered.data(), command.data(), bootstrap.data(), nullptr};
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become_child(interpreter.c_str(), arguments, variable_pointers.data(), process_fd, *source, parent);
  const int error = errno;
  ::close(process_fd);
  ::close(*source);
  if (pid < 0) return internal_error(fmt::format("cannot start '{}': {}", interpreter, std::strerror(error)));
  const int exit_fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  return ChildProcess(pid, exit_fd);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      exit_fd_(std::exchange(other.exit_fd_, -1)),
      reaped_(other.reaped_),
      status_(other.status_) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) kill();
  if (exit_fd_ >= 0) ::close(exit_fd_);
}

bool ChildProcess::has_ended() {
  if (reaped_) return true;
  // Not reaped yet: as long as it is not, nobody else can get its number, nor its group's.
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return true;
  return info.si_pid == pid_;
}

void ChildProcess::kill() {
  if (reaped_) return;
  // The group first, while the process, dead or alive, holds its number.
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {}
  reaped_ = true;
}

std::string ChildProcess::describe_exit() const {
  if (WIFSIGNALED(status_))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status_), ::strsignal(WTERMSIG(status_)));
  return fmt::format("exited with status {}", WEXITSTATUS(status_));
}

}  // namespace flywheel::python
