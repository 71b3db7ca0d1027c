// SPDX-License-Identifier: Apache-2.0
// Arrays by name become the inputs of an execution context: names, types and shapes are checked, shapes set, outputs
// allocated. Used by the verbs that run engines.
// Holds memory that the context's runs read and write: keep it as long as they go on. One thread.
#pragma once

#include <string>
#include <vector>

#include "cli/npz.h"
#include "flywheel/engine.h"

namespace flywheel::cli {

struct BoundArrays {
  std::vector<Array> inputs, outputs;  // in the engine's order
  std::vector<const void*> input_pointers;
  std::vector<void*> output_pointers;

  std::string describe_inputs(const Engine& engine) const;  // "x f32 8x3x224x224, mask i64 8x128"
  std::string describe_outputs(const Engine& engine) const;
};

// kInvalidArgument lists every input that is absent, of another type, or unknown to the engine.
Result<BoundArrays> bind_arrays(ExecutionContext& context, ArrayMap arrays);

// `inputs.npz` and `NAME=FILE.npy`, either of which may be absent.
Result<ArrayMap> read_inputs(const std::string& npz_path, const std::vector<std::string>& named_files);

// Inputs to measure with: floats are normal random numbers (always the same), integers and booleans 1, which is a valid
// index and an open mask. `shapes` holds "NAME:8x3x224x224"; inputs that it leaves out have the profile's opt shape,
// but for dims that share a symbol with one of `shapes`.
Result<ArrayMap> make_inputs(const Engine& engine, const std::vector<std::string>& shapes);

}  // namespace flywheel::cli
