// SPDX-License-Identifier: Apache-2.0
#include "server/repository/model_repository.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <set>
#include <utility>

#include "base/log.h"
#include "server/config/parse_config.h"
#include "server/repository/ensemble_loader.h"
#include "server/repository/model_call.h"
#include "server/repository/model_folder.h"

namespace flywheel::repository {
namespace {

constexpr std::string_view kDuplicate = "model appears in two or more repositories";
constexpr int64_t kReapGraceNs = 30'000'000'000;
constexpr std::chrono::seconds kLastUseTime(5);

// As Triton spells codes within the message of a failed load.
std::string_view triton_code(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "Invalid argument";
    case Code::kNotFound: return "Not found";
    case Code::kUnsupported: return "Unsupported";
    case Code::kUnavailable: return "Unavailable";
    case Code::kAlreadyExists: return "Already exists";
    default: return "Internal";
  }
}

Status load_failure(const std::string& name, const Status& reason) {
  return invalid_argument(fmt::format("failed to load '{}', {}", name, reason.message()));
}

std::string reason_of(const Status& status) {
  return fmt::format("{}: {}", triton_code(status.code()), status.message());
}

}  // namespace

// Ends versions that are served no more, once the last request of theirs is answered. That may be noticed on one of the
// version's own threads, which cannot wait for itself; hence a thread for it.
class ModelRepository::Reaper : public std::enable_shared_from_this<Reaper> {
 public:
  Reaper() : thread_([this] { run(); }) { pthread_setname_np(thread_.native_handle(), "fw-reaper"); }
  ~Reaper() { finish(); }

  // A pointer whose end comes here. `ended` is told when the version is gone.
  ServedModelPtr guard(std::unique_ptr<ServedModel> model, std::function<void(const ServedModel&)> ended) {
    {
      std::lock_guard lock(mutex_);
      ++guarded_;
    }
    return {model.release(), [reaper = shared_from_this(), ended = std::move(ended)](const ServedModel* last) {
              reaper->post({std::unique_ptr<const ServedModel>(last), ended});
            }};
  }
  // Waits for the last use of every version, which may be the end of an answer on the version's own thread, and ends
  // them. Those that somebody holds for too long must have been stopped before, and end where they are dropped.
  void finish() {
    std::thread thread;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      thread.swap(thread_);
    }
    wake_.notify_one();
    if (thread.joinable()) thread.join();
  }

 private:
  struct Item {
    std::unique_ptr<const ServedModel> model;
    std::function<void(const ServedModel&)> ended;
  };
  void post(Item item) {
    {
      std::lock_guard lock(mutex_);
      if (!ended_) {
        items_.push_back(std::move(item));
        wake_.notify_one();
        return;
      }
    }
    item.model.reset();
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stopping_ || !items_.empty(); });
      if (stopping_) wake_.wait_for(lock, kLastUseTime, [&] { return guarded_ == 0 || !items_.empty(); });
      if (items_.empty()) {
        ended_ = true;
        return;
      }
      std::vector<Item> items;
      items.swap(items_);
      lock.unlock();
      for (Item& item : items) {
        item.model->stop(kReapGraceNs);
        if (item.ended) item.ended(*item.model);
      }
      const size_t count = items.size();
      items.clear();
      lock.lock();
      guarded_ -= count;
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Item> items_;
  size_t guarded_ = 0;  // not ended yet
  bool stopping_ = false, ended_ = false;
  std::thread thread_;
};

ModelRepository::ModelRepository(RepositoryOptions options)
    : options_(std::move(options)),
      reaper_(std::make_shared<Reaper>()),
      watch_(options_.paths),
      queue_(std::make_unique<LoadQueue>(options_.load_threads)) {
  choose_execution_slots();
}

ModelRepository::~ModelRepository() {
  stop(0);
  table_.update([](ModelTable::Models& models) { models.clear(); });
  reaper_->finish();
}

void ModelRepository::choose_execution_slots() {
  int slots = options_.execution_slots;
  if (slots <= 0) {
    slots = 1;
    if (auto found = find_models(options_.paths); found.is_ok()) {
      for (const auto& [name, folders] : *found) {
        // A file that does not parse is reported when its model is loaded.
        auto text = read_config_file(folders.front());
        if (!text.is_ok()) continue;
        auto parsed = config::parse_config(*text, folders.front() + "/config.pbtxt", name);
        if (parsed.is_ok()) slots = std::max(slots, static_cast<int>(parsed->instance_count()));
      }
    }
  }
  slots = std::clamp(slots, 1, std::max(options_.cores, 1));
  arbiter_ = std::make_unique<schedule::DeviceArbiter>(slots);
  if (options_.loader.rate_limits.enabled) arbiter_->limit(options_.loader.rate_limits.resources);
  options_.loader.arbiter = arbiter_.get();
  options_.loader.threads = std::max(options_.cores / slots, 1);
  options_.loader.python.caller = [this](std::string_view name, int64_t version, schedule::RequestPtr request) {
    call_model(table_, name, version, std::move(request));
  };
  options_.loader.python.is_ready = [this](const std::string& name, int64_t version) {
    return table_.find(name, version).is_ok();
  };
  loader_ = std::make_unique<ModelLoader>(options_.loader);
}

