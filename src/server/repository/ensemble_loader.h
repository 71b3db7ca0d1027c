// SPDX-License-Identifier: Apache-2.0
// Loads ensembles: they have no files, only models that have to be there. The repository calls it from its loading
// threads. Thread safety: pure functions over the table.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/repository/model_table.h"
#include "server/repository/served_model.h"
#include "server/schedule/response_cache.h"

namespace flywheel::repository {

// `table` has to outlive the model. `cache`: null without one.
Result<std::unique_ptr<ServedModel>> load_ensemble(const config::ModelConfig& parsed, const std::string& model_folder,
                                                   int64_t version, const ModelTable& table,
                                                   const std::shared_ptr<schedule::ResponseCache>& cache);

// The models of an ensemble's steps, each once; none for any other model.
std::vector<std::string> step_models(const config::ModelConfig& config);

// Models in the order in which they may stop: none while one of an earlier group may still need it.
std::vector<std::vector<ServedModelPtr>> stop_order(const std::vector<ServedModelPtr>& models);

}  // namespace flywheel::repository
