/* SPDX-License-Identifier: Apache-2.0 */
/* The native backend of the soak's models: y = factor * x, FP32, where `factor` is a parameter of the model and 2 when
 * it is left out. A model may have more:
 *   START and sum_in   y = sum_out = x + (START ? 0 : sum_in), for sequences with implicit state
 *   wait_us            INT32: the batch takes at least so long
 * A negative x[0] fails its request. Threads: the server's; nothing is shared but the host. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "flywheel/backend.h"

static const flywheel_host* host;

struct model {
  float factor;
};

static int open_model(const flywheel_model_info* info, void** out, char* error) {
  const char* parameter = strstr(info->config_json, "\"factor\"");
  const char* digits = parameter == NULL ? NULL : strpbrk(parameter, "0123456789");
  struct model* model = malloc(sizeof *model);
  if (model == NULL) {
    snprintf(error, FLYWHEEL_ERROR_BYTES, "no memory for the model");
    return FLYWHEEL_OUT_OF_MEMORY;
  }
  model->factor = digits == NULL ? 2.0F : strtof(digits, NULL);
  *out = model;
  return FLYWHEEL_OK;
}

static void close_model(void* model) { free(model); }

static int create_instance(void* model, const flywheel_instance_info* info, void** instance, char* error) {
  (void)info;
  (void)error;
  *instance = model;
  return FLYWHEEL_OK;
}

static void destroy_instance(void* instance) { (void)instance; }

static void run(const struct model* model, flywheel_request* request) {
  const flywheel_tensor* x = host->find_input(request, "x");
  const flywheel_tensor* start = host->find_input(request, "START");
  const flywheel_tensor* sum_in = host->find_input(request, "sum_in");
  float first = 0;
  float* y;
  uint64_t i;
  if (x != NULL && x->size_bytes >= sizeof first) memcpy(&first, x->data, sizeof first);
  if (x == NULL || first < 0) {
    host->fail(request, FLYWHEEL_INVALID_ARGUMENT, "x must not begin with a negative number");
    return;
  }
  y = host->add_output(request, "y", x->data_type, x->shape, x->rank, x->size_bytes);
  if (y == NULL) {
    host->fail(request, FLYWHEEL_OUT_OF_MEMORY, "no memory for the output y");
    return;
  }
  memcpy(y, x->data, x->size_bytes);
  if (start != NULL && sum_in != NULL) {
    float sum;
    int32_t starts;
    memcpy(&sum, sum_in->data, sizeof sum);
    memcpy(&starts, start->data, sizeof starts);
    y[0] += starts ? 0 : sum;
    float* sum_out = host->add_output(request, "sum_out", x->data_type, x->shape, x->rank, x->size_bytes);
    if (sum_out != NULL) memcpy(sum_out, y, x->size_bytes);
    return;
  }
  for (i = 0; i < x->size_bytes / sizeof(float); ++i) y[i] *= model->factor;
}

static int execute(void* instance, flywheel_request* const* requests, uint32_t count, char* error) {
  int32_t longest_us = 0;
  uint32_t i;
  (void)error;
  for (i = 0; i < count; ++i) {
    const flywheel_tensor* wait = host->find_input(requests[i], "wait_us");
    int32_t us = 0;
    if (wait != NULL && wait->size_bytes >= sizeof us) memcpy(&us, wait->data, sizeof us);
    if (us > longest_us) longest_us = us;
    run(instance, requests[i]);
  }
  if (longest_us > 0) {
    const struct timespec time = {longest_us / 1000000, longest_us % 1000000 * 1000L};
    nanosleep(&time, NULL);
  }
  return FLYWHEEL_OK;
}

const flywheel_backend* flywheel_backend_entry(const flywheel_host* server) {
  static const flywheel_backend backend = {FLYWHEEL_BACKEND_ABI_VERSION, sizeof(flywheel_backend), open_model, close_model,
                                           create_instance, destroy_instance, execute};
  host = server;
  return &backend;
}
