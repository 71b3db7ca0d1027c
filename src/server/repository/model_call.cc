// SPDX-License-Identifier: Apache-2.0
#include "server/repository/model_call.h"

#include <utility>

namespace flywheel::repository {

void call_model(const ModelTable& table, std::string_view name, int64_t version, schedule::RequestPtr request) {
  const Result<ServedModelPtr> model = table.find(name, version);
  const Status status = model.is_ok() ? (*model)->prepare(*request) : model.status();
  if (!status.is_ok()) {
    request->respond({.status = status, .reason = schedule::FailureReason::kOther});
    return;
  }
  // The version serves until it has answered.
  request->on_response = [model = *model, answer = std::move(request->on_response)](schedule::InferRequest& answered,
                                                                                    schedule::InferResponse response) {
    answer(answered, std::move(response));
  };
  (*model)->infer(std::move(request));
}

}  // namespace flywheel::repository
