// SPDX-License-Identifier: Apache-2.0
#include "server/settings/tracer.h"

#include <fmt/format.h>

#include "server/config/json_writer.h"
#include "server/settings/trace_sink.h"

namespace flywheel::settings {
namespace {

constexpr size_t kMaxTensorBytes = 1 << 20;

template <class T>
void apply_change(const Change<T>& change, std::optional<T>& value) {
  if (change) value = *change;
}

Status check_setting(const TraceSetting& setting) {
  if (setting.level == kTraceOff) return {};
  const char* reason = setting.file.empty() ? "trace file name is not given, set it with --trace-config triton,file="
                       : setting.rate == 0  ? "sample rate must be non-zero"
                                            : nullptr;
  if (reason == nullptr) return {};
  return invalid_argument(std::string("Attempting to set invalid trace setting :") + reason);
}

}  // namespace

// A setting in force, with what was sampled under it.
struct ActiveTraceSetting {
  ActiveTraceSetting(TraceSetting values, std::shared_ptr<TraceSink> to)
      : setting(std::move(values)), sink(std::move(to)) {}

  const TraceSetting setting;
  const std::shared_ptr<TraceSink> sink;
  std::atomic<uint64_t> seen{0};
  std::atomic<int64_t> taken{0};
  std::atomic<uint64_t> recorded{0};

