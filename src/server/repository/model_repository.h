// SPDX-License-Identifier: Apache-2.0
// The models that the server serves: found in one or more folders, loaded at start, and by request in explicit mode or
// as their folders change in poll mode.
// A model that is loaded again is swapped in when all its new versions are ready, and the old ones answer what they
// have accepted; if the new ones fail, the old ones stay. Owned by the server. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "flywheel/status.h"
#include "server/repository/folder_watch.h"
#include "server/repository/load_order.h"
#include "server/repository/load_queue.h"
#include "server/repository/model_loader.h"
#include "server/repository/model_table.h"
#include "server/repository/sent_files.h"
#include "server/schedule/arbiter.h"

namespace flywheel::repository {

enum class ControlMode : uint8_t {
  kNone,      // all models at start, no changes
  kExplicit,  // those named at start, others by request
  kPoll,      // all models at start, then as their folders change
};

struct RepositoryOptions {
  std::vector<std::string> paths;
  ControlMode control_mode = ControlMode::kNone;
  std::vector<std::string> load_at_start;  // explicit mode; "*": all
  int64_t poll_interval_ms = 15'000;       // poll mode
  int64_t poll_settle_ms = 1'000;          // a folder that changed is left alone until it has not for so long
  bool strict_readiness = true;            // not ready while any model is not
  int load_threads = 4;
  int cores = 1;  // that models may use together
  // Batches that run side by side, each on its share of the cores. 0: as many as the largest instance count that any
  // model's configuration asks for.
  int execution_slots = 0;
  LoaderOptions loader;  // threads and arbiter are filled in
};

// What a load request brings in place of what the repository has.
struct LoadOverrides {
  std::optional<std::string> config_json;    // instead of config.pbtxt
  std::map<std::string, std::string> files;  // instead of the model's folder: content by path; needs config_json
};

class ModelRepository {
 public:
  using Done = std::function<void(Status)>;

  explicit ModelRepository(RepositoryOptions options);
  ~ModelRepository();  // stops
  ModelRepository(const ModelRepository&) = delete;
  ModelRepository& operator=(const ModelRepository&) = delete;

  // Begins to load what is to be loaded at start, and returns.
  void start();
  // Until that is done. A failure names each model that did not load, and why.
  Status wait_until_started() const;

  // See ModelTable.
  Result<ServedModelPtr> find(std::string_view name, int64_t version = -1) const { return table_.find(name, version); }
  const ModelTable& table() const { return table_; }
  bool is_ready() const;
  std::vector<IndexRow> index(bool ready_only) const { return table_.index(ready_only); }

  // Explicit mode only, with Triton's text otherwise. `done` is called once, from any thread, when the new versions
  // serve or the old ones remain.
  void load(const std::string& name, LoadOverrides overrides, Done done);
  // An ensemble's models that do not serve are loaded before it.
  // `done` is called when no new request reaches the model; those accepted are still answered. `with_steps`: the models
  // that an ensemble is made of go too.
  void unload(const std::string& name, Done done, bool with_steps = false);

  // Not ready from now on; models answer all they have, at most for `grace_ns`, and refuse the rest. Ends loading.
  void stop(int64_t grace_ns);

 private:
  class Reaper;
  void choose_execution_slots();
  void start_loading(const std::map<std::string, std::vector<std::string>>& found);
  // Loads one of a set, then those that waited for it.
  using LoadOne = std::function<void(const std::string& name, Status problem)>;
  void load_in_order(const std::vector<std::string>& names, std::shared_ptr<LoadOrder> order, LoadOne load);
  std::vector<std::string> needs_of(const std::string& name, const std::optional<std::string>& config_json) const;
  // The models, and those that they need and that are neither among them nor ready.
  std::vector<std::string> with_missing_steps(const std::vector<std::string>& names,
                                              const LoadOrder::Needs& needs) const;
  void poll();
  // And what is made of them.
  void load_changed(std::vector<std::string> changed);
  // `sent`: the model's files, if they came with the request.
  Status load_now(const std::string& name, const std::optional<std::string>& config_json,
                  const std::shared_ptr<SentFiles>& sent = nullptr);
  Status unload_now(const std::string& name);
  Result<std::string> folder_of(const std::string& name) const;
  Result<config::ModelConfig> read_config(const std::string& name, const std::string& folder,
                                          const std::optional<std::string>& config_json) const;
  Result<std::unique_ptr<ServedModel>> load_version(const config::ModelConfig& parsed, const std::string& folder,
                                                    int64_t version);
  Status load_versions(const std::string& name, const std::string& folder, const config::ModelConfig& parsed,
                       const std::vector<int64_t>& versions, const std::shared_ptr<SentFiles>& sent);
  Status fail_model(const std::string& name, const Status& status);
  Status check_control_mode() const;

  RepositoryOptions options_;
  std::unique_ptr<schedule::DeviceArbiter> arbiter_;
  std::unique_ptr<ModelLoader> loader_;
  ModelTable table_;
  std::shared_ptr<Reaper> reaper_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex start_mutex_;
  mutable std::condition_variable start_changed_;
  int loads_at_start_ = -1;  // unfinished; -1: start() was not called
  std::string start_failures_;
  FolderWatch watch_;  // the polling thread's
  std::mutex poll_mutex_;
  std::condition_variable poll_wake_;
  bool poll_ended_ = false;
  std::thread poll_thread_;
  std::unique_ptr<LoadQueue> queue_;  // last: its threads use all of the above
};

}  // namespace flywheel::repository
