/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the server and native backends: shared libraries that run models in their own way. C, so that
 * any language can make one; versioned, so that a library goes on working with later servers.
 *
 * A model with `backend: "NAME"` in its config.pbtxt is run by libflywheel_NAME.so, looked for in the version's folder,
 * the model's folder, and the server's --backend-directory (there also in NAME/). The library exports one function,
 * flywheel_backend_entry. The server calls what it returns like this, for each version of each model:
 *
 *   open_model            once, from a loading thread
 *   create_instance       as often as instance_group says
 *     execute             of one instance: from one thread at a time, any number of times; instances run side by side
 *   destroy_instance      after the last execute
 *   close_model           after the last destroy_instance
 *
 * What a function is given is valid until it returns, and no longer. A function that fails returns a code other than
 * FLYWHEEL_OK and may write why, with its final zero, into `error`, which has FLYWHEEL_ERROR_BYTES. A library runs
 * inside of the server: what it breaks is broken for all models. It must not throw through these functions.
 *
 * `size_bytes` of a structure says how much of it the other side knows: later versions only add at the end. */
#ifndef FLYWHEEL_BACKEND_H_
#define FLYWHEEL_BACKEND_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLYWHEEL_BACKEND_ABI_VERSION 1
#define FLYWHEEL_ERROR_BYTES 1024

enum {
  FLYWHEEL_OK = 0,
  FLYWHEEL_INVALID_ARGUMENT = 1, /* the request or the configuration is wrong */
  FLYWHEEL_NOT_FOUND = 2,
  FLYWHEEL_UNSUPPORTED = 3,
  FLYWHEEL_UNAVAILABLE = 4, /* later it may work */
  FLYWHEEL_OUT_OF_MEMORY = 5,
  FLYWHEEL_INTERNAL = 6
};

/* Element types; the numbers are those of the inference protocols. Strings are elements of a 32-bit little-endian
 * length and as many bytes. */
enum {
  FLYWHEEL_TYPE_BOOL = 1,
  FLYWHEEL_TYPE_UINT8 = 2,
  FLYWHEEL_TYPE_UINT16 = 3,
  FLYWHEEL_TYPE_UINT32 = 4,
  FLYWHEEL_TYPE_UINT64 = 5,
  FLYWHEEL_TYPE_INT8 = 6,
  FLYWHEEL_TYPE_INT16 = 7,
  FLYWHEEL_TYPE_INT32 = 8,
  FLYWHEEL_TYPE_INT64 = 9,
  FLYWHEEL_TYPE_FP16 = 10,
  FLYWHEEL_TYPE_FP32 = 11,
  FLYWHEEL_TYPE_FP64 = 12,
  FLYWHEEL_TYPE_STRING = 13,
  FLYWHEEL_TYPE_BF16 = 14
};

enum { FLYWHEEL_LOG_VERBOSE = 0, FLYWHEEL_LOG_INFO = 1, FLYWHEEL_LOG_WARNING = 2, FLYWHEEL_LOG_ERROR = 3 };

typedef struct flywheel_tensor {
  const char* name;
  uint32_t data_type;
  uint32_t rank;
  const int64_t* shape; /* with the batch dimension, when the model has one */
  const void* data;     /* not to be written to; of any alignment */
  uint64_t size_bytes;
} flywheel_tensor;

typedef struct flywheel_request flywheel_request;

/* What the server does for a backend. Lives as long as the library is loaded. */
typedef struct flywheel_host {
  uint32_t abi_version;
  uint32_t size_bytes;
  void (*log)(int level, const char* text);

  /* Of a request, during execute. Inputs come in the configuration's order; optional ones may be missing. */
  const char* (*request_id)(const flywheel_request* request);
  uint32_t (*input_count)(const flywheel_request* request);
  const flywheel_tensor* (*input)(const flywheel_request* request, uint32_t index); /* NULL beyond the last */
  const flywheel_tensor* (*find_input)(const flywheel_request* request, const char* name);
  int (*is_cancelled)(const flywheel_request* request);
  /* Whether the client asks for the output; what it does not ask for need not be made. */
  int (*wants_output)(const flywheel_request* request, const char* name);

  /* Memory for an output of the response, 64-byte aligned and not initialised, to be filled before execute returns.
   * NULL when there is none, or the output is none of the configuration's or was added before. */
  void* (*add_output)(flywheel_request* request, const char* name, uint32_t data_type, const int64_t* shape,
                      uint32_t rank, uint64_t size_bytes);
  /* The request fails, the others of its batch do not. */
  void (*fail)(flywheel_request* request, int code, const char* message);
} flywheel_host;

typedef struct flywheel_model_info {
  uint32_t size_bytes;
  const char* name;
  int64_t version;
  const char* model_folder;
  const char* version_folder;
  const char* config_json; /* the completed configuration */
} flywheel_model_info;

typedef struct flywheel_instance_info {
  uint32_t size_bytes;
  const char* name;
  int32_t index;
} flywheel_instance_info;

typedef struct flywheel_backend {
  uint32_t abi_version; /* FLYWHEEL_BACKEND_ABI_VERSION of the header that the library was compiled with */
  uint32_t size_bytes;
  int (*open_model)(const flywheel_model_info* info, void** model, char* error);
  void (*close_model)(void* model);
  int (*create_instance)(void* model, const flywheel_instance_info* info, void** instance, char* error);
  void (*destroy_instance)(void* instance);
  /* A batch, in no particular order and not concatenated. A code other than FLYWHEEL_OK fails all of it. */
  int (*execute)(void* instance, flywheel_request* const* requests, uint32_t count, char* error);
} flywheel_backend;

/* The library's one export. NULL: it cannot work with this server. Called once after the library is loaded. */
const flywheel_backend* flywheel_backend_entry(const flywheel_host* host);

#ifdef __cplusplus
}
#endif

#endif /* FLYWHEEL_BACKEND_H_ */
