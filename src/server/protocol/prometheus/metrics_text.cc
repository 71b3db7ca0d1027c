// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/prometheus/metrics_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>
#include <vector>

namespace flywheel::prometheus {
namespace {

using repository::ServedModel;
using schedule::StatisticsSnapshot;

std::string escape_label(std::string_view value) {
  std::string escaped;
  for (char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

struct ModelRow {
  const ServedModel* model = nullptr;
  StatisticsSnapshot statistics;
  std::string labels;  // model="m",version="1"
};

class TextWriter {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(out(), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class Value>
  void sample(std::string_view labels, Value value, std::string_view suffix = {}) {
    if (labels.empty()) {
      fmt::format_to(out(), "{}{} {}\n", name_, suffix, value);
    } else {
      fmt::format_to(out(), "{}{}{{{}}} {}\n", name_, suffix, labels, value);
    }
  }
  // Bucket counts are those of each bucket alone; the format wants them summed up.
  template <class Bounds, class Histogram>
  void histogram(const std::string& labels, const Bounds& bounds, const Histogram& histogram, double divisor) {
    uint64_t seen = 0;
    for (size_t i = 0; i < bounds.size(); ++i) {
      seen += histogram.counts[i];
      sample(fmt::format("{},le=\"{}\"", labels, static_cast<double>(bounds[i]) / divisor), seen, "_bucket");
    }
    sample(labels + ",le=\"+Inf\"", histogram.count, "_bucket");
    sample(labels, histogram.sum / divisor, "_sum");
    sample(labels, histogram.count, "_count");
  }
  std::string take() { return std::move(text_); }

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }
  std::string text_;
  std::string name_;
};

uint64_t to_us(uint64_t ns) { return ns / 1000; }

void per_model(TextWriter& writer, const std::vector<ModelRow>& rows, std::string_view name, std::string_view type,
               std::string_view help, const std::function<double(const ModelRow&)>& value) {
  writer.family(name, type, help);
  for (const ModelRow& row : rows) writer.sample(row.labels, value(row));
}

void write_triton_counters(TextWriter& writer, const std::vector<ModelRow>& rows) {
  auto counter = [&](std::string_view name, std::string_view help, auto value) {
    writer.family(name, "counter", help);
    for (const ModelRow& row : rows) writer.sample(row.labels, value(row.statistics));
  };
  using S = const StatisticsSnapshot&;
  counter("nv_inference_request_success", "Number of successful inference requests, all batch sizes",
          [](S s) { return s.success.count; });
  writer.family("nv_inference_request_failure", "counter", "Number of failed inference requests, all batch sizes");
  for (const ModelRow& row : rows) {
    for (const auto reason : {schedule::FailureReason::kRejected, schedule::FailureReason::kCanceled,
                              schedule::FailureReason::kBackend, schedule::FailureReason::kOther}) {
      writer.sample(fmt::format("{},reason=\"{}\"", row.labels, failure_reason_name(reason)),
                    row.statistics.failures[static_cast<size_t>(reason)]);
    }
  }
  counter("nv_inference_count", "Number of inferences performed (does not include cached requests)",
          [](S s) { return s.inference_count; });
  counter("nv_inference_exec_count", "Number of model executions performed (does not include cached requests)",
          [](S s) { return s.execution_count; });
  counter("nv_inference_request_duration_us",
          "Cumulative inference request duration in microseconds (includes cached requests)",
          [](S s) { return to_us(s.success.ns); });
  counter("nv_inference_queue_duration_us",
          "Cumulative inference queuing duration in microseconds (includes cached requests)",
          [](S s) { return to_us(s.queue.ns); });
  counter("nv_inference_compute_input_duration_us",
          "Cumulative compute input duration in microseconds (does not include cached requests)",
          [](S s) { return to_us(s.compute_input.ns); });
  counter("nv_inference_compute_infer_duration_us",
          "Cumulative compute inference duration in microseconds (does not include cached requests)",
          [](S s) { return to_us(s.compute_infer.ns); });
  counter("nv_inference_compute_output_duration_us",
          "Cumulative inference compute output duration in microseconds (does not include cached requests)",
          [](S s) { return to_us(s.compute_output.ns); });
  auto cached = [&](std::string_view name, std::string_view help, auto value) {
    writer.family(name, "counter", help);
    for (const ModelRow& row : rows) {
      if (row.model->config().response_cache) writer.sample(row.labels, value(row.statistics));
    }
  };
  cached("nv_cache_num_hits_per_model", "Number of cache hits per model", [](S s) { return s.cache_hit.count; });
  cached("nv_cache_num_misses_per_model", "Number of cache misses per model", [](S s) { return s.cache_miss.count; });
  cached("nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds",
         [](S s) { return to_us(s.cache_hit.ns); });
  cached("nv_cache_miss_duration_per_model", "Total cache miss duration per model, in microseconds",
         [](S s) { return to_us(s.cache_miss.ns); });
  writer.family("nv_inference_pending_request_count", "gauge",
                "Instantaneous number of pending requests awaiting execution per-model.");
  for (const ModelRow& row : rows) writer.sample(row.labels, row.statistics.pending_requests);
  per_model(writer, rows, "nv_model_load_duration_secs", "gauge", "Model load time in seconds",
            [](const ModelRow& row) { return row.model->load_seconds(); });
}

void write_own_model_metrics(TextWriter& writer, const std::vector<ModelRow>& rows) {
  constexpr double kUs = 1e6;
  auto histogram = [&](std::string_view name, std::string_view help, const auto& bounds, auto member, double divisor) {
    writer.family(name, "histogram", help);
    for (const ModelRow& row : rows) writer.histogram(row.labels, bounds, row.statistics.*member, divisor);
  };
  histogram("flywheel_batch_size", "Rows of each executed batch", schedule::kBatchSizeBounds,
            &StatisticsSnapshot::batch_size, 1);
  histogram("flywheel_request_duration_seconds", "From a request's receipt to its answer, whatever the answer",
            schedule::kLatencyBoundsUs, &StatisticsSnapshot::request_latency_us, kUs);
  histogram("flywheel_queue_duration_seconds", "From a successful request's receipt to its batch",
            schedule::kLatencyBoundsUs, &StatisticsSnapshot::queue_latency_us, kUs);
  histogram("flywheel_compute_duration_seconds", "Of each executed batch: input, inference and output",
            schedule::kLatencyBoundsUs, &StatisticsSnapshot::compute_latency_us, kUs);
  writer.family("flywheel_batch_dispatch_total", "counter", "Batches by what made them leave the queue");
  for (const ModelRow& row : rows) {
    for (size_t i = 0; i < schedule::kDispatchReasons; ++i) {
      const auto reason = static_cast<schedule::DispatchReason>(i);
      writer.sample(fmt::format("{},reason=\"{}\"", row.labels, dispatch_reason_name(reason)),
                    row.statistics.dispatches[i]);
    }
  }
  writer.family("flywheel_executing_batches", "gauge", "Batches being executed now");
  for (const ModelRow& row : rows) writer.sample(row.labels, row.statistics.executing_batches);
  writer.family("flywheel_model_instances", "gauge", "Instances of the model");
  for (const ModelRow& row : rows) writer.sample(row.labels, row.model->config().instance_count());
  writer.family("flywheel_model_memory_bytes", "gauge", "Memory of the model by use; weights are mapped and shared");
  for (const ModelRow& row : rows) {
    const backend::ModelMemory memory = row.model->memory();
    const uint64_t instances = static_cast<uint64_t>(row.model->config().instance_count());
    writer.sample(row.labels + ",use=\"weights\"", memory.weights_bytes);
    writer.sample(row.labels + ",use=\"arena\"", memory.arena_bytes * instances);
    writer.sample(row.labels + ",use=\"workspace\"", memory.workspace_bytes * instances);
  }
}

void write_http_metrics(TextWriter& writer, const http::HttpCounts& http, bool ready) {
  auto one = [&](std::string_view name, std::string_view type, std::string_view help, uint64_t value) {
    writer.family(name, type, help);
    writer.sample({}, value);
  };
  one("flywheel_server_ready", "gauge", "1 when the server answers that it is ready", ready ? 1 : 0);
  one("flywheel_http_connections_accepted_total", "counter", "Connections accepted", http.connections_accepted);
  one("flywheel_http_connections_refused_total", "counter", "Connections refused beyond the limit",
      http.connections_refused);
  one("flywheel_http_connections_open", "gauge", "Connections open now", http.connections_open);
  one("flywheel_http_requests_total", "counter", "HTTP requests received whole", http.requests);
  one("flywheel_http_requests_in_flight", "gauge", "HTTP requests received and not yet answered", http.in_flight);
  writer.family("flywheel_http_responses_total", "counter", "HTTP answers by class of status");
  writer.sample("code=\"2xx\"", http.responses_2xx);
  writer.sample("code=\"4xx\"", http.responses_4xx);
  writer.sample("code=\"5xx\"", http.responses_5xx);
  one("flywheel_http_parse_errors_total", "counter", "Requests that are not HTTP", http.parse_errors);
  one("flywheel_http_timeouts_total", "counter", "Connections closed because their client was too slow", http.timeouts);
  one("flywheel_http_disconnects_total", "counter", "Clients that left before their request or answer was whole",
      http.disconnects);
  one("flywheel_http_received_bytes_total", "counter", "Bytes received", http.received_bytes);
  one("flywheel_http_sent_bytes_total", "counter", "Bytes sent", http.sent_bytes);
  one("flywheel_http_body_bytes", "gauge", "Memory held by request bodies now", http.body_bytes);
  one("flywheel_http_answer_bytes", "gauge", "Memory held by large answers that are not sent yet", http.answer_bytes);
}

void write_grpc_metrics(TextWriter& writer, const grpc::GrpcCounts& grpc) {
  auto one = [&](std::string_view name, std::string_view type, std::string_view help, uint64_t value) {
    writer.family(name, type, help);
    writer.sample({}, value);
  };
  one("flywheel_grpc_connections_accepted_total", "counter", "gRPC connections accepted", grpc.connections_accepted);
  one("flywheel_grpc_connections_refused_total", "counter", "gRPC connections refused beyond the limit",
      grpc.connections_refused);
  one("flywheel_grpc_connections_open", "gauge", "gRPC connections open now", grpc.connections_open);
  one("flywheel_grpc_calls_total", "counter", "gRPC calls begun", grpc.calls);
  one("flywheel_grpc_calls_in_flight", "gauge", "gRPC calls begun and not yet answered", grpc.in_flight);
  writer.family("flywheel_grpc_responses_total", "counter", "gRPC calls answered, by status");
  for (size_t i = 0; i < grpc::kStatusCodes; ++i) {
    writer.sample(fmt::format("code=\"{}\"", status_code_name(static_cast<grpc::StatusCode>(i))),
                  grpc.calls_by_status[i]);
  }
  one("flywheel_grpc_calls_abandoned_total", "counter", "gRPC calls that clients cancelled or left unanswered",
      grpc.calls_abandoned);
  one("flywheel_grpc_messages_received_total", "counter", "gRPC messages received", grpc.messages_received);
  one("flywheel_grpc_messages_sent_total", "counter", "gRPC messages sent", grpc.messages_sent);
  one("flywheel_grpc_protocol_errors_total", "counter", "Connections that do not speak HTTP/2, or flood",
      grpc.protocol_errors);
  one("flywheel_grpc_timeouts_total", "counter", "gRPC calls or connections ended because their client was too slow",
      grpc.timeouts);
  one("flywheel_grpc_received_bytes_total", "counter", "Bytes received over gRPC", grpc.received_bytes);
  one("flywheel_grpc_sent_bytes_total", "counter", "Bytes sent over gRPC", grpc.sent_bytes);
  one("flywheel_grpc_message_bytes", "gauge", "Memory held by gRPC messages now", grpc.message_bytes);
}

// Of the machine, as Triton gives them.
void write_memory_metrics(TextWriter& writer) {
  std::ifstream file("/proc/meminfo");
  std::map<std::string, uint64_t> fields;
  std::string key, unit;
  uint64_t value = 0;
  while (file >> key >> value) {
    std::getline(file, unit);
    fields[key] = value * 1024;
  }
  if (!fields.contains("MemTotal:") || !fields.contains("MemAvailable:")) return;
  writer.family("nv_cpu_memory_total_bytes", "gauge", "CPU total memory (RAM), in bytes");
  writer.sample({}, fields["MemTotal:"]);
  writer.family("nv_cpu_memory_used_bytes", "gauge", "CPU used memory (RAM), in bytes");
  writer.sample({}, fields["MemTotal:"] - fields["MemAvailable:"]);
}

}  // namespace

std::string render_metrics(const MetricsInput& input) {
  std::vector<ModelRow> rows;
  for (const repository::ServedModelPtr& model : input.models) {
    ModelRow row{model.get(), model->statistics().snapshot(), {}};
    for (const auto& [key, value] : model->config().metric_tags) {
      fmt::format_to(std::back_inserter(row.labels), "_{}=\"{}\",", key, escape_label(value));
    }
    fmt::format_to(std::back_inserter(row.labels), "model=\"{}\",version=\"{}\"", escape_label(model->name()),
                   model->version());
    rows.push_back(std::move(row));
  }
  TextWriter writer;
  write_triton_counters(writer, rows);
  write_own_model_metrics(writer, rows);
  write_http_metrics(writer, input.http, input.ready);
  write_grpc_metrics(writer, input.grpc);
  write_memory_metrics(writer);
  return writer.take();
}

}  // namespace flywheel::prometheus
