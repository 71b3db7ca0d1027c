// SPDX-License-Identifier: Apache-2.0
// The fields of a model configuration that are understood but not honoured, each with what to do instead. A field is
// either in this list or has an effect; nothing is ignored in silence, and a test holds the list against the schema.
// Thread safety: pure functions.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <span>
#include <string>
#include <string_view>

#include "flywheel/status.h"

namespace flywheel::config {

struct RefusedField {
  std::string_view field;  // "ModelConfig.sequence_batching": the message's name within the package, and the field's
  std::string_view why_and_remedy;
};
std::span<const RefusedField> refused_fields();

// The first field set in `message` that is refused, as an error with its path and, if `locations` is given, its line.
Status check_refused_fields(const google::protobuf::Message& message,
                            const google::protobuf::TextFormat::ParseInfoTree* locations, std::string_view file);

}  // namespace flywheel::config
