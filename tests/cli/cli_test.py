#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs build/flywheel's verbs on the bundled model: results, printed figures, exit codes and messages.

Called by CTest with FLYWHEEL naming the program, or by hand: `FLYWHEEL=build/flywheel tests/cli/cli_test.py [CASE...]`. Needs Python's
standard library alone. What the server does is tested in src/server; here are its command line, its start and its end.
"""
import filecmp
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models/fashion_mnist/model.onnx")
INPUTS = os.path.join(ROOT, "models/fashion_mnist/golden/inputs.npz")
OUTPUTS = os.path.join(ROOT, "models/fashion_mnist/golden/outputs.npz")
PROFILE = "image:1x1x28x28,8x1x28x28,64x1x28x28"
FLYWHEEL = os.environ.get("FLYWHEEL", os.path.join(ROOT, "build/flywheel"))


def read_floats(path, name):
    """(shape, values) of a float32 array of an .npz."""
    with zipfile.ZipFile(path) as archive:
        data = archive.read(name + ".npy")
    length = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + length].decode()
    assert "'<f4'" in header, header
    shape = tuple(int(dim) for dim in re.search(r"'shape': \(([^)]*)\)", header).group(1).split(",") if dim.strip())
    values = data[10 + length:]
    return shape, struct.unpack(f"<{len(values) // 4}f", values)


def write_npz(path, arrays):
    """arrays: name -> (NumPy type, shape, bytes)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (descr, shape, data) in arrays.items():
            header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
            archive.writestr(name + ".npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


class FlywheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.engine = cls.path("model.engine")
        cls.build_output = cls.run_checked("build", MODEL, "-o", cls.engine, "--profile", PROFILE, "--no-tune")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.temporary.name, name)

    @classmethod
    def flywheel(cls, *arguments, **environment):
        return subprocess.run([FLYWHEEL, *arguments], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **environment}, cwd=cls.temporary.name)

    @classmethod
    def run_checked(cls, *arguments, **environment):
        done = cls.flywheel(*arguments, **environment)
        assert done.returncode == 0, f"{arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def assert_fails(self, code, text, *arguments, **environment):
        done = self.flywheel(*arguments, **environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)


class BuildTest(FlywheelTest):
    def test_reports_what_it_built(self):
        self.assertIn(f"profile  {PROFILE}", self.build_output)
        self.assertRegex(self.build_output, r"30 ONNX nodes became \d+ steps")
        self.assertIn(self.engine, self.build_output)

    def test_prints_the_default_profile(self):
        self.assertIn("the default profile is --profile image:",
                      self.run_checked("build", MODEL, "-o", self.path("default.engine"), "--no-tune"))

    def test_same_timings_give_the_same_bytes(self):
        cache = self.path("timings")
        for name in ("first.engine", "second.engine", "third.engine"):
            output = self.run_checked("build", MODEL, "-o", self.path(name), "--profile", PROFILE, "--timing-cache", cache)
        self.assertRegex(output, r"(\d+) timed, \1 of those from the timing cache")
        self.assertTrue(filecmp.cmp(self.path("first.engine"), self.path("second.engine"), shallow=False))
        self.assertTrue(filecmp.cmp(self.path("second.engine"), self.path("third.engine"), shallow=False))

    def test_dumps_and_disables_passes(self):
        folder = self.path("passes")
        self.run_checked("build", MODEL, "-o", self.path("p.engine"), "--no-tune", "--dump-passes", folder, "--disable-pass", "fuse_epilogue")
        dumped = os.listdir(folder)
        self.assertTrue(dumped)
        self.assertFalse([name for name in dumped if "fuse_epilogue" in name], dumped)
        steps = json.loads(self.run_checked("inspect", self.path("p.engine"), "--json"))["steps"]
        self.assertGreater(len(steps), len(json.loads(self.run_checked("inspect", self.engine, "--json"))["steps"]))

    def test_refusals(self):
        target = self.path("refused.engine")
        self.assert_fails(1, "cannot open '/nowhere.onnx'", "build", "/nowhere.onnx", "-o", target)
        self.assert_fails(1, "not an ONNX model", "build", INPUTS, "-o", target)
        self.assert_fails(1, "image", "build", MODEL, "-o", target, "--profile", "picture:1x1x28x28")
        self.assert_fails(1, "device 'toaster' is not supported", "build", MODEL, "-o", target, "--device", "toaster")
        self.assert_fails(1, "avx512", "build", MODEL, "-o", target, "--isa", "mmx")
        self.assert_fails(1, "no_such_pass", "build", MODEL, "-o", target, "--disable-pass", "no_such_pass")
        self.assertFalse(os.path.exists(target))


