// SPDX-License-Identifier: Apache-2.0
// A model repository on disk, as Triton lays it out: <repository>/<model>/[config.pbtxt][labels]/<version>/<file>. Only
// reading; the model loader and the repository call these from their loading threads.
// Thread safety: pure functions of the file system's state.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "flywheel/status.h"

namespace flywheel::repository {

// Every model's folders, one for each repository that has it: more than one is an error of the user's. A repository
// that does not exist is an error; hidden folders are no models.
Result<std::map<std::string, std::vector<std::string>>> find_models(const std::vector<std::string>& repositories);

// The version folders, ascending. Names that are no numbers or begin with a zero are none, as in Triton.
Result<std::vector<int64_t>> find_versions(const std::string& model_folder);

// What changes when a file below the folder is written, replaced, added or removed, but for engines that the server
// keeps beside ONNX files, and but for `ignored`, a name in the folder itself.
std::string state_of_files(const std::string& folder, std::string_view ignored = {});

// config.pbtxt's text; empty when there is none.
Result<std::string> read_config_file(const std::string& model_folder);

// One label a line.
Result<std::vector<std::string>> read_labels(const std::string& path);

// Model names are folder names, so a request's name must not lead out of the repository; and text, UTF-8 without
// control characters.
bool is_model_name(std::string_view name);

}  // namespace flywheel::repository
