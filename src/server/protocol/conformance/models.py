# SPDX-License-Identifier: Apache-2.0
"""The repository that the cases ask: Python models, which both servers run."""
import os

IDENTITY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", request.inputs()[0].as_numpy())]) for request in requests]
"""
FAIL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("the model says no")) for _ in requests]
"""
REPEAT = """
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
"""
# Gives back what it is told of a sequence.
STEPS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            seen = [float(pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0]) for name in ("x", "START", "END", "READY", "ID")]
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array([seen], np.float32))]))
        return responses
"""
CONTROLS = """max_sequence_idle_microseconds: 60000000 control_input [
  { name: "START" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] },
  { name: "END" control [{ kind: CONTROL_SEQUENCE_END fp32_false_true: [2, 3] }] },
  { name: "READY" control [{ kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] }] },
  { name: "ID" control [{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 }] }]"""


def config(datatype, columns, more=""):
    return f"""backend: "python" max_batch_size: 8 {more}
input {{ name: "x" data_type: TYPE_{"STRING" if datatype == "BYTES" else datatype} dims: [ {columns} ] }}
output {{ name: "y" data_type: TYPE_{"STRING" if datatype == "BYTES" else datatype} dims: [ {columns} ] LABELS }}
"""


def write_models(folder, types):
    def write(name, text, code, labels=False):
        os.makedirs(f"{folder}/{name}/1")
        with open(f"{folder}/{name}/config.pbtxt", "w") as file:
            file.write(text.replace("LABELS", 'label_filename: "labels.txt"' if labels else ""))
        with open(f"{folder}/{name}/1/model.py", "w") as file:
            file.write(code)
        if labels:
            with open(f"{folder}/{name}/labels.txt", "w") as file:
                file.write("cat\ndog\nbird\nfish\n")

    write("echo", config("FP32", 4, "dynamic_batching { }"), IDENTITY)
    write("spare", config("FP32", 4), IDENTITY)
    write("labels", config("FP32", 4), IDENTITY, labels=True)
    write("fail", config("FP32", 4), FAIL)
    for datatype in types:
        write(f"echo_{datatype.lower()}", config(datatype, 2), IDENTITY)
    write("repeat", """backend: "python" model_transaction_policy { decoupled: true }
input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }""", REPEAT)
    write("text", """backend: "python"
input { name: "text" data_type: TYPE_STRING dims: [ 1 ] } output { name: "y" data_type: TYPE_STRING dims: [ 1 ] }""", IDENTITY)
    for strategy, text in (("direct", "direct { }"), ("oldest", "oldest { max_candidate_sequences: 4 }")):
        write(f"steps_{strategy}", f"""backend: "python" max_batch_size: 4 sequence_batching {{ {CONTROLS} {text} }}
input {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }} output {{ name: "y" data_type: TYPE_FP32 dims: [ 5 ] }}""", STEPS)
    for name, second in (("chain", "labels"), ("chain_fails", "fail"), ("chain_repeats", "repeat")):
        batch, dims = ("", -1) if second == "repeat" else ("max_batch_size: 8", 4)
        first = "" if second == "repeat" else \
            '{ model_name: "echo" model_version: -1 input_map { key: "x" value: "in" } output_map { key: "y" value: "between" } },'
        write(name, f"""platform: "ensemble" {batch} input {{ name: "in" data_type: TYPE_FP32 dims: [ {dims} ] }}
output [ {{ name: "out" data_type: TYPE_FP32 dims: [ {1 if second == "repeat" else 4} ] }} ]
ensemble_scheduling {{ step [ {first}
{{ model_name: "{second}" model_version: 1 input_map {{ key: "x" value: "{"between" if first else "in"}" }} output_map {{ key: "y" value: "out" }} }} ] }}""", "")
    return ["steps_direct", "steps_oldest", "chain", "chain_fails", "chain_repeats", "echo", "labels", "fail", "repeat", "text"] + [f"echo_{datatype.lower()}" for datatype in types]
