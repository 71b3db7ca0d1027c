// SPDX-License-Identifier: Apache-2.0
// One instance of a model: gathers the rows of a batch's requests into the engine's inputs, runs the engine, and gives
// each request its rows of the outputs. A single request is read from where it was received; outputs are not copied,
// the requests of a batch share them. Owned by the model's scheduler, which calls from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "flywheel/engine.h"
#include "server/backend/engine/buffer_pool.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_executor.h"

namespace flywheel::engines {

class ModelInstance : public schedule::BatchExecutor {
 public:
  // REQUIRES: `config` was completed from this engine; requests come as check_request leaves them.
  static Result<std::unique_ptr<ModelInstance>> create(std::shared_ptr<const Engine> engine,
                                                       const config::ModelConfig& config, int threads,
                                                       std::shared_ptr<BufferPool> pool);
  Status execute(schedule::Batch& batch) override;

 private:
  struct InputBinding {
    size_t config_index = 0;
    std::vector<int64_t> client_dims, model_dims;  // without the batch; -1 is any size
    size_t element_bytes = 0;
    bool ragged = false;                         // rows of any sizes, laid end to end
    std::optional<config::BatchInput> computed;  // from the input at config_index; not sent by clients
    AlignedBuffer staging;
  };
  struct OutputBinding {
    std::string name;
    bool offered = false;  // named by the configuration
    config::DataType data_type = config::DataType::kInvalid;
    std::vector<int64_t> client_dims, model_dims;
    size_t element_bytes = 0;
    std::shared_ptr<std::byte> data;
    std::vector<int64_t> client_shape;  // of the batch
    size_t row_bytes = 0;
    std::optional<size_t> scattered_by;  // cut into requests by the shapes of that input of the configuration
  };

  ModelInstance(std::string name, std::unique_ptr<ExecutionContext> context, bool batched,
                std::shared_ptr<BufferPool> pool)
      : name_(std::move(name)), context_(std::move(context)), batched_(batched), pool_(std::move(pool)) {}

  Status run(std::span<schedule::BatchItem> items, int64_t rows, schedule::Batch& batch);
  Status gather(InputBinding& binding, int engine_input, std::span<const schedule::BatchItem> items, int64_t rows);
  Status compute(InputBinding& binding, int engine_input, std::span<const schedule::BatchItem> items);
  Status copy_rows(InputBinding& binding, std::span<const schedule::BatchItem> items, size_t wanted);
  Status prepare_output(OutputBinding& binding, int engine_output, int64_t rows);
  Status scatter(std::span<schedule::BatchItem> items);

  const std::string name_;
  const std::unique_ptr<ExecutionContext> context_;
  const bool batched_;
  const std::shared_ptr<BufferPool> pool_;
  std::vector<InputBinding> inputs_;         // in the engine's order
  std::vector<OutputBinding> outputs_;       // likewise
  std::vector<size_t> offered_;              // indices of outputs_, in the configuration's order
  std::vector<const void*> input_pointers_;  // of the running batch
  std::vector<void*> output_pointers_;
};

}  // namespace flywheel::engines
