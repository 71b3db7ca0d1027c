#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends the same requests to Flywheel and to real Triton, and compares the answers.

Usage: conformance.py --flywheel build/flywheel            compare Flywheel's answers with those recorded from Triton
       conformance.py --triton FOLDER [--record]           compare (or record) those of the Triton in FOLDER
       conformance.py --write-docs                         write docs/differences.md anew

The expectations in expected.json are what Triton 2.51 answered, so that none is ours. Where Flywheel answers otherwise on purpose,
differences.json has its answer and the reason; docs/differences.md lists them, and a run fails when it does not. FOLDER is laid out as bench/compare_with_triton.py describes.
Prints each difference, then "N passed, N failed". Needs tritonclient[all] and grpcio (scripts/bootstrap --peers makes .venv, which has them).
"""
import argparse
import gzip
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib

import grpc
from cases import TYPES, grpc_cases, http_cases
from google.protobuf import json_format
from models import write_models
from tritonclient.grpc import service_pb2, service_pb2_grpc

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(HERE, "../../../../docs/differences.md")
VOLATILE = re.compile(r'"(last_inference|ns|lastInference)": ?"?\d+"?')


class Server:
    def __init__(self, options, folder):
        models = f"{folder}/models"
        loaded = write_models(models, TYPES)
        environment = dict(os.environ)
        if options.flywheel:
            # The models' Python has to have NumPy.
            environment["PATH"] = os.path.dirname(sys.executable) + ":" + environment["PATH"]
            command = [options.flywheel, "serve", "--model-repository", models, "--model-control-mode", "explicit", "--http-address", "127.0.0.1", "--http-port", "0",
                       "--grpc-port", "0", "--allow-metrics", "false", "--allow-client-shm", "true"]
        else:
            triton = os.path.abspath(options.triton)
            packages = next(os.path.join(root, "site-packages") for root, folders, _ in os.walk(f"{triton}/venv/lib") if "site-packages" in folders)
            library = subprocess.run([f"{triton}/venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
                                     capture_output=True, text=True, check=True).stdout.strip()
            environment |= {"LD_LIBRARY_PATH": library, "PATH": f"{triton}/venv/bin:" + environment["PATH"], "PYTHONPATH": packages}
            command = [f"{packages}/pytriton/tritonserver/bin/tritonserver", f"--model-repository={models}", f"--backend-directory={triton}/backends",
                       "--model-control-mode=explicit", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--http-port=18120", "--grpc-port=18121",
                       "--allow-metrics=false"]
        for name in loaded:
            command += ["--load-model", name] if options.flywheel else [f"--load-model={name}"]
        self.log = f"{folder}/log"
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        self.ports = None if options.flywheel else {"http": 18120, "grpc": 18121}
        end = time.time() + 120
        while time.time() < end and self.process.poll() is None:
            with open(self.log, errors="replace") as log:
                text = log.read()
            found = dict(re.findall(r"listening for (HTTP|gRPC) on 127.0.0.1:(\d+)", text))
            if len(found) == 2:
                self.ports = {"http": int(found["HTTP"]), "grpc": int(found["gRPC"])}
            if self.ports and self.is_ready():
                return
            time.sleep(0.2)
        with open(self.log, errors="replace") as log:
            sys.exit("the server does not get ready:\n" + log.read()[-3000:])

    def is_ready(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=5)
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def pick(value, path):
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def shape_of(value):
    """Names and types in place of values that are each server's own."""
    return {key: type(item).__name__ for key, item in value.items()}


def tidy(value, case):
    if isinstance(value, dict) and "only" in case:
        value = {key: pick(value, key) for key in case["only"] if pick(value, key) is not None}
    if case.get("types") and isinstance(value, dict):
        value = shape_of(value)
    if case.get("sort"):
        rows = value if isinstance(value, list) else value.get("models", []) if isinstance(value, dict) else []
        rows.sort(key=lambda row: (row.get("name", ""), row.get("version", "")))
    return json.loads(VOLATILE.sub(r'"\1": 0', json.dumps(value)))


