// SPDX-License-Identifier: Apache-2.0
// A Python interpreter that runs process.py: started with the connection's other end, ended with all that it started.
// It is killed by the kernel when the thread that started it ends, hence also with the server. Owned by the thread that
// watches it. Threads: one.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "flywheel/status.h"

namespace flywheel::python {

// Where the interpreter is: `environment`/bin/python3, or python3 in the server's PATH when `environment` is empty.
Result<std::string> find_interpreter(const std::string& environment);

class ChildProcess {
 public:
  // `process_fd` becomes the child's and is closed here.
  static Result<ChildProcess> start(const std::string& interpreter, const std::string& environment, int process_fd);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // kills

  pid_t pid() const { return pid_; }
  // Readable when the process has ended; -1 where the kernel has none.
  int exit_fd() const { return exit_fd_; }
  // Whether it has ended; how is in describe_exit().
  bool has_ended();
  // Kills it and its group, and returns when it is gone.
  void kill();
  // "was ended by signal 11 (Segmentation fault)"; "exited with status 3".
  std::string describe_exit() const;

 private:
  ChildProcess(pid_t pid, int exit_fd) : pid_(pid), exit_fd_(exit_fd) {}
  pid_t pid_;
  int exit_fd_;
  bool reaped_ = false;
  int status_ = 0;
};

}  // namespace flywheel::python
