// SPDX-License-Identifier: Apache-2.0
// From text to a checked configuration, in two steps, because what to load is in the text and what the text leaves out
// is in the model: parse_config, then complete_config. The repository calls both; the protocols call config_to_json.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/config/model_description.h"

namespace flywheel::config {

// Protobuf text format, as in config.pbtxt. `file` is named in errors, with line and column. `model_name` is the
// model's folder: the text may leave `name` out, but not name another. An empty text is a configuration that leaves all
// out. Refuses unknown fields, and those that this version cannot honour, by name and with the remedy. The result is as
// written: no defaults are filled in but the version policy's, which is needed to choose what to load.
Result<ModelConfig> parse_config(std::string_view text, std::string_view file, std::string_view model_name);

// The same from JSON, as the repository API's load request carries it.
Result<ModelConfig> parse_config_json(std::string_view json, std::string_view model_name);

struct CompletionOptions {
  // False: inputs, outputs and max_batch_size must be in the text, as with --disable-auto-complete-config.
  bool auto_complete = true;
};

// Fills in what was left out, checks everything, and checks it against the model.
Result<ModelConfig> complete_config(const ModelConfig& parsed, const ModelDescription& model,
                                    const CompletionOptions& options = {});

// An ensemble has no model to complete it from: its text says everything. Checks it by itself. `decoupled`: what its
// steps make of it.
Result<ModelConfig> complete_ensemble(const ModelConfig& parsed, bool decoupled = false);

// Every field with its original name, defaults included, 64-bit integers as numbers; map keys are strings.
std::string config_to_json(const ModelConfig& config);

// Whether two configurations as written are the same but for instance_group and version_policy.
bool differ_in_instances_alone(const ModelConfig& a, const ModelConfig& b);

}  // namespace flywheel::config