def ask_http(port, case):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = dict(case.get("headers", {}))
    connection.request(case["method"], case["path"], case.get("body"), headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    coding = response.getheader("Content-Encoding")
    if coding == "gzip":
        body = gzip.decompress(body)
    elif coding == "deflate":
        body = zlib.decompress(body)
    answer = {"status": response.status}
    if coding:
        answer["coding"] = coding
    length = response.getheader("Inference-Header-Content-Length")
    if length:
        answer["binary"] = body[int(length):].hex()
        body = body[:int(length)]
    text = body.decode(errors="replace")
    try:
        answer["json"] = tidy(json.loads(text), case)
    except ValueError:
        if text:
            answer["text"] = text
    return answer


def ask_grpc(stub, case):
    method = case["method"]
    request_type = {"ModelStreamInfer": "ModelInferRequest"}.get(method, method + "Request")
    many = isinstance(case["message"], list)
    messages = [json_format.ParseDict(message, getattr(service_pb2, request_type)()) for message in (case["message"] if many else [case["message"]])]
    try:
        if many:
            # One at a time, so that the order of answers does not depend on the models.
            answers = []
            for message in messages:
                answers += [json_format.MessageToDict(answer) for answer in getattr(stub, method)(iter([message]), timeout=60)]
            return {"code": "OK", "json": tidy(answers, case)}
        return {"code": "OK", "json": tidy(json_format.MessageToDict(getattr(stub, method)(messages[0], timeout=60)), case)}
    except grpc.RpcError as error:
        return {"code": error.code().name, "details": error.details()}


def ask_all(server):
    answers = {}
    for case in http_cases():
        answers[f"http: {case['name']}"] = ask_http(server.ports["http"], case)
        time.sleep(case.get("wait", 0))
    with grpc.insecure_channel(f"127.0.0.1:{server.ports['grpc']}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for case in grpc_cases():
            answers[f"grpc: {case['name']}"] = ask_grpc(stub, case)
            time.sleep(case.get("wait", 0))
    return answers


def load(name):
    path = os.path.join(HERE, name)
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return json.load(file)


def brief(answer):
    """An answer in a line of the docs."""
    said = answer.get("details") or (answer.get("json") or {}).get("error") or answer.get("text") or ""
    said = said.split("\n")[0]
    return f"{answer.get('status', answer.get('code'))} {'`' + said[:117] + ('...' if len(said) > 117 else '') + '`' if said else ''}".strip()


def write_docs():
    expected, differences = load("expected.json"), load("differences.json")
    by_reason = {}
    for name, difference in differences.items():
        by_reason.setdefault(difference["reason"], []).append(name)
    total = len(expected)
    text = ["# Where answers differ from Triton's", "",
            f"{total} requests, sent to Triton 2.51 and to Flywheel over HTTP and gRPC: {total - len(differences)} answers are the same, status, texts and numbers,",
            f"{len(differences)} differ on purpose. Written by `src/server/protocol/conformance/conformance.py`, which the tests run.", ""]
    for reason, names in by_reason.items():
        text += [f"## {reason.rstrip('.')}", "", "| request | Triton | Flywheel |", "|---|---|---|"]
        for name in names:
            text.append(f"| {name} | {brief(expected[name])} | {brief(differences[name]['answer'])} |".replace("\n", " "))
        text.append("")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flywheel")
    parser.add_argument("--triton")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--write-docs", action="store_true")
    parser.add_argument("--dump", help="write all answers there")
    options = parser.parse_args()
    if options.write_docs:
        with open(DOCS, "w") as file:
            file.write(write_docs())
        return 0
    if bool(options.flywheel) == bool(options.triton) or (options.record and not options.triton):
        parser.error("give --flywheel, or --triton with or without --record")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options, folder)
        try:
            answers = ask_all(server)
        finally:
            server.stop()
    if options.dump:
        with open(options.dump, "w") as file:
            json.dump(answers, file, indent=1)
    if options.record:
        with open(os.path.join(HERE, "expected.json"), "w") as file:
            json.dump(answers, file, indent=1)
            file.write("\n")
        return 0
    expected, differences = load("expected.json"), load("differences.json")
    failed = 0
    for name in sorted(expected.keys() | answers.keys()):
        wanted = expected.get(name)
        if options.flywheel and name in differences:
            if differences[name]["answer"] == wanted:
                failed += 1
                print(f"FAIL {name}: differences.json has Triton's own answer")
            wanted = differences[name]["answer"]
        if answers.get(name) != wanted:
            failed += 1
            print(f"FAIL {name}\n  expected {json.dumps(wanted)}\n  found    {json.dumps(answers.get(name))}")
    for name in differences.keys() - expected.keys():
        failed += 1
        print(f"FAIL {name}: a difference of a case that is not there")
    with open(DOCS) as file:
        if file.read() != write_docs():
            failed += 1
            print("FAIL docs/differences.md is not what differences.json says: run conformance.py --write-docs")
    print(f"{len(expected.keys() | answers.keys()) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
