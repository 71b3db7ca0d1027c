// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>

#include "soak/traffic.h"

namespace flywheel::soak {
namespace {

constexpr std::string_view kVectors =
    "backend: \"soak\"\n"
    "input { name: \"x\" data_type: TYPE_FP32 dims: [4] }\n"
    "output { name: \"y\" data_type: TYPE_FP32 dims: [4] }\n";

constexpr std::string_view kSums = R"(backend: "soak"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
instance_group { count: 2 kind: KIND_CPU }
sequence_batching {
  max_sequence_idle_microseconds: 4000000
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
  state { input_name: "sum_in" output_name: "sum_out" data_type: TYPE_FP32 dims: [1] initial_state { name: "zero" data_type: TYPE_FP32 dims: [1] zero_data: true } }
)";

constexpr std::string_view kPipeline = R"(platform: "ensemble"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [4] }
output { name: "y" data_type: TYPE_FP32 dims: [4] }
ensemble_scheduling {
  step { model_name: "steady" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "twice" } }
  step { model_name: "stage" model_version: -1 input_map { key: "x" value: "twice" } output_map { key: "y" value: "y" } }
}
)";

constexpr std::string_view kRepeat = R"(backend: "python"
model_transaction_policy { decoupled: true }
input { name: "x" data_type: TYPE_FP32 dims: [-1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
)";
constexpr std::string_view kRepeatCode = R"(
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for value in request.inputs()[0].as_numpy():
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array([value], np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
)";

}  // namespace

std::vector<std::string> write_models(const std::string& folder, const std::string& backend, const std::string& network,
                                      bool has_python) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, const std::string& config) {
    fs::create_directories(folder + "/" + name + "/1");
    std::ofstream(folder + "/" + name + "/config.pbtxt") << config;
    if (config.starts_with("backend: \"soak\""))
      fs::copy_file(backend, folder + "/" + name + "/libflywheel_soak.so", fs::copy_options::overwrite_existing);
    names.push_back(name);
  };
  const std::string batched = std::string(kVectors) + "max_batch_size: 8\n";
  const std::string two = "instance_group { count: 2 kind: KIND_CPU }\n";
  add("steady",
      batched + two + "dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 100 }\n");
  add("stage", batched + "dynamic_batching {}\n");
  add("swapped", batched + two + "dynamic_batching {}\n");
  add("leaving", batched + "dynamic_batching {}\n");
  add("slow",
      batched + two +
          "input { name: \"wait_us\" data_type: TYPE_INT32 dims: [1] }\n"
          "dynamic_batching { priority_levels: 2 default_priority_level: 2 default_queue_policy { max_queue_size: 16 "
          "default_timeout_microseconds: 5000 allow_timeout_override: true } }\n");
  add("cached", batched + "dynamic_batching {}\nresponse_cache { enable: true }\n");
  add("direct_sums", std::string(kSums) + "  direct {}\n}\n");
  add("oldest_sums", std::string(kSums) + "  oldest { max_candidate_sequences: 8 }\n}\n");
  add("pipeline", std::string(kPipeline));
  add("digits", "");
  fs::copy_file(network, folder + "/digits/1/model.onnx", fs::copy_options::overwrite_existing);
  if (has_python) {
    add("repeat", std::string(kRepeat));
    std::ofstream(folder + "/repeat/1/model.py") << kRepeatCode;
  }
  return names;
}

}  // namespace flywheel::soak
