// SPDX-License-Identifier: Apache-2.0
// `flywheel serve` as a process of its own: started, watched from outside through /proc, and ended. Owned by soak.cc's
// main; one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "flywheel/status.h"

namespace flywheel::soak {

// What a process holds that must not grow.
struct Holdings {
  int64_t memory_kb = 0;  // resident
  int64_t threads = 0;
  int64_t files = 0;
  int64_t segments = 0;  // of shared memory, clients' and models', among the files
};

class ServerProcess {
 public:
  // It keeps its log, and temporary files in temporary/, in this folder.
  explicit ServerProcess(const std::string& folder) : folder_(folder), log_path_(folder + "/server.log") {}
  ~ServerProcess();  // kills it if it still runs
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Until it says that all models are ready.
  Status start(const std::string& program, const std::vector<std::string>& flags, int timeout_s);
  uint16_t http_port() const { return port("listening for HTTP on "); }
  uint16_t grpc_port() const { return port("listening for gRPC on "); }
  uint16_t metrics_port() const { return port("metrics at "); }
  bool runs();
  Holdings look() const;
  // Asks it to end; fails when it does not in time, or ends with anything but 0.
  Status stop(int timeout_s);
  std::string log() const;
  int64_t count_temporary_files() const;

 private:
  uint16_t port(const std::string& before) const;

  const std::string folder_, log_path_;
  pid_t process_ = -1;
  int exit_status_ = 0;
};

}  // namespace flywheel::soak
