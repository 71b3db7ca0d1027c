#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_grpc: messages of inference, and what grpcio sends over a connection. Run by hand in .venv when the target's form
changes: make_grpc_corpus.py FLYWHEEL MODEL_REPOSITORY corpus/fuzz_grpc."""
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import tritonclient.grpc as client
from tritonclient.grpc import service_pb2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def message(fill):
    request = service_pb2.ModelInferRequest(model_name="m", model_version="1", id="7")
    fill(request)
    return b"\x01" + request.SerializeToString()


def messages():
    def raw(request):
        request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
        request.outputs.add(name="y").parameters["classification"].int64_param = 3
        request.raw_input_contents.append(np.arange(4, dtype=np.float32).tobytes())

    def typed(request):
        for name, values in [("bool_contents", [True, False]), ("int_contents", [1, -2]), ("int64_contents", [-1]), ("uint_contents", [255]),
                             ("uint64_contents", [1 << 63]), ("fp32_contents", [1.5, 2]), ("fp64_contents", [0.5]), ("bytes_contents", [b"ab", b""])]:
            tensor = request.inputs.add(name=name, datatype="INT32", shape=[len(values)])
            getattr(tensor.contents, name).extend(values)

    def parameters(request):
        request.parameters["sequence_id"].int64_param = -5
        request.parameters["start"].bool_param = True
        request.parameters["text"].string_param = "\u00fc"
        request.parameters["real"].double_param = 0.5
        request.parameters["natural"].uint64_param = 1 << 63
        request.inputs.add(name="x").parameters["shared_memory_region"].string_param = "r"

    return {"raw": message(raw), "typed": message(typed), "parameters": message(parameters)}


def record(address, use):
    """What a client sends through a relay to the server."""
    sent = bytearray()
    listener = socket.create_server(("127.0.0.1", 0))

    def relay():
        near, _ = listener.accept()
        far = socket.create_connection(address)

        def back():
            while data := far.recv(65536):
                near.sendall(data)

        threading.Thread(target=back, daemon=True).start()
        while data := near.recv(65536):
            sent.extend(data)
            far.sendall(data)

    threading.Thread(target=relay, daemon=True).start()
    grpc_client = client.InferenceServerClient("127.0.0.1:%d" % listener.getsockname()[1])
    use(grpc_client)
    grpc_client.close()
    time.sleep(0.2)
    assert sent.startswith(PREFACE)
    return bytes(sent[len(PREFACE):])


def main():
    flywheel, repository, folder = sys.argv[1:]
    server = subprocess.Popen([flywheel, "serve", "--model-repository", repository, "--http-address", "127.0.0.1", "--http-port", "0", "--grpc-port",
                               "18191", "--allow-metrics", "false"])
    time.sleep(5)
    tensor = client.InferInput("x", [1, 16], "FP32")
    tensor.set_data_from_numpy(np.arange(16, dtype=np.float32).reshape(1, 16))

    def stream(grpc_client):
        grpc_client.start_stream(lambda result, error: None)
        for _ in range(5):
            grpc_client.async_stream_infer("echo", [tensor])
        grpc_client.stop_stream()

    uses = {
        "infer": lambda c: c.infer("echo", [tensor], client_timeout=5),
        "gzip": lambda c: c.infer("echo", [tensor], compression_algorithm="gzip"),
        "control": lambda c: (c.is_server_live(), c.get_model_metadata("echo")),
        "stream": stream,
    }
    seeds = messages()
    for name, use in uses.items():
        seeds["connection_" + name] = b"\x60" + record(("127.0.0.1", 18191), use)
    server.terminate()
    server.wait()
    os.makedirs(folder, exist_ok=True)
    for name, content in seeds.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)


if __name__ == "__main__":
    main()