void ModelRepository::start() {
  if (options_.control_mode == ControlMode::kPoll) watch_.adopt();
  Result<std::map<std::string, std::vector<std::string>>> found = find_models(options_.paths);
  {
    std::lock_guard lock(start_mutex_);
    loads_at_start_ = 0;
    if (!found.is_ok()) start_failures_ = found.status().message();
  }
  if (found.is_ok()) start_loading(*found);
  start_changed_.notify_all();
  if (options_.control_mode == ControlMode::kPoll) {
    poll_thread_ = std::thread([this] { poll(); });
    pthread_setname_np(poll_thread_.native_handle(), "fw-poll");
  }
}

void ModelRepository::poll() {
  bool is_unsettled = false;
  std::string last_problem;
  while (true) {
    {
      std::unique_lock lock(poll_mutex_);
      const std::chrono::milliseconds wait(is_unsettled ? options_.poll_settle_ms : options_.poll_interval_ms);
      if (poll_wake_.wait_for(lock, wait, [this] { return poll_ended_; })) return;
    }
    const Result<FolderWatch::Changes> changes = watch_.look();
    if (!changes.is_ok()) {
      // What serves goes on: a repository that is away for a moment is not one without models.
      if (changes.status().message() != last_problem) {
        last_problem = changes.status().message();
        log(LogLevel::kError, "failed to poll: {}", last_problem);
      }
      continue;
    }
    last_problem.clear();
    is_unsettled = changes->is_unsettled;
    for (const std::string& name : changes->removed) {
      queue_->post(name, [this, name] { (void)unload_now(name); });
    }
    if (!changes->changed.empty()) load_changed(changes->changed);
  }
}

void ModelRepository::load_changed(std::vector<std::string> changed) {
  const LoadOrder::Needs needs = [this](const std::string& name) { return needs_of(name, std::nullopt); };
  for (size_t i = 0; i < changed.size(); ++i) {
    for (const ServedModelPtr& model : table_.ready_models()) {
      const std::vector<std::string> steps = step_models(model->config());
      if (std::find(steps.begin(), steps.end(), changed[i]) == steps.end()) continue;
      if (std::find(changed.begin(), changed.end(), model->name()) == changed.end()) changed.push_back(model->name());
    }
  }
  auto order = std::make_shared<LoadOrder>(with_missing_steps(changed, needs), needs);
  load_in_order(order->first(), order, [this](const std::string& name, Status problem) {
    (void)(problem.is_ok() ? load_now(name, std::nullopt) : fail_model(name, problem));
  });
}

void ModelRepository::start_loading(const std::map<std::string, std::vector<std::string>>& found) {
  table_.update([&](ModelTable::Models& models) {
    for (const auto& [name, folders] : found) models[name] = {};
  });
  const std::vector<std::string>& wanted = options_.load_at_start;
  const bool all =
      options_.control_mode != ControlMode::kExplicit || std::find(wanted.begin(), wanted.end(), "*") != wanted.end();
  std::vector<std::string> names;
  if (all) {
    for (const auto& [name, folders] : found) names.push_back(name);
  } else {
    names = wanted;
  }
  // Each configuration is read once for this, whatever the number of models.
  std::map<std::string, std::vector<std::string>> known;
  const LoadOrder::Needs needs = [&](const std::string& name) {
    const auto at = known.find(name);
    if (at != known.end()) return at->second;
    std::vector<std::string> steps;
    if (const auto folders = found.find(name); folders != found.end()) {
      const Result<config::ModelConfig> parsed = read_config(name, folders->second.front(), std::nullopt);
      if (parsed.is_ok()) steps = step_models(*parsed);
    }
    return known[name] = steps;
  };
  names = with_missing_steps(names, needs);
  auto order = std::make_shared<LoadOrder>(names, needs);
  {
    std::lock_guard lock(start_mutex_);
    loads_at_start_ = static_cast<int>(order->size());
  }
  load_in_order(order->first(), order, [this](const std::string& name, Status problem) {
    const Status status = problem.is_ok() ? load_now(name, std::nullopt) : fail_model(name, problem);
    std::lock_guard done_lock(start_mutex_);
    if (!status.is_ok()) start_failures_ += (start_failures_.empty() ? "" : "; ") + status.message();
    --loads_at_start_;
    start_changed_.notify_all();
  });
}

