#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gRPC clients that people have, unmodified, against the real program: tritonclient (sync, asyncio, streams) and grpcio's health, reflection
and generic calls.

Called by CTest in .venv (scripts/bootstrap --peers) with FLYWHEEL naming the program, or by hand.
"""
import asyncio
import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import grpc
import numpy as np
import onnx
import tritonclient.grpc as client
import tritonclient.grpc.aio as aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from onnx import TensorProto, helper
from tritonclient.grpc import service_pb2, service_pb2_grpc

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLYWHEEL = os.environ.get("FLYWHEEL", os.path.join(ROOT, "build/flywheel"))

# Gives back each value of x as a response of its own.
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
SLEEP_CONFIG = """
backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
"""
SLEEP = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = request.inputs()[0].as_numpy()
            time.sleep(float(x[0]))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
        return responses
"""


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb" if isinstance(content, bytes) else "w") as file:
        file.write(content)


def identity_onnx(columns):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", columns]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


def row(value):
    """The input of `echo`, one row."""
    return tensor_of([[value] * 4])


def tensor_of(values):
    array = np.asarray(values, np.float32)
    tensor = client.InferInput("x", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return [tensor]


TELL_CONFIG = """
backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_STRING dims: [1] }
"""
TELL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array([request.parameters().encode()], np.object_))]) for request in requests]
"""


class GrpcServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        models = cls.folder.name
        for name, columns in (("echo", 4), ("wide", 500_000)):
            write(f"{models}/{name}/1/model.onnx", identity_onnx(columns))
            write(f"{models}/{name}/config.pbtxt", "max_batch_size: 8")
        write(f"{models}/repeat/config.pbtxt", REPEAT_CONFIG)
        write(f"{models}/repeat/1/model.py", REPEAT)
        write(f"{models}/sleep/config.pbtxt", SLEEP_CONFIG)
        write(f"{models}/sleep/1/model.py", SLEEP)
        write(f"{models}/tell/config.pbtxt", TELL_CONFIG)
        write(f"{models}/tell/1/model.py", TELL)
        environment = dict(os.environ, PATH=os.path.join(ROOT, ".venv/bin") + ":" + os.environ["PATH"])
        cls.server = subprocess.Popen(
            [FLYWHEEL, "serve", "--model-repository", models, "--model-control-mode", "explicit", "--load-model", "echo", "--load-model", "wide", "--load-model", "sleep",
             "--http-address", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--allow-metrics", "false"] + cls.server_flags(),
            stderr=subprocess.PIPE, text=True, env=environment)
        log = ""
        for line in cls.server.stderr:
            log += line
            found = re.search(r"listening for gRPC on (\S+)", line)
            if found:
                cls.address = found.group(1)
            if "all models are ready" in line:
                break
        else:
            raise AssertionError("the server did not start:\n" + log)
        threading.Thread(target=lambda: [None for _ in cls.server.stderr], daemon=True).start()

    @classmethod
    def server_flags(cls):
        return []

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGTERM)
        code = cls.server.wait(timeout=60)
        cls.folder.cleanup()
        assert code == 0, code

    def setUp(self):
        self.client = client.InferenceServerClient(self.address)

    def tearDown(self):
        self.client.close()

    def assert_fails(self, code, text, call):
        with self.assertRaises(client.InferenceServerException) as raised:
            call()
        self.assertIn(code, str(raised.exception.status()))
        self.assertIn(text, raised.exception.message())


class GrpcClientsTest(GrpcServerTest):
    def test_loads_a_model_that_comes_with_the_request(self):
        self.client.load_model("sent", config='{"max_batch_size": 4}', files={"file:7/model.onnx": identity_onnx(4)})
        np.testing.assert_array_equal(self.client.infer("sent", row(3), "7").as_numpy("y"), [[3, 3, 3, 3]])
        self.client.unload_model("sent")
        self.assert_fails("INVALID_ARGUMENT", "send 'config', too", lambda: self.client.load_model("sent", files={"file:7/model.onnx": b"x"}))

    def test_tells_about_itself(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("echo"))
        self.assertFalse(self.client.is_model_ready("nope"))
        self.assertEqual(self.client.get_server_metadata().name, "flywheel")
        self.assertEqual(list(self.client.get_model_metadata("echo").inputs[0].shape), [-1, 4])
        self.assertEqual(self.client.get_model_config("echo").config.max_batch_size, 8)
        self.assertIn("echo", [row.name for row in self.client.get_inference_statistics().model_stats])
        self.assertIn("echo", [row.name for row in self.client.get_model_repository_index().models])

    def test_infers(self):
        result = self.client.infer("echo", tensor_of(np.arange(32).reshape(8, 4)), request_id="7", outputs=[client.InferRequestedOutput("y")])
        np.testing.assert_array_equal(result.as_numpy("y"), np.arange(32).reshape(8, 4))
        self.assertEqual(result.get_response().id, "7")
        self.assert_fails("NOT_FOUND", "unknown model: 'nope'", lambda: self.client.infer("nope", row(1)))
        self.assert_fails("INVALID_ARGUMENT", "batch-size must be <= 8", lambda: self.client.infer("echo", tensor_of(np.zeros((9, 4)))))

    def test_large_and_compressed_tensors(self):
        values = np.random.default_rng(1).random((8, 500_000), np.float32)
        np.testing.assert_array_equal(self.client.infer("wide", tensor_of(values)).as_numpy("y"), values)
        for algorithm in ("gzip", "deflate"):
            result = self.client.infer("wide", tensor_of(values[:1]), compression_algorithm=algorithm)
            np.testing.assert_array_equal(result.as_numpy("y"), values[:1])

    def test_many_at_once(self):
        answers = queue.Queue()
        for i in range(1000):
            self.client.async_infer("echo", row(i), lambda result, error: answers.put((result, error)), request_id=str(i))
        for _ in range(1000):
            result, error = answers.get(timeout=30)
            self.assertIsNone(error)
            self.assertEqual(result.as_numpy("y")[0, 0], float(result.get_response().id))

    def test_streams(self):
        answers = queue.Queue()
        self.client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(500):
            self.client.async_stream_infer("echo", row(i), request_id=str(i))
        for i in range(500):
            result, error = answers.get(timeout=30)
            self.assertIsNone(error)
            self.assertEqual(result.get_response().id, str(i))
            self.assertEqual(result.as_numpy("y")[0, 0], i)
        self.client.async_stream_infer("nope", row(1))
        self.assertIn("unknown model", answers.get(timeout=30)[1].message())
        self.client.async_stream_infer("echo", row(1))
        self.assertIsNone(answers.get(timeout=30)[1])
        self.client.stop_stream()

    def test_decoupled_models(self):
        self.client.load_model("repeat")
        self.assert_fails("UNIMPLEMENTED", "decoupled transaction policy", lambda: self.client.infer("repeat", tensor_of([1, 2])))
        answers = queue.Queue()
        self.client.start_stream(lambda result, error: answers.put((result, error)))
        for final in (False, True):
            for values in ([1, 2, 3], []):
                self.client.async_stream_infer("repeat", tensor_of(values), request_id="r", enable_empty_final_response=final)
                for value in values:
                    result, error = answers.get(timeout=30)
                    self.assertIsNone(error)
                    self.assertEqual(result.as_numpy("y")[0], value)
                    self.assertFalse(result.get_response().parameters["triton_final_response"].bool_param)
                if final:
                    result, error = answers.get(timeout=30)
                    self.assertIsNone(error)
                    self.assertTrue(result.get_response().parameters["triton_final_response"].bool_param)
                    self.assertEqual(len(result.get_response().outputs), 0)
        self.assertTrue(answers.empty())
        self.client.stop_stream()
        self.client.unload_model("repeat")
        self.assertFalse(self.client.is_model_ready("repeat"))

    def test_deadlines_and_cancels(self):
        before = self.sleep_statistics()
        running = self.client.async_infer("sleep", tensor_of([1]), lambda result, error: None)
        self.assert_fails("DEADLINE_EXCEEDED", "", lambda: self.client.infer("sleep", tensor_of([0]), client_timeout=0.2))
        waiting = self.client.async_infer("sleep", tensor_of([0]), lambda result, error: None)
        waiting.cancel()
        self.client.infer("sleep", tensor_of([0]))
        after = self.sleep_statistics()
        # Only the first and the last were executed.
        self.assertEqual(after.inference_count - before.inference_count, 2)
        self.assertEqual(after.inference_stats.fail.count - before.inference_stats.fail.count, 2)
        del running

    def sleep_statistics(self):
        return self.client.get_inference_statistics("sleep").model_stats[0]

    def test_asyncio(self):
        async def run():
            async with aio.InferenceServerClient(self.address) as asynchronous:
                results = await asyncio.gather(*[asynchronous.infer("echo", row(i)) for i in range(200)])
                self.assertEqual([result.as_numpy("y")[0, 0] for result in results], list(range(200)))

                async def requests():
                    for i in range(50):
                        yield {"model_name": "echo", "inputs": row(i)}

                got = []
                async for result, error in asynchronous.stream_infer(requests()):
                    self.assertIsNone(error)
                    got.append(result.as_numpy("y")[0, 0])
                self.assertEqual(got, list(range(50)))

        asyncio.run(run())

    def test_typed_contents(self):
        request = service_pb2.ModelInferRequest(model_name="echo")
        tensor = request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
        tensor.contents.fp32_contents.extend([1, 2, 3, 4])
        with grpc.insecure_channel(self.address) as channel:
            response = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
        np.testing.assert_array_equal(np.frombuffer(response.raw_output_contents[0], np.float32), [1, 2, 3, 4])

    def test_health_reflection_and_unknown_methods(self):
        with grpc.insecure_channel(self.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            self.assertEqual(health.Check(health_pb2.HealthCheckRequest()).status, health_pb2.HealthCheckResponse.SERVING)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
            watch.cancel()
            descriptors = ProtoReflectionDescriptorDatabase(channel)
            self.assertIn("inference.GRPCInferenceService", descriptors.get_services())
            service = DescriptorPool(descriptors).FindServiceByName("inference.GRPCInferenceService")
            self.assertEqual({method.name for method in service.methods},
                             {method.name for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods})
            for message in service_pb2.DESCRIPTOR.message_types_by_name.values():
                self.assert_same_fields(message, DescriptorPool(descriptors).FindMessageTypeByName(message.full_name))
            with self.assertRaises(grpc.RpcError) as raised:
                channel.unary_unary("/no.Service/Method")(b"")
            self.assertEqual(raised.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def assert_same_fields(self, theirs, ours):
        def fields(message):
            return {(field.name, field.number, field.type, field.message_type.full_name if field.message_type else "") for field in message.fields}

        self.assertEqual(fields(theirs), fields(ours), theirs.full_name)
        for nested in theirs.nested_types:
            self.assert_same_fields(nested, ours.nested_types_by_name[nested.name])


class GrpcFlagsTest(GrpcServerTest):
    KEY = {"triton-grpc-protocol-admin-key": "secret"}

    @classmethod
    def server_flags(cls):
        cls.trace = os.path.join(cls.folder.name, "trace.json")
        return ["--load-model", "tell", "--grpc-restricted-protocol", "health,model-repository:admin-key=secret", "--grpc-header-forward-pattern", "^x-",
                "--trace-config", f"triton,file={cls.trace}", "--trace-config", "level=TIMESTAMPS", "--trace-config", "rate=1"]

    def test_restricted_calls_need_their_key(self):
        for call in (self.client.is_server_live, self.client.get_model_repository_index, lambda **more: self.client.load_model("echo", **more)):
            for headers in ({}, {"admin-key": "secret"}, {"triton-grpc-protocol-admin-key": "wrong"}):
                self.assert_fails("UNAVAILABLE", "This protocol is restricted, expecting header 'triton-grpc-protocol-admin-key'", lambda: call(headers=headers))
            call(headers=self.KEY)
        with grpc.insecure_channel(self.address) as channel, self.assertRaises(grpc.RpcError) as raised:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(self.client.get_server_metadata().name, "flywheel")

    def test_metadata_becomes_parameters(self):
        given = self.client.infer("tell", tensor_of([1]), headers={"x-tenant": "seven", "other": "no"}, parameters={"own": 1}).as_numpy("y")[0]
        self.assertEqual(json.loads(given), {"x-tenant": "seven", "own": 1})

    def test_requests_are_traced(self):
        self.client.infer("echo", row(1), request_id="traced")
        answers = queue.Queue()
        self.client.start_stream(lambda result, error: answers.put((result, error)))
        self.client.async_stream_infer("echo", row(2), request_id="streamed")
        self.assertIsNone(answers.get(timeout=60)[1])
        self.client.stop_stream()
        end = time.time() + 60
        while time.time() < end:
            try:
                with open(self.trace) as file:
                    records = json.load(file)
            except (OSError, ValueError):
                records = []
            ids = {record["request_id"]: record["id"] for record in records if "request_id" in record}
            stamps = {name: {stamp["name"] for record in records if record["id"] == ids.get(name) for stamp in record.get("timestamps", [])}
                      for name in ("traced", "streamed")}
            wanted = {"GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END",
                      "INFER_RESPONSE_COMPLETE", "GRPC_SEND_START", "GRPC_SEND_END"}
            if all(wanted <= found for found in stamps.values()):
                return
            time.sleep(0.1)
        self.fail(f"missing: {[wanted - found for found in stamps.values()]}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
