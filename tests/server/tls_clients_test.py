#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TLS as clients use it, against the real program: curl, tritonclient over HTTP and gRPC, and clients that do not speak it.

Called by CTest in .venv (scripts/bootstrap --peers) with FLYWHEEL naming the program, or by hand. Needs the command-line tools curl and openssl.
"""
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import numpy as np
import onnx
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLYWHEEL = os.environ.get("FLYWHEEL", os.path.join(ROOT, "build/flywheel"))
COLUMNS = 100_000


def write_certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt"],
                   check=True, capture_output=True)


class Server:
    def __init__(self, models, *flags):
        self.process = subprocess.Popen([FLYWHEEL, "serve", "--model-repository", models, "--http-address", "127.0.0.1", "--http-port", "0", "--grpc-port", "0",
                                         "--metrics-port", "0", *flags], stderr=subprocess.PIPE, text=True)
        self.log, self.address = "", {}
        for line in self.process.stderr:
            self.log += line
            if found := re.search(r"listening for (\S+) on 127.0.0.1:(\d+)|metrics at http(?:s?)://127.0.0.1:(\d+)", line):
                self.address[found.group(1) or "metrics"] = int(found.group(2) or found.group(3))
            if "all models are ready" in line:
                break
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.log += line

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self.reader.join()
        self.process.stderr.close()
        return code


def infer(module, client, rows):
    x = np.random.default_rng(rows).standard_normal((rows, COLUMNS), dtype=np.float32)
    tensor = module.InferInput("x", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    np.testing.assert_array_equal(client.infer("wide", [tensor]).as_numpy("y"), x)


class TlsClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        for name in ("server", "client", "stranger"):
            write_certificate(cls.folder, name)
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", COLUMNS]) for name in "xy")
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
        os.makedirs(f"{cls.folder}/models/wide/1")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"{cls.folder}/models/wide/1/model.onnx")
        with open(f"{cls.folder}/models/wide/config.pbtxt", "w") as file:
            file.write("max_batch_size: 8")
        files = [f"{cls.folder}/server.crt", f"{cls.folder}/server.key"]
        cls.server = Server(f"{cls.folder}/models", "--http-use-ssl", "true", "--http-server-cert", files[0], "--http-server-key", files[1],
                            "--grpc-use-ssl", "true", "--grpc-use-ssl-mutual", "true", "--grpc-server-cert", files[0], "--grpc-server-key", files[1],
                            "--grpc-root-cert", f"{cls.folder}/client.crt", "--metrics-use-ssl", "true")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.temporary.cleanup()
        assert code == 0, code

    def curl(self, port, path, *flags):
        return subprocess.run(["curl", "-sS", "--max-time", "20", "--cacert", f"{self.folder}/server.crt", *flags, f"https://localhost:{port}{path}"],
                              capture_output=True, text=True)

    def http(self):
        return tritonclient.http.InferenceServerClient(f"localhost:{self.server.address['HTTP']}", ssl=True, ssl_options={"ca_certs": f"{self.folder}/server.crt"})

    def grpc(self, identity):
        files = {"root_certificates": f"{self.folder}/server.crt"}
        if identity:
            files |= {"private_key": f"{self.folder}/{identity}.key", "certificate_chain": f"{self.folder}/{identity}.crt"}
        return tritonclient.grpc.InferenceServerClient(f"localhost:{self.server.address['gRPC']}", ssl=True, **files)

    def test_curl(self):
        self.assertEqual(self.curl(self.server.address["HTTP"], "/v2/health/ready", "-o", "/dev/null", "-w", "%{http_code} %{http_version}").stdout, "200 1.1")
        self.assertIn("nv_inference_count", self.curl(self.server.address["metrics"], "/metrics").stdout)
        self.assertEqual(self.curl(self.server.address["HTTP"], "/v2", "--tls-max", "1.1").returncode, 35)

    def test_old_and_new_versions(self):
        for version in ("1.2", "1.3"):
            self.assertIn('"name":"flywheel"', self.curl(self.server.address["HTTP"], "/v2", f"--tlsv{version}", "--tls-max", version).stdout)

    def test_http_client(self):
        with self.http() as client:
            for rows in (1, 8, 2, 8):
                infer(tritonclient.http, client, rows)

    def test_grpc_client_with_a_certificate(self):
        with self.grpc("client") as client:
            self.assertTrue(client.is_server_ready())
            for rows in (1, 8, 2, 8):
                infer(tritonclient.grpc, client, rows)

    def test_grpc_clients_without_the_right_certificate_are_refused(self):
        for identity in (None, "stranger"):
            with self.grpc(identity) as client, self.assertRaises(tritonclient.grpc.InferenceServerException) as raised:
                client.is_server_ready(client_timeout=10)
            self.assertIn("UNAVAILABLE", str(raised.exception.status()) + raised.exception.message())

    def test_those_who_do_not_speak_it_disturb_nobody(self):
        idle = socket.create_connection(("127.0.0.1", self.server.address["HTTP"]))
        for port in (self.server.address["HTTP"], self.server.address["gRPC"]):
            for bytes_sent in (b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\xff\xff" + os.urandom(70_000), b"\x16"):
                with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                    answer = b""
                    try:
                        client.sendall(bytes_sent)
                        client.shutdown(socket.SHUT_WR)
                        while chunk := client.recv(4096):
                            answer += chunk
                    except OSError:  # the server may have closed first
                        pass
                    self.assertNotIn(b"HTTP", answer)
        with self.http() as client:
            infer(tritonclient.http, client, 1)
        idle.close()

    def test_a_new_certificate_is_taken_while_it_serves(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        write_certificate(folder, "localhost")
        server = Server(f"{self.folder}/models", "--http-use-ssl", "true", "--http-server-cert", f"{folder}/localhost.crt", "--http-server-key",
                        f"{folder}/localhost.key", "--allow-grpc", "false", "--allow-metrics", "false")
        try:
            call = ["curl", "-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}", f"https://localhost:{server.address['HTTP']}/v2", "--cacert"]
            os.link(f"{folder}/localhost.crt", f"{folder}/old.crt")
            self.assertEqual(subprocess.run(call + [f"{folder}/old.crt"], capture_output=True, text=True).stdout, "200")
            other = tempfile.mkdtemp(dir=self.folder)
            write_certificate(other, "localhost")
            for ending in ("crt", "key"):
                os.replace(f"{other}/localhost.{ending}", f"{folder}/localhost.{ending}")
            end = time.time() + 30
            while subprocess.run(call + [f"{folder}/localhost.crt"], capture_output=True, text=True).stdout != "200":
                self.assertLess(time.time(), end)
                time.sleep(0.2)
            self.assertNotEqual(subprocess.run(call + [f"{folder}/old.crt"], capture_output=True, text=True).stdout, "200")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_wrong_files_end_it_with_a_reason(self):
        for flags, reason in ((["--http-use-ssl", "true"], "HTTP service: TLS needs a file with the certificate"),
                              (["--grpc-use-ssl", "true", "--grpc-server-cert", f"{self.folder}/server.crt", "--grpc-server-key", f"{self.folder}/client.key"],
                               f"does not fit certificate '{self.folder}/server.crt'"),
                              (["--metrics-use-ssl", "true"], "--metrics-use-ssl takes HTTP's certificate")):
            done = subprocess.run([FLYWHEEL, "serve", "--model-repository", f"{self.folder}/models", "--http-address", "127.0.0.1", "--http-port", "0",
                                   "--grpc-port", "0", "--metrics-port", "0", *flags], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(reason, done.stderr)


if __name__ == "__main__":
    unittest.main()