void ModelRepository::load_in_order(const std::vector<std::string>& names, std::shared_ptr<LoadOrder> order,
                                    LoadOne load) {
  for (const std::string& name : names) {
    queue_->post(name, [this, name, order, load] {
      load(name, order->problem(name));
      load_in_order(order->after(name), order, load);
    });
  }
}

// What cannot be read is reported when the model is loaded.
std::vector<std::string> ModelRepository::needs_of(const std::string& name,
                                                   const std::optional<std::string>& config_json) const {
  const Result<std::string> folder = folder_of(name);
  if (!folder.is_ok() && !config_json) return {};
  const Result<config::ModelConfig> parsed = read_config(name, folder.is_ok() ? *folder : "", config_json);
  return parsed.is_ok() ? step_models(*parsed) : std::vector<std::string>();
}

std::vector<std::string> ModelRepository::with_missing_steps(const std::vector<std::string>& names,
                                                             const LoadOrder::Needs& needs) const {
  std::vector<std::string> all = names;
  std::set<std::string> known(names.begin(), names.end());
  for (size_t i = 0; i < all.size(); ++i) {
    for (const std::string& step : needs(all[i])) {
      if (!known.contains(step) && !table_.find(step, -1).is_ok() && folder_of(step).is_ok()) {
        known.insert(step);
        all.push_back(step);
      }
    }
  }
  return all;
}

Status ModelRepository::wait_until_started() const {
  std::unique_lock lock(start_mutex_);
  start_changed_.wait(lock, [&] { return loads_at_start_ == 0; });
  if (start_failures_.empty()) return {};
  return internal_error("failed to load all models: " + start_failures_);
}

bool ModelRepository::is_ready() const {
  if (stopping_.load(std::memory_order_acquire)) return false;
  {
    std::lock_guard lock(start_mutex_);
    if (loads_at_start_ != 0) return false;
    if (options_.strict_readiness && !start_failures_.empty() && table_.snapshot()->empty()) return false;
  }
  return !options_.strict_readiness || table_.all_ready();
}

Result<std::string> ModelRepository::folder_of(const std::string& name) const {
  if (!is_model_name(name)) return invalid_argument(fmt::format("'{}' is no model name", name));
  FW_ASSIGN_OR_RETURN(auto found, find_models(options_.paths));
  const auto model = found.find(name);
  if (model == found.end()) {
    return not_found(fmt::format("no model repository contains a folder '{}'", name));
  }
  if (model->second.size() > 1) return invalid_argument(std::string(kDuplicate));
  return model->second.front();
}

Result<config::ModelConfig> ModelRepository::read_config(const std::string& name, const std::string& folder,
                                                         const std::optional<std::string>& config_json) const {
  if (config_json) return config::parse_config_json(*config_json, name);
  FW_ASSIGN_OR_RETURN(const std::string text, read_config_file(folder));
  return config::parse_config(text, folder + "/config.pbtxt", name);
}

Status ModelRepository::fail_model(const std::string& name, const Status& status) {
  table_.update([&](ModelTable::Models& models) {
    ModelEntry& entry = models[name];
    const bool serves = std::any_of(entry.versions.begin(), entry.versions.end(),
                                    [](const auto& version) { return version.second.state == ModelState::kReady; });
    if (!serves) entry = {{}, reason_of(status)};
  });
  log(LogLevel::kError, "failed to load model '{}': {}", name, status.to_string());
  return load_failure(name, status);
}

Status ModelRepository::load_now(const std::string& name, const std::optional<std::string>& config_json,
                                 const std::shared_ptr<SentFiles>& sent) {
  Result<std::string> folder = sent != nullptr ? Result<std::string>(sent->folder()) : folder_of(name);
  if (!folder.is_ok()) return fail_model(name, folder.status());
  Result<config::ModelConfig> parsed = read_config(name, *folder, config_json);
  if (!parsed.is_ok()) return fail_model(name, parsed.status());
  Result<std::vector<int64_t>> versions = find_versions(*folder);
  if (!versions.is_ok()) return fail_model(name, versions.status());
  const std::vector<int64_t> selected = parsed->version_policy.select(*versions);
  if (selected.empty()) {
    return fail_model(name,
                      invalid_argument(fmt::format("at least one version must be available under the version policy of "
                                                   "model '{}': '{}' has {} version folders",
                                                   name, *folder, versions->size())));
  }
  return load_versions(name, *folder, *parsed, selected, sent);
}