  bool take() {
    if (setting.level == kTraceOff) return false;
    if (seen.fetch_add(1, std::memory_order_relaxed) % setting.rate != setting.rate - 1) return false;
    if (setting.count < 0) return true;
    return taken.fetch_add(1, std::memory_order_relaxed) < setting.count;
  }
  void record(std::string records) {
    const uint64_t number = recorded.fetch_add(1, std::memory_order_relaxed);
    sink->append(
        setting.log_frequency == 0 ? setting.file : fmt::format("{}.{}", setting.file, number / setting.log_frequency),
        std::move(records));
  }
};

Trace::Trace(uint64_t id, uint8_t level, std::shared_ptr<ActiveTraceSetting> setting)
    : id_(id), level_(level), setting_(std::move(setting)) {}

Trace::~Trace() {
  if (!records_.empty()) setting_->record(std::move(records_));
}

std::string& Trace::next_record() {
  if (!records_.empty()) records_ += ',';
  return records_;
}

void Trace::set_request(std::string_view model_name, int64_t model_version, std::string_view request_id) {
  std::string& out = next_record();
  fmt::format_to(std::back_inserter(out), "{{\"id\":{},\"model_name\":", id_);
  config::append_json_string(out, model_name);
  fmt::format_to(std::back_inserter(out), ",\"model_version\":{}", model_version);
  if (!request_id.empty()) {
    out += ",\"request_id\":";
    config::append_json_string(out, request_id);
  }
  out += '}';
}

void Trace::stamp(std::string_view name, int64_t ns) {
  if (ns == 0 || (level_ & kTraceTimestamps) == 0) return;
  fmt::format_to(std::back_inserter(next_record()), "{{\"id\":{},\"timestamps\":[{{\"name\":\"{}\",\"ns\":{}}}]}}", id_,
                 name, ns);
}

void Trace::stamp(const schedule::Timeline& timeline) {
  stamp("REQUEST_START", timeline.received_ns);
  stamp("QUEUE_START", timeline.queued_ns);
  stamp("COMPUTE_START", timeline.batch_formed_ns);
  stamp("COMPUTE_INPUT_END", timeline.input_done_ns);
  stamp("COMPUTE_OUTPUT_START", timeline.compute_done_ns);
  stamp("COMPUTE_END", timeline.output_done_ns);
  stamp("REQUEST_END", timeline.output_done_ns);
}

void Trace::add_tensor(std::string_view activity, std::string_view name, config::DataType type,
                       std::span<const int64_t> shape, std::span<const std::byte> bytes) {
  if (!wants_tensors()) return;
  std::string data;
  if (bytes.size() > kMaxTensorBytes || !config::append_json_tensor(data, type, bytes).is_ok()) data.clear();
  std::string_view elements = data;
  if (elements.starts_with('[')) elements = elements.substr(1, elements.size() - 2);
  std::string& out = next_record();
  fmt::format_to(std::back_inserter(out), "{{\"id\":{},\"activity\":\"{}\",\"tensor\":{{\"name\":", id_, activity);
  config::append_json_string(out, name);
  out += ",\"data\":";
  config::append_json_string(out, elements);
  fmt::format_to(std::back_inserter(out), ",\"shape\":\"{}\",\"dtype\":\"{}\"}}}}", fmt::join(shape, ","),
                 config::protocol_name(type));
}

void Tracer::Specified::apply(const TraceChanges& changes) {
  apply_change(changes.level, level);
  apply_change(changes.rate, rate);
  apply_change(changes.count, count);
  apply_change(changes.log_frequency, log_frequency);
}

TraceSetting Tracer::Specified::over(TraceSetting fallback) const {
  fallback.level = level.value_or(fallback.level);
  fallback.rate = rate.value_or(fallback.rate);
  fallback.count = count.value_or(fallback.count);
  fallback.log_frequency = log_frequency.value_or(fallback.log_frequency);
  return fallback;
}

Tracer::Tracer(TraceSetting at_start) : at_start_(std::move(at_start)), sink_(std::make_shared<TraceSink>()) {
  std::lock_guard lock(mutex_);
  activate_locked();
}

Tracer::~Tracer() { sink_->flush(); }

Status Tracer::check(const TraceSetting& setting) { return check_setting(setting); }

TraceSetting Tracer::get(std::string_view model_name) const {
  std::lock_guard lock(mutex_);
  const TraceSetting global = global_.over(at_start_);
  const auto model = models_.find(model_name);
  return model == models_.end() ? global : model->second.over(global);
}

Status Tracer::update(std::string_view model_name, const TraceChanges& changes) {
  std::lock_guard lock(mutex_);
  if (model_name.empty()) {
    Specified changed = global_;
    changed.apply(changes);
    const TraceSetting global = changed.over(at_start_);
    FW_RETURN_IF_ERROR(check_setting(global));
    for (const auto& [name, model] : models_) {
      if (const Status status = check_setting(model.over(global)); !status.is_ok()) {
        return status.with_context("model '" + name + "', which falls back to this setting");
      }
    }
    global_ = changed;
  } else {
    const auto known = models_.find(model_name);
    Specified changed = known == models_.end() ? Specified() : known->second;
    changed.apply(changes);
    FW_RETURN_IF_ERROR(check_setting(changed.over(global_.over(at_start_))));
    if (!changed.none()) {
      models_.insert_or_assign(std::string(model_name), changed);
    } else if (known != models_.end()) {
      models_.erase(known);
    }
  }
  activate_locked();
  return {};
}

void Tracer::activate_locked() {
  const TraceSetting global = global_.over(at_start_);
  active_global_ = std::make_shared<ActiveTraceSetting>(global, sink_);
  bool any_on = global.level != kTraceOff;
  active_models_.clear();
  for (const auto& [name, model] : models_) {
    auto active = std::make_shared<ActiveTraceSetting>(model.over(global), sink_);
    any_on = any_on || active->setting.level != kTraceOff;
    active_models_.emplace(name, std::move(active));
  }
  any_on_.store(any_on, std::memory_order_relaxed);
}

TracePtr Tracer::sample_traced(std::string_view model_name) {
  std::shared_ptr<ActiveTraceSetting> active;
  {
    std::lock_guard lock(mutex_);
    const auto model = active_models_.find(model_name);
    active = model == active_models_.end() ? active_global_ : model->second;
  }
  if (!active->take()) return nullptr;
  const uint8_t level = active->setting.level;
  return std::make_unique<Trace>(next_id_.fetch_add(1, std::memory_order_relaxed), level, std::move(active));
}

void Tracer::flush() { sink_->flush(); }

}  // namespace flywheel::settings
