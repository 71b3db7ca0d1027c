#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The HTTP clients that people have, unmodified, against the real program: tritonclient (sync, threads, asyncio, shared memory), curl, HTTP/1.0 and,
where it is installed, perf_analyzer over HTTP and gRPC. And the OpenAPI document against what the server answers.

Called by CTest in .venv (scripts/bootstrap --peers) with FLYWHEEL naming the program, or by hand. PERF_ANALYZER: where that program is, if not in PATH.
"""
import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import numpy as np
import onnx
import tritonclient.http as client
import tritonclient.http.aio as aio
import tritonclient.utils.shared_memory as shm
from onnx import TensorProto, helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLYWHEEL = os.environ.get("FLYWHEEL", os.path.join(ROOT, "build/flywheel"))
REPEAT_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input { name: "x" data_type: TYPE_FP32 dims: [-1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
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
BYTES_CONFIG = """
backend: "python"
max_batch_size: 4
input { name: "x" data_type: TYPE_STRING dims: [-1] }
output { name: "y" data_type: TYPE_STRING dims: [-1] }
"""
BYTES = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", request.inputs()[0].as_numpy())]) for request in requests]
"""


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb" if isinstance(content, bytes) else "w") as file:
        file.write(content)


def identity_onnx(columns):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", columns]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def rows(count, columns=4, binary=True):
    x = np.arange(count * columns, dtype=np.float32).reshape(count, columns)
    tensor = client.InferInput("x", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x, binary_data=binary)
    return x, [tensor]


class HttpClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        models = f"{cls.folder.name}/models"
        for name, columns in (("echo", 4), ("wide", 500_000)):
            write(f"{models}/{name}/1/model.onnx", identity_onnx(columns))
            write(f"{models}/{name}/config.pbtxt", "max_batch_size: 8")
        write(f"{models}/repeat/config.pbtxt", REPEAT_CONFIG)
        write(f"{models}/repeat/1/model.py", REPEAT)
        write(f"{models}/bytes/config.pbtxt", BYTES_CONFIG)
        write(f"{models}/bytes/1/model.py", BYTES)
        environment = dict(os.environ, PATH=os.path.join(ROOT, ".venv/bin") + ":" + os.environ["PATH"])
        cls.server = subprocess.Popen([FLYWHEEL, "serve", "--model-repository", models, "--model-control-mode", "explicit", "--load-model", "*", "--http-address",
                                       "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--allow-metrics", "false", "--allow-client-shm", "true"],
                                      stderr=subprocess.PIPE, text=True, env=environment)
        log, found = "", {}
        for line in cls.server.stderr:
            log += line
            found |= dict(re.findall(r"listening for (HTTP|gRPC) on (\S+)", line))
            if "all models are ready" in line:
                break
        else:
            raise AssertionError("the server did not start:\n" + log)
        cls.address, cls.grpc_address = found["HTTP"], found["gRPC"]
        cls.reader = threading.Thread(target=lambda: [None for _ in cls.server.stderr], daemon=True)
        cls.reader.start()

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGTERM)
        code = cls.server.wait(timeout=60)
        cls.reader.join()
        cls.server.stderr.close()
        cls.folder.cleanup()
        assert code == 0, code

    def setUp(self):
        self.client = client.InferenceServerClient(self.address, concurrency=8)

    def tearDown(self):
        self.client.close()

    def test_tells_about_itself(self):
        self.assertTrue(self.client.is_server_live() and self.client.is_server_ready() and self.client.is_model_ready("echo"))
        self.assertFalse(self.client.is_model_ready("none"))
        self.assertEqual(self.client.get_server_metadata()["name"], "flywheel")
        self.assertEqual(self.client.get_model_metadata("echo")["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}])
        self.assertEqual(self.client.get_model_config("echo")["max_batch_size"], 8)
        self.assertIn("echo", [row["name"] for row in self.client.get_model_repository_index()])
        self.assertIn("trace_level", self.client.get_trace_settings())
        self.assertIn("log_info", self.client.get_log_settings())

    def test_infers(self):
        for count in (1, 8):
            for binary in (True, False):
                x, inputs = rows(count, binary=binary)
                outputs = [client.InferRequestedOutput("y", binary_data=binary)]
                answer = self.client.infer("echo", inputs, outputs=outputs, request_id="7")
                np.testing.assert_array_equal(answer.as_numpy("y"), x)
                self.assertEqual(answer.get_response()["id"], "7")
        with self.assertRaisesRegex(client.InferenceServerException, "batch-size must be <= 8"):
            self.client.infer("echo", rows(9)[1])

    def test_large_and_compressed(self):
        x, inputs = rows(8, 500_000)
        np.testing.assert_array_equal(self.client.infer("wide", inputs).as_numpy("y"), x)
        for coding in ("gzip", "deflate"):
            answer = self.client.infer("wide", inputs, request_compression_algorithm=coding, response_compression_algorithm=coding)
            np.testing.assert_array_equal(answer.as_numpy("y"), x)

    def test_strings(self):
        x = np.array([["text", ""], ["with \0 in it", "\u00fc"]], np.object_)
        x = np.vectorize(lambda text: text.encode(), otypes=[np.object_])(x)
        for binary in (True, False):
            given = x if binary else np.array([[b"text", b""], [b"more", "\u00fc".encode()]], np.object_)
            tensor = client.InferInput("x", [2, 2], "BYTES")
            tensor.set_data_from_numpy(given, binary_data=binary)
            answer = self.client.infer("bytes", [tensor], outputs=[client.InferRequestedOutput("y", binary_data=binary)]).as_numpy("y")
            self.assertEqual([value if isinstance(value, bytes) else value.encode() for value in answer.flatten()], list(given.flatten()))

    def test_many_at_once(self):
        calls = [(rows(count % 8 + 1)) for count in range(64)]
        answers = [self.client.async_infer("echo", inputs) for _, inputs in calls]
        for (x, _), answer in zip(calls, answers):
            np.testing.assert_array_equal(answer.get_result().as_numpy("y"), x)

    def test_asyncio(self):
        async def talk():
            async with aio.InferenceServerClient(self.address) as talker:
                self.assertTrue(await talker.is_server_ready())
                x, inputs = rows(3)
                answers = await asyncio.gather(*[talker.infer("echo", inputs) for _ in range(16)])
                for answer in answers:
                    np.testing.assert_array_equal(answer.as_numpy("y"), x)
        asyncio.run(talk())

    def test_shared_memory(self):
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        name = f"/flywheel_test_{os.getpid()}"
        region = shm.create_shared_memory_region("region", name, 2 * x.nbytes)
        try:
            shm.set_shared_memory_region(region, [x])
            self.client.register_system_shared_memory("region", name, 2 * x.nbytes)
            self.assertEqual(self.client.get_system_shared_memory_status()[0]["name"], "region")
            tensor = client.InferInput("x", [2, 4], "FP32")
            tensor.set_shared_memory("region", x.nbytes)
            output = client.InferRequestedOutput("y")
            output.set_shared_memory("region", x.nbytes, x.nbytes)
            self.client.infer("echo", [tensor], outputs=[output])
            np.testing.assert_array_equal(shm.get_contents_as_numpy(region, np.float32, [2, 4], offset=x.nbytes), x)
            self.client.unregister_system_shared_memory("region")
        finally:
            shm.destroy_shared_memory_region(region)

    def test_models_come_and_go(self):
        self.client.load_model("sent", config='{"max_batch_size": 4}', files={"file:3/model.onnx": identity_onnx(4)})
        x, inputs = rows(2)
        np.testing.assert_array_equal(self.client.infer("sent", inputs, "3").as_numpy("y"), x)
        self.client.unload_model("sent")
        self.assertFalse(self.client.is_model_ready("sent"))

    def test_curl_and_event_streams(self):
        body = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})
        for flags in ([], ["--http1.0"], ["-H", "Expect: 100-continue"], ["-H", "Transfer-Encoding: chunked"], ["--compressed"]):
            done = subprocess.run(["curl", "-sS", "--max-time", "20", *flags, "-d", body, f"http://{self.address}/v2/models/echo/infer"], capture_output=True, text=True)
            self.assertEqual(json.loads(done.stdout)["outputs"][0]["data"], [1, 2, 3, 4], (flags, done.stderr))
        for flags in ([], ["--http1.0"]):
            done = subprocess.run(["curl", "-sSN", "--max-time", "20", *flags, "-d", '{"x": [1, 2, 3]}', f"http://{self.address}/v2/models/repeat/generate_stream"],
                                  capture_output=True, text=True)
            events = [json.loads(event.removeprefix("data: ")) for event in done.stdout.strip().split("\n\n")]
            self.assertEqual([event["y"] for event in events], [1, 2, 3], done.stdout)

    def test_http_1_0_and_bare_sockets(self):
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as bare:
            bare.sendall(b"GET /v2/health/ready HTTP/1.0\r\n\r\n")
            answer = b""
            while chunk := bare.recv(4096):
                answer += chunk
        self.assertTrue(answer.startswith(b"HTTP/1.0 200") or answer.startswith(b"HTTP/1.1 200"), answer)
        self.assertIn(b"onnection: close", answer)

    def test_the_openapi_document_is_what_there_is(self):
        def ask(method, path):
            connection = http.client.HTTPConnection(self.address, timeout=20)
            connection.request(method, path, b"{}" if method == "POST" else None)
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return answer.status
        connection = http.client.HTTPConnection(self.address, timeout=20)
        connection.request("GET", "/openapi.json")
        document = json.loads(connection.getresponse().read())
        connection.close()
        self.assertTrue(document["openapi"].startswith("3."))
        self.assertTrue({"title", "version"} <= document["info"].keys())
        known = 0
        for path, methods in document["paths"].items():
            names = re.findall(r"{(\w+)}", path)
            for method, operation in methods.items():
                self.assertIn("responses", operation, path)
                declared = {p["name"] for p in operation.get("parameters", []) + methods.get("parameters", []) if p.get("in") == "path"}
                self.assertEqual(declared, set(names), path)
                # A route that there is says of a model that there is not; one that there is not says 404 with other words, or 405.
                self.assertNotEqual(ask(method.upper(), re.sub(r"{version}", "1", re.sub(r"{(model|name|region)\w*}", "none", path))), 405, (method, path))
                known += 1
        self.assertGreater(known, 25)
        for path in ("/v2/health/live", "/v2/models/{name}/infer", "/v2/models/{name}/generate_stream", "/v2/repository/index", "/v2/logging"):
            self.assertIn(path, re.sub(r"{model\w*}", "{name}", "\n".join(document["paths"])))

    def test_perf_analyzer(self):
        program = os.environ.get("PERF_ANALYZER") or shutil.which("perf_analyzer")
        if program is None:
            self.skipTest("perf_analyzer is not installed; PERF_ANALYZER may say where it is")
        for protocol, address in (("http", self.address), ("grpc", self.grpc_address)):
            done = subprocess.run([program, "-m", "echo", "-u", address, "-i", protocol, "--concurrency-range", "1:3:2", "-b", "2", "--measurement-interval", "500",
                                   "--stability-percentage", "100"], capture_output=True, text=True, timeout=240)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"Concurrency: 3, throughput: [1-9]")


if __name__ == "__main__":
    unittest.main()