// Whatever a model's files make the code below throw (no memory, no threads) is that model's failure.
Result<std::unique_ptr<ServedModel>> ModelRepository::load_version(const config::ModelConfig& parsed,
                                                                   const std::string& folder, int64_t version) {
  try {
    if (parsed.ensemble) return load_ensemble(parsed, folder, version, table_, options_.loader.cache);
    const Result<ServedModelPtr> previous = table_.find(parsed.name, version);
    return loader_->load(
        parsed, folder, version, [this] { return !stopping_.load(std::memory_order_acquire); },
        previous.is_ok() ? *previous : nullptr);
  } catch (const std::bad_alloc&) {
    return out_of_memory(fmt::format("there is not enough memory to load version {} of '{}'", version, parsed.name));
  } catch (const std::exception& error) {
    return internal_error(fmt::format("loading version {} of '{}': {}", version, parsed.name, error.what()));
  }
}

// All versions or none: a client that sees one new version sees all of them.
Status ModelRepository::load_versions(const std::string& name, const std::string& folder,
                                      const config::ModelConfig& parsed, const std::vector<int64_t>& versions,
                                      const std::shared_ptr<SentFiles>& sent) {
  table_.update([&](ModelTable::Models& models) {
    models[name].failure.clear();
    for (int64_t version : versions) {
      VersionEntry& entry = models[name].versions[version];
      if (entry.state != ModelState::kReady) entry = {ModelState::kLoading, {}, nullptr};
    }
  });
  std::map<int64_t, ServedModelPtr> loaded;
  std::map<int64_t, std::string> failures;
  Status failure;
  for (int64_t version : versions) {
    log(LogLevel::kInfo, "loading: {}:{}", name, version);
    Result<std::unique_ptr<ServedModel>> model = load_version(parsed, folder, version);
    if (!model.is_ok()) {
      log(LogLevel::kError, "failed to load '{}' version {}: {}", name, version, model.status().to_string());
      failures[version] = reason_of(model.status());
      failure = model.status();
      continue;
    }
    loaded[version] = reaper_->guard(std::move(model).value(), [this, sent](const ServedModel& ended) {
      log(LogLevel::kInfo, "successfully unloaded '{}' version {}", ended.name(), ended.version());
      table_.update([&](ModelTable::Models& models) {
        const auto entry = models.find(ended.name());
        if (entry == models.end()) return;
        const auto found = entry->second.versions.find(ended.version());
        // One that was replaced before says nothing of the one that is leaving now.
        if (found == entry->second.versions.end() || found->second.leaving != &ended) return;
        found->second = {ModelState::kUnavailable, std::string(kUnloadedReason), nullptr};
      });
    });
  }
  if (!failures.empty()) {
    table_.update([&](ModelTable::Models& models) {
      for (int64_t version : versions) {
        VersionEntry& entry = models[name].versions[version];
        if (entry.state == ModelState::kReady) continue;  // the old one goes on serving
        const auto reason = failures.find(version);
        entry = {ModelState::kUnavailable,
                 reason != failures.end() ? reason->second : std::string("not loaded, as another version failed to"),
                 nullptr};
      }
    });
    std::string text = fmt::format("load failed for model '{}':", name);
    for (const auto& [version, reason] : failures)
      text += fmt::format(" version {} is at UNAVAILABLE state: {};", version, reason);
    return {failure.code() == Code::kCancelled ? Code::kUnavailable : Code::kInvalidArgument, text};
  }
  table_.update([&](ModelTable::Models& models) {
    for (auto& [version, entry] : models[name].versions) {
      const auto fresh = loaded.find(version);
      if (fresh != loaded.end()) {
        entry = {ModelState::kReady, {}, fresh->second};
      } else if (entry.state == ModelState::kReady) {
        entry = {ModelState::kUnloading, {}, nullptr, entry.model.get()};
      } else if (entry.state != ModelState::kUnloading) {
        entry = {ModelState::kUnavailable, std::string(kUnloadedReason), nullptr};
      }
    }
  });
  for (int64_t version : versions) log(LogLevel::kInfo, "successfully loaded '{}' version {}", name, version);
  return {};
}

