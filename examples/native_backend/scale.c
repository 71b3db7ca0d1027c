/* SPDX-License-Identifier: Apache-2.0 */
/* A native backend, complete: y = factor * x, for any number of FP32 inputs and outputs side by side. The factor is the
 * number in the file scale.txt of the version's folder. To try it:
 *
 *   cc -shared -fPIC -O2 -I include -o libflywheel_scale.so examples/native_backend/scale.c
 *
 * and in a repository: twice/config.pbtxt, twice/libflywheel_scale.so, twice/1/scale.txt with
 *
 *   backend: "scale"  max_batch_size: 8  dynamic_batching {}
 *   input { name: "x" data_type: TYPE_FP32 dims: [4] }  output { name: "y" data_type: TYPE_FP32 dims: [4] } */
#include <stdio.h>
#include <stdlib.h>

#include "flywheel/backend.h"

static const flywheel_host* host;

struct model {
  float factor;
};

static int open_model(const flywheel_model_info* info, void** out, char* error) {
  char path[4096];
  FILE* file;
  struct model* model;
  snprintf(path, sizeof path, "%s/scale.txt", info->version_folder);
  file = fopen(path, "r");
  if (file == NULL) {
    snprintf(error, FLYWHEEL_ERROR_BYTES, "cannot read '%.900s'", path);
    return FLYWHEEL_NOT_FOUND;
  }
  model = malloc(sizeof *model);
  if (model == NULL || fscanf(file, "%f", &model->factor) != 1) {
    snprintf(error, FLYWHEEL_ERROR_BYTES, "'%.900s' holds no number", path);
    free(model);
    fclose(file);
    return FLYWHEEL_INVALID_ARGUMENT;
  }
  fclose(file);
  *out = model;
  return FLYWHEEL_OK;
}

static void close_model(void* model) { free(model); }

/* What an instance alone needs (a stream, scratch memory) would be made here. This one needs nothing. */
static int create_instance(void* model, const flywheel_instance_info* info, void** instance, char* error) {
  (void)error;
  host->log(FLYWHEEL_LOG_VERBOSE, info->name);
  *instance = model;
  return FLYWHEEL_OK;
}

static void destroy_instance(void* instance) { (void)instance; }

static int execute(void* instance, flywheel_request* const* requests, uint32_t count, char* error) {
  const struct model* model = instance;
  uint32_t i;
  uint64_t j;
  (void)error;
  for (i = 0; i < count; ++i) {
    const flywheel_tensor* x = host->find_input(requests[i], "x");
    const float* from;
    float* to;
    if (x == NULL || x->data_type != FLYWHEEL_TYPE_FP32) {
      host->fail(requests[i], FLYWHEEL_INVALID_ARGUMENT, "the input x must be FP32");
      continue;
    }
    if (!host->wants_output(requests[i], "y")) continue;
    to = host->add_output(requests[i], "y", x->data_type, x->shape, x->rank, x->size_bytes);
    if (to == NULL) {
      host->fail(requests[i], FLYWHEEL_OUT_OF_MEMORY, "no memory for the output y");
      continue;
    }
    from = x->data;
    for (j = 0; j < x->size_bytes / sizeof(float); ++j) to[j] = model->factor * from[j];
  }
  return FLYWHEEL_OK;
}

const flywheel_backend* flywheel_backend_entry(const flywheel_host* server) {
  static const flywheel_backend backend = {FLYWHEEL_BACKEND_ABI_VERSION, sizeof(flywheel_backend), open_model, close_model,
                                           create_instance, destroy_instance, execute};
  host = server;
  return &backend;
}
