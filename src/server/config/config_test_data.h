// SPDX-License-Identifier: Apache-2.0
// Models that the tests of this folder share.
#pragma once

#include "server/config/model_description.h"

namespace flywheel::config {

// An image classifier: a dynamic batch of up to 8, fixed images, ten scores.
inline ModelDescription image_model() {
  ModelDescription model;
  model.inputs = {{"image", DataType::kFp32, {-1, 3, 28, 28}}};
  model.outputs = {{"scores", DataType::kFp32, {-1, 10}}};
  model.max_batch_size = 8;
  return model;
}

// A text model: two inputs of variable length, one scalar a row.
inline ModelDescription text_model() {
  ModelDescription model;
  model.inputs = {{"ids", DataType::kInt64, {-1, -1}}, {"mask", DataType::kInt64, {-1, -1}}};
  model.outputs = {{"score", DataType::kFp32, {-1}}, {"hidden", DataType::kFp32, {-1, -1, 16}}};
  model.max_batch_size = 32;
  return model;
}

}  // namespace flywheel::config
