# SPDX-License-Identifier: Apache-2.0
"""What is asked of a server, over HTTP and over gRPC, in this order, on a fresh one. conformance.py sends it."""
import gzip
import json
import struct
import zlib

import numpy as np


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def strings(*values):
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


ROW = [0.5, 1.5, 2.5, 3.5]
BINARY_OUT = {"parameters": {"binary_data": True}}

# By data type: two values as JSON has them, and as bytes.
TYPES = {
    "BOOL": ([True, False], b"\1\0"),
    "UINT8": ([0, 255], np.array([0, 255], np.uint8).tobytes()),
    "UINT16": ([0, 65535], np.array([0, 65535], np.uint16).tobytes()),
    "UINT32": ([0, 4294967295], np.array([0, 4294967295], np.uint32).tobytes()),
    "UINT64": ([0, 18446744073709551615], np.array([0, 2**64 - 1], np.uint64).tobytes()),
    "INT8": ([-128, 127], np.array([-128, 127], np.int8).tobytes()),
    "INT16": ([-32768, 32767], np.array([-32768, 32767], np.int16).tobytes()),
    "INT32": ([-2147483648, 2147483647], np.array([-2**31, 2**31 - 1], np.int32).tobytes()),
    "INT64": ([-9223372036854775808, 9223372036854775807], np.array([-2**63, 2**63 - 1], np.int64).tobytes()),
    "FP16": ([0.5, -2], np.array([0.5, -2], np.float16).tobytes()),
    "FP32": ([0.5, -2], np.array([0.5, -2], np.float32).tobytes()),
    "FP64": ([0.5, -2], np.array([0.5, -2], np.float64).tobytes()),
    "BYTES": (["text", ""], strings(b"text", b"")),
}


def tensor(name="x", shape=(1, 4), datatype="FP32", data=ROW, **more):
    out = {"name": name, "shape": list(shape), "datatype": datatype}
    if data is not None:
        out["data"] = data
    return {**out, **more}


def infer(*inputs, **more):
    return {"inputs": list(inputs) or [tensor()], **more}


def binary(header, *blobs, length=None):
    """An inference request whose tensors follow its JSON."""
    text = json.dumps(header).encode()
    return {"body": text + b"".join(blobs), "headers": {"Inference-Header-Content-Length": str(len(text) if length is None else length)}}


