// SPDX-License-Identifier: Apache-2.0
// Fuzz target: model configurations, as config.pbtxt (first byte even) or as the JSON of a load request. Any text must
// give a configuration or a reasoned refusal; one that is accepted is completed for a model of the next byte's choice,
// and its JSON has to give the same configuration again.
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/backend/written_description.h"
#include "server/config/config_test_data.h"
#include "server/config/parse_config.h"
#include "server/config/server_tensors.h"
#include "server/ensemble/graph.h"

namespace {

using namespace flywheel;  // NOLINT(google-build-using-namespace): a program of one file

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

void refused(const Status& status) {
  require(!status.message().empty() && status.code() != Code::kInternal, "a refusal without a reason");
}

void try_ensemble(const config::ModelConfig& parsed) {
  const Result<config::ModelConfig> whole = config::complete_ensemble(parsed);
  if (!whole.is_ok()) return refused(whole.status());
  static const config::ModelConfig step = [] {
    config::ModelConfig made;
    made.name = "step";
    made.max_batch_size = 8;
    made.inputs = {{"x", config::DataType::kFp32, {-1}, {}, {}}};
    made.outputs = {{"y", config::DataType::kFp32, {-1}, {}, {}}};
    return made;
  }();
  const auto graph = ensemble::build_graph(
      *whole, [](std::string_view, int64_t) -> Result<const config::ModelConfig*> { return &step; });
  if (!graph.is_ok()) return refused(graph.status());
  require(graph->outputs.size() == whole->outputs.size(), "an ensemble's outputs");
  (void)graph->needed_steps({whole->outputs.front().name});
}

void try_model(const config::ModelConfig& parsed, const config::ModelDescription& model) {
  const Result<config::ModelConfig> completed = config::complete_config(parsed, model);
  if (!completed.is_ok()) return refused(completed.status());
  (void)config::with_server_tensors(*completed);
  (void)completed->version_policy.select({3, 1, 2});
  const std::string json = config::config_to_json(*completed);
  if (json.find("\\ufffd") != std::string::npos) return;  // a text that is not UTF-8 is changed by JSON
  Result<config::ModelConfig> again = config::parse_config_json(json, completed->name);
  require(again.is_ok(), "not read again: " + json + "\n" + (again.is_ok() ? "" : again.status().message()));
  again->max_batch_size_given = true;
  const Result<config::ModelConfig> whole = config::complete_config(*again, model);
  require(whole.is_ok(), "not completed again: " + json + "\n" + (whole.is_ok() ? "" : whole.status().message()));
  require(config::config_to_json(*whole) == json, "changed by its JSON: " + json);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static google::protobuf::LogHandler* const silenced = google::protobuf::SetLogHandler(nullptr);
  (void)silenced;
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Result<config::ModelConfig> parsed =
      data[0] % 2 == 0 ? config::parse_config(text, "config.pbtxt", "m") : config::parse_config_json(text, "m");
  if (!parsed.is_ok()) {
    refused(parsed.status());
    return 0;
  }
  if (parsed->ensemble) {
    try_ensemble(*parsed);
    return 0;
  }
  if (data[1] % 3 == 0) try_model(*parsed, config::image_model());
  if (data[1] % 3 == 1) try_model(*parsed, config::text_model());
  if (data[1] % 3 == 2) try_model(*parsed, backend::describe_as_written(*parsed));
  return 0;
}