class RunTest(FlywheelTest):
    def test_computes_what_was_recorded(self):
        result, steps = self.path("y.npz"), self.path("steps.npz")
        output = self.run_checked("run", self.engine, "--inputs", INPUTS, "--outputs", result, "--steps", steps)
        self.assertIn("image f32 64x1x28x28", output)
        self.assertIn("logits f32 64x10", output)
        shape, got = read_floats(result, "logits")
        want_shape, want = read_floats(OUTPUTS, "logits")
        self.assertEqual(shape, want_shape)
        largest = max(map(abs, want))
        for a, b in zip(got, want):
            self.assertLess(abs(a - b), 1e-4 * largest)
        self.assertEqual(read_floats(steps, "logits"), (shape, got))
        with zipfile.ZipFile(steps) as archive:
            self.assertGreater(len(archive.namelist()), 5)

    def test_every_instruction_set(self):
        want = None
        for isa in ("portable", "avx2", "avx512"):
            engine, result = self.path(isa + ".engine"), self.path(isa + ".npz")
            self.run_checked("build", MODEL, "-o", engine, "--profile", PROFILE, "--no-tune", "--isa", isa)
            if self.flywheel("inspect", engine, "--check").returncode != 0:
                continue  # this machine lacks it
            self.run_checked("run", engine, "--inputs", INPUTS, "--outputs", result)
            got = read_floats(result, "logits")[1]
            want = want or got
            self.assertLess(max(abs(a - b) for a, b in zip(got, want)), 1e-3)

    def test_refuses_wrong_inputs_naming_them(self):
        wrong = self.path("wrong.npz")
        write_npz(wrong, {"image": ("<f8", (1, 1, 28, 28), bytes(8 * 784)), "extra": ("<i4", (1,), bytes(4))})
        self.assert_fails(1, "input 'image' is f64, the engine expects f32; 'extra' is no input", "run", self.engine, "--inputs", wrong)
        self.assert_fails(1, "input 'image' is absent", "run", self.engine)
        write_npz(wrong, {"image": ("<f4", (65, 1, 28, 28), bytes(65 * 4 * 784))})
        self.assert_fails(1, "is 65, outside the engine's profile [1, 64]", "run", self.engine, "--inputs", wrong)
        self.assert_fails(1, "not a ZIP archive", "run", self.engine, "--inputs", MODEL)

    def test_takes_single_arrays(self):
        with zipfile.ZipFile(INPUTS) as archive:
            archive.extract("image.npy", self.temporary.name)
        self.assertIn("64x10", self.run_checked("run", self.engine, "--input", "image=" + self.path("image.npy"), "--threads", "1"))
        self.assert_fails(1, "expected NAME=FILE.npy", "run", self.engine, "--input", "image.npy")


class BenchTest(FlywheelTest):
    FAST = ("--duration", "0", "--warmup", "0", "--iterations", "20")

    def test_writes_the_figures(self):
        path = self.path("bench.json")
        output = self.run_checked("bench", self.engine, *self.FAST, "--shapes", "image:4x1x28x28", "--threads", "1", "--json", path, "--profile")
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)
        latency = figures["latency_ms"]
        ordered = [latency[name] for name in ("min", "p50", "p90", "p95", "p99", "max")]
        self.assertEqual(ordered, sorted(ordered))
        self.assertGreater(latency["min"], 0)
        self.assertEqual(figures["runs"], 20)
        self.assertAlmostEqual(figures["throughput_per_s"] * figures["seconds"], 80, delta=0.01)
        self.assertEqual(figures["shapes"], {"image": [4, 1, 28, 28]})
        self.assertEqual(figures["threads"], 1)
        self.assertGreater(figures["load_ms"], 0)
        self.assertGreater(figures["peak_rss_bytes"], 1 << 20)
        nodes = [node for step in figures["steps"] for node in step["onnx_nodes"]]
        self.assertIn("stem/conv", nodes)
        self.assertIn("stem/conv", output)

    def test_takes_real_inputs(self):
        self.assertIn("runs of 64", self.run_checked("bench", self.engine, *self.FAST, "--inputs", INPUTS))

    def test_refusals(self):
        self.assert_fails(1, "'picture' is no input of the engine", "bench", self.engine, "--shapes", "picture:1x1x28x28")
        self.assert_fails(1, "outside the engine's profile", "bench", self.engine, "--shapes", "image:99x1x28x28")


