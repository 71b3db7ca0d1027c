// SPDX-License-Identifier: Apache-2.0
// The JSON that describes the server and its models: metadata, statistics and the repository's index.
// Thread safety: pure functions of their arguments.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/repository/model_table.h"
#include "server/repository/served_model.h"

namespace flywheel::http {

// What the server can do beyond the protocol's core, by the names that clients know.
std::span<const std::string_view> server_extensions();
std::string server_metadata_json(std::string_view name, std::string_view version);
// `versions`: those that are ready, or the one that was asked for.
std::string model_metadata_json(const repository::ServedModel& model, std::span<const int64_t> versions);
std::string statistics_json(std::span<const repository::ServedModelPtr> models);
std::string index_json(std::span<const repository::IndexRow> rows);

}  // namespace flywheel::http
