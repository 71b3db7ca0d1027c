#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves Python and native models with the real program: answers, failures, what is left when it ends.

Called by CTest with FLYWHEEL naming the program and SCALE_BACKEND the example's library, or by hand. Itself it needs Python's standard library
alone; the models need a python3 with numpy, .venv's or the PATH's, and are skipped without.
"""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLYWHEEL = os.environ.get("FLYWHEEL", os.path.join(ROOT, "build/flywheel"))
VENV = os.path.join(ROOT, ".venv/bin")
PATH = VENV + ":" + os.environ["PATH"] if os.path.exists(VENV) else os.environ["PATH"]

VECTORS = """
input { name: "x" data_type: TYPE_FP32 dims: [-1] }
output { name: "y" data_type: TYPE_FP32 dims: [-1] }
"""
HEADER = "import os\nimport time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
MODELS = {
    "double": (VECTORS + "max_batch_size: 8 instance_group { count: 2 kind: KIND_CPU } dynamic_batching {}", """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", 2 * r.inputs()[0].as_numpy())]) for r in requests]
"""),
    "words": ("", """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "text", "data_type": "TYPE_STRING", "dims": [-1]})
        config.add_output({"name": "upper", "data_type": "TYPE_STRING", "dims": [-1]})
        return config

    def execute(self, requests):
        responses = []
        for r in requests:
            text = pb_utils.get_input_tensor_by_name(r, "text").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("upper", np.array([t.decode().upper() for t in text], np.object_))]))
        return responses
"""),
    "twice": (VECTORS, """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for r in requests:
            x = r.inputs()[0].as_numpy()
            for _ in range(2):
                answer = pb_utils.InferenceRequest(model_name="double", requested_output_names=["y"],
                                                   inputs=[pb_utils.Tensor("x", x.reshape(1, -1))]).exec()
                if answer.has_error():
                    raise pb_utils.TritonModelException(answer.error().message())
                x = answer.output_tensors()[0].as_numpy().reshape(-1)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
        return responses
"""),
    "fragile": (VECTORS, """
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            if r.inputs()[0].as_numpy()[0] < 0:
                os.kill(os.getpid(), 11)
            if r.inputs()[0].as_numpy()[0] > 100:
                raise ValueError("too much")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array([os.getpid()], np.float32))]) for r in requests]
"""),
    "stream": (VECTORS + "model_transaction_policy { decoupled: true }", """
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            r.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""),
}
has_numpy = subprocess.run(["python3", "-c", "import numpy"], env=dict(os.environ, PATH=PATH), capture_output=True, check=False).returncode == 0