class InspectTest(FlywheelTest):
    def test_shows_each_onnx_node_once(self):
        engine = json.loads(self.run_checked("inspect", self.engine, "--json"))
        nodes = [node for step in engine["steps"] for node in step["onnx_nodes"]]
        self.assertEqual(len(nodes), len(set(nodes)))
        self.assertEqual([tensor["name"] for tensor in engine["inputs"]], ["image"])
        self.assertEqual(engine["inputs"][0]["max"], [64, 1, 28, 28])
        self.assertEqual(engine["outputs"][0]["dims"], ["batch", "10"])
        self.assertGreater(engine["arena_bytes"], 0)
        text = self.run_checked("inspect", self.engine)
        for node in nodes:
            self.assertIn(node, text)

    def test_says_whether_it_would_run(self):
        self.assertIn("would run here", self.run_checked("inspect", self.engine, "--check"))
        strong = self.path("avx512.engine")
        self.run_checked("build", MODEL, "-o", strong, "--no-tune", "--isa", "avx512")
        self.assert_fails(1, "needs avx512", "inspect", strong, "--check", FLYWHEEL_ISA="portable")
        self.assertIn("avx512", self.run_checked("inspect", strong, FLYWHEEL_ISA="portable"))

    def test_refuses_what_is_no_engine(self):
        with open(self.engine, "rb") as file:
            good = file.read()
        damaged = self.path("damaged.engine")
        for data, text in ((good[:1000], "truncated"), (b"", ""), (good[:200] + b"\xff" * 64 + good[264:], "corrupt")):
            with open(damaged, "wb") as file:
                file.write(data)
            for verb in (("inspect",), ("run",), ("bench",)):
                self.assert_fails(1, text, *verb, damaged)
        self.assert_fails(1, "not a Flywheel engine", "inspect", MODEL)


class VerifyTest(FlywheelTest):
    def test_agrees_with_reference_and_recording(self):
        output = self.run_checked("verify", self.engine, "--model", MODEL, "--inputs", INPUTS, "--expected", OUTPUTS)
        self.assertRegex(output, r"all \d+ values agree with the reference kernels")
        self.assertIn("output   ok   logits", output)

    def test_makes_inputs_up(self):
        self.assertIn("(made up)", self.run_checked("verify", self.engine, "--model", MODEL))

    def test_names_what_differs(self):
        shape, values = read_floats(OUTPUTS, "logits")
        values = list(values)
        values[123] += 1
        wrong = self.path("wrong.npz")
        write_npz(wrong, {"logits": ("<f4", shape, struct.pack(f"<{len(values)}f", *values))})
        done = self.flywheel("verify", self.engine, "--inputs", INPUTS, "--expected", wrong)
        self.assertEqual(done.returncode, 1)
        self.assertIn("DIFF logits f32 64x10: 1 of 640 elements are outside the tolerance; at 123 it is", done.stdout)
        self.assert_fails(0, "", "verify", self.engine, "--inputs", INPUTS, "--expected", wrong, "--tolerance", "1")

    def test_refuses_another_model(self):
        with open(MODEL, "rb") as file:
            model = file.read()
        other = self.path("other.onnx")
        with open(other, "wb") as file:  # another documentation string: another model
            file.write(model + b"\x32\x05other")
        self.assert_fails(1, "was not built from", "verify", self.engine, "--model", other)