def http_cases():
    echo = "/v2/models/echo/infer"

    def get(name, path, **more):
        return {"name": name, "method": "GET", "path": path, **more}

    def post(name, path, body=b"", **more):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return {"name": name, "method": "POST", "path": path, "body": body, **more}

    yield get("live", "/v2/health/live")
    yield get("ready", "/v2/health/ready")
    yield get("server metadata", "/v2", only=["name", "version", "extensions"], types=True)
    yield get("unknown route", "/v2/nothing")
    yield get("unknown version of the protocol", "/v3")
    yield post("wrong method for health", "/v2/health/live")
    yield get("wrong method for infer", echo)
    yield get("model ready", "/v2/models/echo/ready")
    yield get("model version ready", "/v2/models/echo/versions/1/ready")
    yield get("unknown model ready", "/v2/models/none/ready")
    yield get("unknown version ready", "/v2/models/echo/versions/9/ready")
    yield get("model metadata", "/v2/models/echo")
    yield get("model version metadata", "/v2/models/echo/versions/1")
    yield get("unknown model metadata", "/v2/models/none")
    yield get("unknown version metadata", "/v2/models/echo/versions/9")
    yield get("version that is no number", "/v2/models/echo/versions/one")
    yield get("model configuration", "/v2/models/echo/config", only=["name", "backend", "max_batch_size", "input", "output", "version_policy", "dynamic_batching"])
    yield get("unknown model configuration", "/v2/models/none/config")
    yield get("statistics before", "/v2/models/echo/stats")
    yield get("statistics of an unknown model", "/v2/models/none/stats")
    yield post("index", "/v2/repository/index", sort=True)

    # Inference in JSON.
    yield post("infer", echo, infer())
    yield post("infer with an id", echo, infer(id="request-7"))
    yield post("infer with a version", "/v2/models/echo/versions/1/infer", infer())
    yield post("infer with an unknown version", "/v2/models/echo/versions/7/infer", infer())
    yield post("infer with an unknown model", "/v2/models/none/infer", infer())
    yield post("infer two rows", echo, infer(tensor(shape=(2, 4), data=ROW + ROW)))
    yield post("infer nested data", echo, infer(tensor(shape=(2, 4), data=[ROW, ROW])))
    yield post("infer whole numbers as floats", echo, infer(tensor(data=[1, 2, 3, 4])))
    yield post("infer with an output", echo, infer(outputs=[{"name": "y"}]))
    yield post("infer with an unknown output", echo, infer(outputs=[{"name": "z"}]))
    yield post("infer with an empty list of outputs", echo, infer(outputs=[]))
    yield post("infer with priority and timeout", echo, infer(parameters={"priority": 1, "timeout": 1000000}))
    yield post("infer with an own parameter", echo, infer(parameters={"mine": "yes"}))
    yield post("infer with a sequence id", echo, infer(parameters={"sequence_id": 7, "sequence_start": True}))
    yield post("unknown input", echo, infer(tensor(name="q")))
    yield post("an input too many", echo, infer(tensor(), tensor(name="q")))
    yield post("the same input twice", echo, infer(tensor(), tensor()))
    yield post("no inputs", echo, {"inputs": []})
    yield post("no member inputs", echo, {})
    yield post("wrong type", echo, infer(tensor(datatype="INT32", data=[1, 2, 3, 4])))
    yield post("unknown type", echo, infer(tensor(datatype="FP31")))
    yield post("wrong shape", echo, infer(tensor(shape=(1, 3), data=[1, 2, 3])))
    yield post("wrong rank", echo, infer(tensor(shape=(4,))))
    yield post("batch too large", echo, infer(tensor(shape=(9, 4), data=ROW * 9)))
    yield post("batch of zero", echo, infer(tensor(shape=(0, 4), data=[])))
    yield post("negative dim", echo, infer(tensor(shape=(-1, 4))))
    yield post("too few elements", echo, infer(tensor(data=[1, 2, 3])))
    yield post("too many elements", echo, infer(tensor(data=[1, 2, 3, 4, 5])))
    yield post("text where numbers belong", echo, infer(tensor(data=["a", "b", "c", "d"])))
    yield post("data that is no list", echo, infer(tensor(data=5)))
    yield post("no data", echo, infer(tensor(data=None)))
    yield post("no shape", echo, {"inputs": [{"name": "x", "datatype": "FP32", "data": ROW}]})
    yield post("no datatype", echo, {"inputs": [{"name": "x", "shape": [1, 4], "data": ROW}]})
    yield post("no name", echo, {"inputs": [{"shape": [1, 4], "datatype": "FP32", "data": ROW}]})
    yield post("shape that is no list", echo, {"inputs": [{"name": "x", "shape": 4, "datatype": "FP32", "data": ROW}]})
    yield post("malformed JSON", echo, b'{"inputs": [')
    yield post("no JSON", echo, b"hello")
    yield post("JSON that is a list", echo, b"[]")
    yield post("empty body", echo, b"")
    yield post("inputs that is no list", echo, {"inputs": {}})
    yield post("id that is no text", echo, infer(id=7))

    # Tensors behind the JSON.
    one = {"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
    yield {**post("binary input", echo), **binary({"inputs": [one]}, floats(*ROW))}
    yield {**post("binary input and output", echo), **binary({"inputs": [one], "outputs": [{"name": "y", **BINARY_OUT}]}, floats(*ROW))}
    yield {**post("binary outputs for all", echo), **binary({"inputs": [one], "parameters": {"binary_data_output": True}}, floats(*ROW))}
    yield {**post("binary for all but one", echo),
           **binary({"inputs": [one], "outputs": [{"name": "y", "parameters": {"binary_data": False}}], "parameters": {"binary_data_output": True}}, floats(*ROW))}
    yield {**post("binary input with too few bytes", echo), **binary({"inputs": [one]}, floats(1, 2, 3))}
    yield {**post("binary input with too many bytes", echo), **binary({"inputs": [one]}, floats(1, 2, 3, 4, 5))}
    yield {**post("binary size that does not fit the shape", echo), **binary({"inputs": [{**one, "parameters": {"binary_data_size": 12}}]}, floats(1, 2, 3))}
    yield {**post("binary size that is no number", echo), **binary({"inputs": [{**one, "parameters": {"binary_data_size": "16"}}]}, floats(*ROW))}
    yield {**post("header length beyond the body", echo), **binary({"inputs": [one]}, floats(*ROW), length=5000)}
    yield {**post("header length that is no number", echo), **binary({"inputs": [one]}, floats(*ROW), length="x")}
    yield {**post("header length that is negative", echo), **binary({"inputs": [one]}, floats(*ROW), length=-1)}
    yield {**post("raw binary", echo, floats(*ROW)), "headers": {"Inference-Header-Content-Length": "0"}}
    yield {**post("raw binary of the wrong size", echo, floats(1, 2, 3)), "headers": {"Inference-Header-Content-Length": "0"}}

    for datatype, (values, data) in TYPES.items():
        path = f"/v2/models/echo_{datatype.lower()}/infer"
        if datatype != "FP16":
            yield post(f"JSON {datatype}", path, infer(tensor(shape=(1, 2), datatype=datatype, data=values)))
        given = {"name": "x", "shape": [1, 2], "datatype": datatype, "parameters": {"binary_data_size": len(data)}}
        yield {**post(f"binary {datatype}", path), **binary({"inputs": [given], "outputs": [{"name": "y", **BINARY_OUT}]}, data)}
    yield post("JSON FP16", "/v2/models/echo_fp16/infer", infer(tensor(shape=(1, 2), datatype="FP16", data=[0.5, -2])))
    yield post("number out of range", "/v2/models/echo_int8/infer", infer(tensor(shape=(1, 2), datatype="INT8", data=[1, 300])))
    yield post("fraction for an integer", "/v2/models/echo_int32/infer", infer(tensor(shape=(1, 2), datatype="INT32", data=[1, 2.5])))
    yield {**post("BYTES whose length lies", "/v2/models/echo_bytes/infer"),
           **binary({"inputs": [{"name": "x", "shape": [1, 2], "datatype": "BYTES", "parameters": {"binary_data_size": 12}}]}, struct.pack("<I", 100) + b"12345678")}

    # Classification.
    yield post("classification", "/v2/models/labels/infer", infer(tensor(data=[0.1, 0.7, 0.15, 0.05]), outputs=[{"name": "y", "parameters": {"classification": 2}}]))
    yield post("classification of more than there are", "/v2/models/labels/infer",
               infer(tensor(data=[0.1, 0.7, 0.15, 0.05]), outputs=[{"name": "y", "parameters": {"classification": 9}}]))
    yield post("classification without labels", echo, infer(outputs=[{"name": "y", "parameters": {"classification": 1}}]))
    yield post("classification of none", "/v2/models/labels/infer", infer(outputs=[{"name": "y", "parameters": {"classification": 0}}]))

    # Failures of the model, compression.
    yield post("a model that fails", "/v2/models/fail/infer", infer())
    text = json.dumps(infer()).encode()
    yield {**post("gzip request", echo, gzip.compress(text)), "headers": {"Content-Encoding": "gzip"}}
    yield {**post("deflate request", echo, zlib.compress(text)), "headers": {"Content-Encoding": "deflate"}}
    yield {**post("gzip response", echo, text), "headers": {"Accept-Encoding": "gzip"}}
    yield {**post("deflate response", echo, text), "headers": {"Accept-Encoding": "deflate"}}
    yield {**post("request that is not the gzip it says", echo, b"hello"), "headers": {"Content-Encoding": "gzip"}}
    yield get("statistics after", "/v2/models/echo/stats")

    # Decoupled models and generate.
    yield post("decoupled by infer", "/v2/models/repeat/infer", infer(tensor(shape=(2,), data=[1, 2])))
    yield post("generate", "/v2/models/text/generate", {"text": "hello"})
    yield post("generate with a parameter and an id", "/v2/models/text/generate", {"text": "hello", "id": "7", "loud": True})
    yield post("generate without its input", "/v2/models/text/generate", {"other": "hello"})
    yield post("generate with the wrong type", "/v2/models/text/generate", {"text": 5})
    yield post("generate stream", "/v2/models/text/generate_stream", {"text": "hello"})
    yield post("generate stream of several", "/v2/models/repeat/generate_stream", {"x": [1, 2]})
    yield post("generate of a decoupled model", "/v2/models/repeat/generate", {"x": [1, 2]})
    yield post("generate with an unknown model", "/v2/models/none/generate", {"text": "hello"})
    yield post("generate from malformed JSON", "/v2/models/text/generate", b"{")

    # Control.
    yield post("index of those ready", "/v2/repository/index", {"ready": True}, sort=True)
    yield post("load an unknown model", "/v2/repository/models/none/load")
    yield post("load", "/v2/repository/models/spare/load")
    yield get("ready after load", "/v2/models/spare/ready")
    yield post("load with a configuration that is none", "/v2/repository/models/spare/load", {"parameters": {"config": "{"}})
    yield get("ready after a failed load", "/v2/models/spare/ready")
    yield post("load with an unknown parameter", "/v2/repository/models/spare/load", {"parameters": {"cfg": "{}"}})
    yield post("load from malformed JSON", "/v2/repository/models/spare/load", b"{")
    yield post("unload", "/v2/repository/models/spare/unload", wait=4)
    yield get("ready after unload", "/v2/models/spare/ready")
    yield post("infer after unload", "/v2/models/spare/infer", infer())
    yield post("unload an unknown model", "/v2/repository/models/none/unload")

    yield from sequence_cases(post)
    yield from ensemble_cases(get, post)

    # Shared memory, traces, the log.
    yield get("shared memory", "/v2/systemsharedmemory/status")
    yield get("an unknown region", "/v2/systemsharedmemory/region/none/status")
    yield post("register without a key", "/v2/systemsharedmemory/region/r/register", {"byte_size": 64})
    yield post("register without a size", "/v2/systemsharedmemory/region/r/register", {"key": "/none"})
    yield post("register what is not there", "/v2/systemsharedmemory/region/r/register", {"key": "/flywheel_none", "byte_size": 64})
    yield post("unregister what is not there", "/v2/systemsharedmemory/region/r/unregister")
    yield post("unregister all", "/v2/systemsharedmemory/unregister")
    yield get("trace setting", "/v2/trace/setting")
    yield post("change the trace setting", "/v2/trace/setting", {"trace_rate": "5", "trace_level": ["TIMESTAMPS"]})
    yield get("trace setting of a model", "/v2/models/echo/trace/setting")
    yield post("trace level that is none", "/v2/trace/setting", {"trace_level": ["NONE"]})
    yield post("trace rate that is none", "/v2/trace/setting", {"trace_rate": "often"})
    yield post("trace setting taken back", "/v2/trace/setting", {"trace_rate": None, "trace_level": None})
    yield get("trace setting of an unknown model", "/v2/models/none/trace/setting")
    yield get("log setting", "/v2/logging")
    yield post("change the log setting", "/v2/logging", {"log_verbose_level": 0, "log_info": True})
    yield post("log setting of the wrong type", "/v2/logging", {"log_info": "yes"})


def sequence_cases(post):
    def step(model, sequence, x, id=None, **flags):
        parameters = {} if sequence is None else {"sequence_id": sequence, **{f"sequence_{name}": value for name, value in flags.items()}}
        more = {"id": id} if id else {}
        return f"/v2/models/{model}/infer", infer(tensor(shape=(len(x), 1), data=x), parameters=parameters, **more)

    for model in ("steps_direct", "steps_oldest"):
        yield post(f"{model}: without start", *step(model, 5, [1]))
        yield post(f"{model}: without start, with an id", *step(model, 5, [1], id="mine"))
        yield post(f"{model}: start", *step(model, 5, [1], start=True))
        yield post(f"{model}: another start", *step(model, 6, [10], start=True))
        yield post(f"{model}: next", *step(model, 5, [2]))
        yield post(f"{model}: start again", *step(model, 5, [3], start=True))
        yield post(f"{model}: end", *step(model, 5, [4], end=True))
        yield post(f"{model}: after the end", *step(model, 5, [5]))
        yield post(f"{model}: the other's end", *step(model, 6, [11], end=True))
        yield post(f"{model}: start and end", *step(model, 7, [1], start=True, end=True))
        yield post(f"{model}: no sequence", *step(model, None, [1]))
        yield post(f"{model}: sequence 0", *step(model, 0, [1], start=True))
        yield post(f"{model}: two rows", *step(model, 8, [1, 2], start=True))


def ensemble_cases(get, post):
    def ask(model, *inputs, **more):
        return f"/v2/models/{model}/infer", infer(*(inputs or [tensor(name="in")]), **more)

    yield get("ensemble metadata", "/v2/models/chain")
    yield get("ensemble ready", "/v2/models/chain/ready")
    yield post("ensemble infer", *ask("chain", id="mine"))
    yield post("ensemble infer two rows", *ask("chain", tensor(name="in", shape=(2, 4), data=ROW + ROW)))
    yield post("ensemble with an output", *ask("chain", outputs=[{"name": "out"}]))
    yield post("ensemble with classification", *ask("chain", outputs=[{"name": "out", "parameters": {"classification": 2}}]))
    yield post("ensemble with a tensor between its steps as output", *ask("chain", outputs=[{"name": "between"}]))
    yield post("ensemble with wrong shape", *ask("chain", tensor(name="in", shape=(1, 3), data=ROW[:3])))
    yield post("ensemble with too many rows", *ask("chain", tensor(name="in", shape=(9, 4), data=ROW * 9)))
    yield post("ensemble of a step that fails", *ask("chain_fails"))
    yield post("ensemble of a step that fails, with an id", *ask("chain_fails", id="mine"))
    yield post("decoupled ensemble", *ask("chain_repeats", tensor(name="in", shape=(2,), data=ROW[:2])))


def grpc_cases():
    import base64

    def raw(*blobs):
        return [base64.b64encode(blob).decode() for blob in blobs]

    def request(model="echo", inputs=None, raws=None, **more):
        if inputs is None:
            inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]
        return {"model_name": model, "inputs": inputs, "raw_input_contents": raw(floats(*ROW)) if raws is None else raws, **more}

    def given(shape=(1, 4), datatype="FP32", name="x", **more):
        return {"name": name, "datatype": datatype, "shape": list(shape), **more}

    def case(name, method, message=None, **more):
        return {"name": name, "method": method, "message": message or {}, **more}

    yield case("live", "ServerLive")
    yield case("ready", "ServerReady")
    yield case("server metadata", "ServerMetadata", only=["name", "version", "extensions"], types=True)
    yield case("model ready", "ModelReady", {"name": "echo"})
    yield case("unknown model ready", "ModelReady", {"name": "none"})
    yield case("unknown version ready", "ModelReady", {"name": "echo", "version": "9"})
    yield case("version that is no number", "ModelReady", {"name": "echo", "version": "one"})
    yield case("model metadata", "ModelMetadata", {"name": "echo"})
    yield case("unknown model metadata", "ModelMetadata", {"name": "none"})
    yield case("unknown version metadata", "ModelMetadata", {"name": "echo", "version": "9"})
    yield case("model configuration", "ModelConfig", {"name": "echo"},
               only=["config.name", "config.backend", "config.maxBatchSize", "config.input", "config.output", "config.versionPolicy", "config.dynamicBatching"])
    yield case("unknown model configuration", "ModelConfig", {"name": "none"})
    yield case("statistics before", "ModelStatistics", {"name": "echo"})
    yield case("statistics of an unknown model", "ModelStatistics", {"name": "none"})
    yield case("infer", "ModelInfer", request())
    yield case("infer with an id", "ModelInfer", request(id="request-7"))
    yield case("infer with a version", "ModelInfer", request(model_version="1"))
    yield case("infer with an unknown version", "ModelInfer", request(model_version="7"))
    yield case("infer with an unknown model", "ModelInfer", request("none"))
    yield case("infer typed contents", "ModelInfer", request(inputs=[given(contents={"fp32_contents": ROW})], raws=[]))
    yield case("infer with an output", "ModelInfer", request(outputs=[{"name": "y"}]))
    yield case("infer with an unknown output", "ModelInfer", request(outputs=[{"name": "z"}]))
    yield case("infer with a priority", "ModelInfer", request(parameters={"priority": {"uint64_param": "1"}, "timeout": {"int64_param": "1000000"}}))
    yield case("infer with an own parameter", "ModelInfer", request(parameters={"mine": {"string_param": "yes"}}))
    yield case("unknown input", "ModelInfer", request(inputs=[given(name="q")]))
    yield case("an input too many", "ModelInfer", request(inputs=[given(), given(name="q")], raws=raw(floats(*ROW), floats(*ROW))))
    yield case("no inputs", "ModelInfer", request(inputs=[], raws=[]))
    yield case("wrong type", "ModelInfer", request(inputs=[given(datatype="INT32")]))
    yield case("unknown type", "ModelInfer", request(inputs=[given(datatype="FP31")]))
    yield case("wrong shape", "ModelInfer", request(inputs=[given((1, 3))], raws=raw(floats(1, 2, 3))))
    yield case("wrong rank", "ModelInfer", request(inputs=[given((4,))]))
    yield case("batch too large", "ModelInfer", request(inputs=[given((9, 4))], raws=raw(floats(*ROW * 9))))
    yield case("batch of zero", "ModelInfer", request(inputs=[given((0, 4))], raws=raw(b"")))
    yield case("negative dim", "ModelInfer", request(inputs=[given((-1, 4))]))
    yield case("too few bytes", "ModelInfer", request(raws=raw(floats(1, 2, 3))))
    yield case("too many bytes", "ModelInfer", request(raws=raw(floats(1, 2, 3, 4, 5))))
    yield case("raw contents missing", "ModelInfer", request(inputs=[given()], raws=[]))
    yield case("raw contents too many", "ModelInfer", request(raws=raw(floats(*ROW), floats(*ROW))))
    yield case("raw and typed contents", "ModelInfer", request(inputs=[given(contents={"fp32_contents": ROW})]))
    yield case("typed contents of another type", "ModelInfer", request(inputs=[given(contents={"int_contents": [1, 2, 3, 4]})], raws=[]))
    yield case("typed contents too few", "ModelInfer", request(inputs=[given(contents={"fp32_contents": [1, 2]})], raws=[]))
    for datatype, (_, data) in TYPES.items():
        yield case(f"raw {datatype}", "ModelInfer", request(f"echo_{datatype.lower()}", [given((1, 2), datatype)], raw(data)))
    yield case("BYTES whose length lies", "ModelInfer", request("echo_bytes", [given((1, 2), "BYTES")], raw(struct.pack("<I", 100) + b"12345678")))
    yield case("classification", "ModelInfer", request("labels", raws=raw(floats(0.1, 0.7, 0.15, 0.05)), outputs=[{"name": "y", "parameters": {"classification": {"int64_param": "2"}}}]))
    yield case("a model that fails", "ModelInfer", request("fail"))
    yield case("decoupled by a single call", "ModelInfer", request("repeat", [given((2,))], raw(floats(1, 2))))
    yield case("statistics after", "ModelStatistics", {"name": "echo"})
    yield case("stream", "ModelStreamInfer", [request(), request(id="second")])
    yield case("stream of a decoupled model", "ModelStreamInfer", [request("repeat", [given((2,))], raw(floats(1, 2)), id="several")])
    yield case("stream with a failure", "ModelStreamInfer", [request("none"), request(id="after")])
    yield case("index", "RepositoryIndex", sort=True)
    yield case("index of those ready", "RepositoryIndex", {"ready": True}, sort=True)
    yield case("load an unknown model", "RepositoryModelLoad", {"model_name": "none"})
    yield case("load", "RepositoryModelLoad", {"model_name": "spare"})
    yield case("load with an unknown parameter", "RepositoryModelLoad", {"model_name": "spare", "parameters": {"cfg": {"string_param": "{}"}}})
    yield case("load with a parameter of the wrong type", "RepositoryModelLoad", {"model_name": "spare", "parameters": {"config": {"bool_param": True}}})
    yield case("load with a configuration that is none", "RepositoryModelLoad", {"model_name": "spare", "parameters": {"config": {"string_param": "{"}}})
    yield case("unload", "RepositoryModelUnload", {"model_name": "spare"}, wait=4)
    yield case("infer after unload", "ModelInfer", request("spare"))
    yield case("unload an unknown model", "RepositoryModelUnload", {"model_name": "none"})
    yield case("shared memory", "SystemSharedMemoryStatus")
    yield case("an unknown region", "SystemSharedMemoryStatus", {"name": "none"})
    yield case("register what is not there", "SystemSharedMemoryRegister", {"name": "r", "key": "/flywheel_none", "byte_size": "64"})
    yield case("unregister what is not there", "SystemSharedMemoryUnregister", {"name": "r"})
    yield case("trace setting", "TraceSetting")
    yield case("change the trace setting", "TraceSetting", {"settings": {"trace_rate": {"value": ["5"]}}})
    yield case("trace level that is none", "TraceSetting", {"settings": {"trace_level": {"value": ["NONE"]}}})
    yield case("trace setting of an unknown model", "TraceSetting", {"model_name": "none"})
    yield case("log setting", "LogSettings")
    yield case("log setting of the wrong type", "LogSettings", {"settings": {"log_info": {"string_param": "yes"}}})