Status ModelRepository::unload_now(const std::string& name) {
  bool known = false;
  table_.update([&](ModelTable::Models& models) {
    const auto model = models.find(name);
    if (model == models.end()) return;
    known = true;
    model->second.failure.clear();
    for (auto& [version, entry] : model->second.versions) {
      if (entry.state == ModelState::kReady) {
        entry = {ModelState::kUnloading, {}, nullptr, entry.model.get()};
      } else if (entry.state != ModelState::kUnloading) {
        entry = {ModelState::kUnavailable, std::string(kUnloadedReason), nullptr};
      }
    }
  });
  if (!known) return not_found(fmt::format("failed to unload '{}': there is no such model", name));
  return {};
}

Status ModelRepository::check_control_mode() const {
  if (options_.control_mode == ControlMode::kExplicit) return {};
  return unavailable("explicit model load / unload is not allowed if polling is enabled");
}

void ModelRepository::load(const std::string& name, LoadOverrides overrides, Done done) {
  if (Status status = check_control_mode(); !status.is_ok()) return done(std::move(status));
  if (stopping_.load(std::memory_order_acquire)) return done(unavailable("Server exiting"));
  // Which models it needs is read on a loading thread.
  queue_->post(name, [this, name, overrides = std::move(overrides), done = std::move(done)] {
    const std::optional<std::string>& config_json = overrides.config_json;
    // A request that cannot be meant leaves no trace: clients may send any, and the server is as ready as before.
    auto refuse = [&](const Status& reason) {
      log(LogLevel::kWarning, "refused to load '{}': {}", name, reason.message());
      done(load_failure(name, reason));
    };
    std::shared_ptr<SentFiles> sent;
    if (!overrides.files.empty()) {
      if (!is_model_name(name)) return refuse(invalid_argument(fmt::format("'{}' is no model name", name)));
      if (!config_json) {
        return refuse(invalid_argument("files came with the request and no configuration: send 'config', too"));
      }
      Result<std::shared_ptr<SentFiles>> written = SentFiles::write(overrides.files);
      if (!written.is_ok()) return refuse(written.status());
      sent = std::move(written).value();
    } else if (const Result<std::string> folder = folder_of(name);
               !folder.is_ok() && !table_.snapshot()->contains(name)) {
      return refuse(folder.status());
    }
    const LoadOrder::Needs needs = [&](const std::string& model) {
      return needs_of(model, model == name ? config_json : std::nullopt);
    };
    const std::vector<std::string> all = with_missing_steps({name}, needs);
    if (all.size() == 1) return done(load_now(name, config_json, sent));
    auto order = std::make_shared<LoadOrder>(all, needs);
    load_in_order(order->first(), order,
                  [this, name, config_json, sent, done](const std::string& model, Status problem) {
                    const bool is_asked_for = model == name;
                    const Status status = !problem.is_ok() ? fail_model(model, problem)
                                          : is_asked_for   ? load_now(model, config_json, sent)
                                                           : load_now(model, std::nullopt);
                    if (is_asked_for) done(status);
                  });
  });
}

void ModelRepository::unload(const std::string& name, Done done, bool with_steps) {
  if (Status status = check_control_mode(); !status.is_ok()) return done(std::move(status));
  queue_->post(name, [this, name, with_steps, done = std::move(done)] {
    std::vector<std::string> steps;
    if (Result<ServedModelPtr> model = table_.find(name, -1); with_steps && model.is_ok())
      steps = step_models((*model)->config());
    const Status status = unload_now(name);
    for (const std::string& step : steps) (void)unload_now(step);
    done(status);
  });
}

void ModelRepository::stop(int64_t grace_ns) {
  stopping_.store(true, std::memory_order_release);
  {
    std::lock_guard lock(poll_mutex_);
    poll_ended_ = true;
  }
  poll_wake_.notify_all();
  if (poll_thread_.joinable()) poll_thread_.join();
  // Models that serve stop side by side, after what is made of them, while loading comes to its end.
  std::thread stopping([order = stop_order(table_.ready_models()), grace_ns] {
    const int64_t until_ns = schedule::monotonic_now_ns() + grace_ns;
    for (const std::vector<ServedModelPtr>& group : order) {
      std::vector<std::thread> stoppers;
      for (const ServedModelPtr& model : group) {
        stoppers.emplace_back(
            [model, until_ns] { model->stop(std::max<int64_t>(until_ns - schedule::monotonic_now_ns(), 0)); });
      }
      for (std::thread& stopper : stoppers) stopper.join();
    }
  });
  queue_->finish();
  stopping.join();
  // And those that were loaded in the meantime.
  for (const ServedModelPtr& model : table_.ready_models()) model->stop(grace_ns);
}

}  // namespace flywheel::repository