class Serving:
    """A `flywheel serve` process on ports that the system chose; its log is kept."""

    def __init__(self, *arguments):
        command = [FLYWHEEL, "serve", "--http-address", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.log = ""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def wait_for(self, pattern):
        """Reads the log until a line matches."""
        for line in self.process.stderr:
            self.log += line
            found = re.search(pattern, line)
            if found:
                return found
        raise AssertionError(f"the log ended without '{pattern}':\n{self.log}")

    def end(self, number):
        """Sends the signal; the exit code."""
        self.process.send_signal(number)
        self.log += self.process.stderr.read()
        return self.process.wait(timeout=60)


class ServeTest(FlywheelTest):
    def repository(self, name, file, data_from):
        folder = self.path(name)
        os.makedirs(os.path.join(folder, "fashion_mnist/1"))
        shutil.copy(data_from, os.path.join(folder, "fashion_mnist/1", file))
        return folder

    def get(self, url, body=None):
        try:
            with urllib.request.urlopen(url, data=body, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def test_serves_until_it_is_told_to_stop(self):
        image = list(read_floats(INPUTS, "image")[1][:784])
        want = read_floats(OUTPUTS, "logits")[1][:10]
        with Serving("--model-repository", self.repository("engines", "model.engine", self.engine)) as serving:
            port = serving.wait_for(r"listening for HTTP on 127.0.0.1:(\d+)").group(1)
            metrics = serving.wait_for(r"metrics at (\S+)").group(1)
            serving.wait_for("all models are ready")
            server = f"http://127.0.0.1:{port}/v2"
            self.assertEqual(self.get(server + "/health/ready")[0], 200)
            request = {"inputs": [{"name": "image", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": image}]}
            status, body = self.get(server + "/models/fashion_mnist/infer", json.dumps(request).encode())
            self.assertEqual(status, 200, body)
            output = json.loads(body)["outputs"][0]
            self.assertEqual((output["name"], output["shape"]), ("logits", [1, 10]))
            for a, b in zip(output["data"], want):
                self.assertAlmostEqual(a, b, delta=1e-3)
            self.assertRegex(self.get(metrics)[1], r'nv_inference_request_success{model="fashion_mnist",version="1"} 1\n')
            self.assertEqual(serving.end(signal.SIGTERM), 0, serving.log)
            self.assertIn("stopping", serving.log)

    def test_builds_from_onnx_once(self):
        repository, cache = self.repository("onnx", "model.onnx", MODEL), self.path("cache")
        for built in (True, False):
            with Serving("--model-repository", repository, "--cache-dir", cache, "--allow-metrics", "false") as serving:
                serving.wait_for("all models are ready")
                self.assertEqual("building" in serving.log, built, serving.log)
                self.assertEqual(serving.end(signal.SIGINT), 0, serving.log)

    def test_stops_while_it_loads(self):
        with Serving("--model-repository", self.repository("slow", "model.onnx", MODEL), "--cache-dir", self.path("slow-cache")) as serving:
            serving.wait_for("building")
            start = time.monotonic()
            self.assertEqual(serving.end(signal.SIGTERM), 0, serving.log)
            self.assertLess(time.monotonic() - start, 30)

    def test_a_model_that_does_not_load(self):
        broken = self.repository("broken", "model.engine", INPUTS)
        done = self.flywheel("serve", "--model-repository", broken, "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("fashion_mnist", done.stderr)
        self.assertIn("not a Flywheel engine", done.stderr)
        with Serving("--model-repository", broken, "--exit-on-error", "false") as serving:
            port = serving.wait_for(r"listening for HTTP on 127.0.0.1:(\d+)").group(1)
            serving.wait_for("serving without")
            self.assertEqual(self.get(f"http://127.0.0.1:{port}/v2/health/live")[0], 200)
            self.assertNotEqual(self.get(f"http://127.0.0.1:{port}/v2/health/ready")[0], 200)
            self.assertEqual(serving.end(signal.SIGTERM), 0, serving.log)

    def test_refusals(self):
        self.assert_fails(2, "--model-repository", "serve")
        self.assert_fails(2, "--model-control-mode", "serve", "--model-repository", ".", "--model-control-mode", "sometimes")
        self.assert_fails(2, "--http-port", "serve", "--model-repository", ".", "--http-port", "70000")
        self.assert_fails(1, "/nowhere", "serve", "--model-repository", "/nowhere", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")


class UsageTest(FlywheelTest):
    def test_wrong_command_lines(self):
        self.assert_fails(2, "Usage: flywheel")
        self.assert_fails(2, "'fly' is no verb; the verbs are build, run, bench", "fly", self.engine)
        self.assert_fails(2, "required", "run")
        self.assert_fails(2, "--duration", "bench", self.engine, "--duration", "-1")
        self.assert_fails(2, "--model", "verify", self.engine)
        self.assert_fails(2, "", "build", MODEL, "--no-such-flag")

    def test_help_and_version(self):
        text = self.run_checked("--help")
        for verb in ("build", "run", "bench", "inspect", "verify", "serve"):
            self.assertIn(verb, text)
            self.assertIn("--help", self.run_checked(verb, "--help"))
        self.assertRegex(self.run_checked("--version"), r"^flywheel \d+\.\d+\.\d+")


if __name__ == "__main__":
    unittest.main()