def is_alive(pid):
    """Zombies are not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class PythonModelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not has_numpy:
            raise unittest.SkipTest("no python3 with numpy: neither in .venv nor in the PATH")
        cls.folder = tempfile.mkdtemp(prefix="flywheel-python-")
        for name, (config, code) in MODELS.items():
            os.makedirs(f"{cls.folder}/{name}/1")
            with open(f"{cls.folder}/{name}/config.pbtxt", "w", encoding="utf-8") as file:
                file.write(config)
            with open(f"{cls.folder}/{name}/1/model.py", "w", encoding="utf-8") as file:
                file.write(HEADER + code)
        if "SCALE_BACKEND" in os.environ:
            os.makedirs(f"{cls.folder}/scaled/1")
            with open(f"{cls.folder}/scaled/config.pbtxt", "w", encoding="utf-8") as file:
                file.write(VECTORS + 'backend: "scale"')
            with open(f"{cls.folder}/scaled/1/scale.txt", "w", encoding="utf-8") as file:
                file.write("0.5")
            shutil.copy(os.environ["SCALE_BACKEND"], f"{cls.folder}/scaled/libflywheel_scale.so")
        cls.log = []
        cls.server = subprocess.Popen([FLYWHEEL, "serve", "--model-repository", cls.folder, "--http-address", "127.0.0.1", "--http-port", "0",
                                       "--grpc-port", "0", "--metrics-port", "0"], stderr=subprocess.PIPE, text=True, env=dict(os.environ, PATH=PATH))
        cls.ready = threading.Event()
        threading.Thread(target=cls.read_log, daemon=True).start()
        if not cls.ready.wait(120):
            cls.server.kill()
            raise AssertionError("the server is not ready: " + "".join(cls.log))
        cls.port = re.search(r"listening for HTTP on 127.0.0.1:(\d+)", "".join(cls.log)).group(1)

    @classmethod
    def read_log(cls):
        for line in cls.server.stderr:
            cls.log.append(line)
            if "all models are ready" in line:
                cls.ready.set()

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.wait()
        shutil.rmtree(cls.folder)

    def infer(self, model, name, datatype, data, shape=None):
        body = {"inputs": [{"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data}]}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v2/models/{model}/infer", data=json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())["outputs"][0]["data"]
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["error"]

    def vector(self, model, data):
        return self.infer(model, "x", "FP32", data)

    def test_answers(self):
        self.assertEqual(self.infer("double", "x", "FP32", [1, 2], [1, 2]), (200, [2, 4]))
        self.assertEqual(self.infer("words", "text", "BYTES", ["ab", "\u00e9", ""]), (200, ["AB", "\u00c9", ""]))
        large = [float(i) for i in range(100_000)]
        self.assertEqual(self.infer("double", "x", "FP32", large, [1, len(large)]), (200, [2 * value for value in large]))

    def test_many_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda i: self.infer("double", "x", "FP32", [i, -i], [1, 2]), range(400)))
        for i, answer in enumerate(answers):
            self.assertEqual(answer, (200, [2 * i, -2 * i]))

    def test_calls_another_model(self):
        self.assertEqual(self.vector("twice", [1, 2, 3]), (200, [4, 8, 12]))

    def test_failures(self):
        status, (pid,) = self.vector("fragile", [1])
        self.assertEqual(status, 200)
        status, error = self.vector("fragile", [101])
        self.assertEqual(status, 500)
        self.assertRegex(error, r"Failed to process the request\(s\) for model instance 'fragile_0', message: ValueError: too much\n\nAt:\n"
                                r"  .*fragile/1/model.py\(\d+\): execute")
        self.assertEqual(self.vector("fragile", [1])[1], [pid])
        status, error = self.vector("fragile", [-1])
        self.assertEqual(status, 500)
        self.assertIn("was ended by signal 11", error)
        status, (other,) = self.vector("fragile", [1])
        self.assertEqual(status, 200)
        self.assertNotEqual(pid, other)
        self.assertFalse(is_alive(int(pid)))
        self.assertEqual(self.infer("double", "x", "FP32", [1], [1, 1]), (200, [2]))

    def test_decoupled_models_are_not_for_infer(self):
        self.assertEqual(self.vector("stream", [1]), (501, "HTTP end point doesn't support models with decoupled transaction policy"))

    def test_native_backend(self):
        if "SCALE_BACKEND" not in os.environ:
            self.skipTest("SCALE_BACKEND does not name the example's library")
        self.assertEqual(self.vector("scaled", [1, 2, 3]), (200, [0.5, 1, 1.5]))

    def test_processes_end_with_the_server(self):
        # A server of its own, which is killed without a chance to clean up.
        log = tempfile.TemporaryFile()
        with log, subprocess.Popen([FLYWHEEL, "serve", "--model-repository", self.folder, "--http-port", "0", "--grpc-port", "0", "--metrics-port",
                                    "0"], stderr=log, env=dict(os.environ, PATH=PATH)) as server:
            children = []
            for _ in range(600):
                with open(f"/proc/{server.pid}/task/{server.pid}/stat", encoding="ascii"):
                    pass
                children = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and self.parent(pid) == server.pid]
                log.seek(0)
                if b"all models are ready" in log.read():
                    break
                time.sleep(0.1)
            self.assertGreaterEqual(len(children), 6)
            server.send_signal(signal.SIGKILL)
            server.wait()
        for _ in range(100):
            if not any(is_alive(pid) for pid in children):
                break
            time.sleep(0.05)
        self.assertEqual([pid for pid in children if is_alive(pid)], [])

    @staticmethod
    def parent(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                return int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return 0


if __name__ == "__main__":
    unittest.main()
