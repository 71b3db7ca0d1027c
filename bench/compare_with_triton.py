#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests per second, latency and CPU time of Flywheel's server against Triton's, in turns on the same machine.

Usage: compare_with_triton.py --flywheel build/flywheel --triton FOLDER [--conc 1,16,64] [--rounds 3] [--seconds 3] [--only http,grpc]

The model gives back its input: 16 floats, so that what is measured is the server. FOLDER holds a Triton server that runs on a CPU, as the
nvidia-pytriton wheel has it: FOLDER/venv with that wheel, and FOLDER/backends/identmin with a backend that gives back INPUT0 as OUTPUT0.
Both servers stay up; each round gives each of them one turn with the same load tool (wrk for HTTP, h2load for gRPC: Debian's packages wrk
and nghttp2-client), on one thread. Printed for each number of requests in flight: medians over the rounds of requests/s, p50, p99 and the
server's CPU time a request, their ratios, and at the end the resident memory of both.
"""
import argparse
import glob
import json
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

WIDTH = 16
HTTP = {"flywheel": 18000, "triton": 18010}
GRPC = {"flywheel": 18001, "triton": 18011}
TICKS = os.sysconf("SC_CLK_TCK")

CONFIG = """name: "echo"
%smax_batch_size: 64
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def identity_onnx():
    """ONNX's bytes, so that this script needs no package: Identity over FP32 [n, 16]."""
    def tensor_type(name):
        dims = field(1, field(2, b"n")) + field(1, varint(1 << 3) + varint(WIDTH))
        return field(1, name) + field(2, field(1, varint(1 << 3) + varint(1) + field(2, dims)))
    node = field(1, b"INPUT0") + field(2, b"OUTPUT0") + field(4, b"Identity")
    graph = field(1, node) + field(2, b"echo") + field(11, tensor_type(b"INPUT0")) + field(12, tensor_type(b"OUTPUT0"))
    return varint(1 << 3) + varint(8) + field(7, graph) + field(8, varint(2 << 3) + varint(17))


def values():
    return struct.pack(f"<{WIDTH}f", *[(i * 37 % 101) / 101 for i in range(WIDTH)])


def http_request():
    head = {"inputs": [{"name": "INPUT0", "shape": [1, WIDTH], "datatype": "FP32", "parameters": {"binary_data_size": 4 * WIDTH}}],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}
    text = json.dumps(head).encode()
    return text + values(), {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"}


def grpc_request():
    tensor = field(1, b"INPUT0") + field(2, b"FP32") + field(3, varint(1) + varint(WIDTH))
    message = field(1, b"echo") + field(5, tensor) + field(7, values())
    return b"\0" + struct.pack(">I", len(message)) + message


class Server:
    def __init__(self, name, command, log, environment=None):
        self.name, self.log = name, log
        with open(log, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **(environment or {})})

    def wait_until_ready(self):
        end = time.time() + 60
        while time.time() < end and self.process.poll() is None:
            try:
                body, fields = http_request()
                request = urllib.request.Request(f"http://127.0.0.1:{HTTP[self.name]}/v2/models/echo/infer", body, fields)
                answer = urllib.request.urlopen(request, timeout=5).read()
                assert answer.endswith(values()), f"{self.name} gave something else back"
                return
            except OSError:
                time.sleep(0.2)
        with open(self.log, errors="replace") as log:
            sys.exit(f"{self.name} does not serve:\n{log.read()[-2000:]}")

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run_wrk(server, in_flight, seconds, folder):
    body, fields = http_request()
    script = os.path.join(folder, "request.lua")
    with open(os.path.join(folder, "body"), "wb") as out:
        out.write(body)
    with open(script, "w") as out:
        out.write(f'local f=io.open("{folder}/body","rb") wrk.method="POST" wrk.body=f:read("*a") f:close()\n')
        out.writelines(f'wrk.headers["{key}"]="{value}"\n' for key, value in fields.items())
        out.write('done=function(s,l,r) io.write(string.format("R %d %d %d %d %d\\n",s.requests,s.duration,l:percentile(50),l:percentile(99),'
                  's.errors.connect+s.errors.read+s.errors.write+s.errors.status+s.errors.timeout)) end\n')
    done = subprocess.run(["wrk", "-t1", f"-c{in_flight}", f"-d{seconds}s", "-s", script, f"http://127.0.0.1:{HTTP[server.name]}/v2/models/echo/infer"],
                          capture_output=True, text=True, check=True).stdout
    count, duration_us, p50, p99, errors = map(int, re.search(r"^R (.*)$", done, re.M).group(1).split())
    return count, count / duration_us * 1e6, p50, p99, errors


def run_h2load(server, in_flight, seconds, folder):
    body, log = os.path.join(folder, "message"), os.path.join(folder, "h2load.log")
    with open(body, "wb") as out:
        out.write(grpc_request())
    if os.path.exists(log):
        os.remove(log)
    done = subprocess.run(["h2load", "-t1", f"-c{in_flight}", "-m1", f"-D{seconds}", "-d", body, "-H", "content-type: application/grpc", "-H",
                           "te: trailers", "--log-file", log, f"http://127.0.0.1:{GRPC[server.name]}/inference.GRPCInferenceService/ModelInfer"],
                          capture_output=True, text=True, check=True).stdout
    with open(log) as lines:
        rows = [line.split() for line in lines]
    times = sorted(int(row[2]) for row in rows if row[1] == "200")
    errors = len(rows) - len(times) + int(re.search(r"(\d+) errored", done).group(1))
    return len(times), len(times) / seconds, times[len(times) // 2], times[int(len(times) * 0.99)], errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flywheel", required=True)
    parser.add_argument("--triton", required=True)
    parser.add_argument("--conc", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--only", default="http,grpc")
    options = parser.parse_args()
    for tool in ("wrk", "h2load"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is not installed: apt-get install wrk nghttp2-client")
    folder = tempfile.mkdtemp()
    for name, line, file in (("flywheel", "", "model.onnx"), ("triton", 'backend: "identmin"\n', "none")):
        os.makedirs(f"{folder}/{name}/echo/1")
        with open(f"{folder}/{name}/echo/config.pbtxt", "w") as out:
            out.write(CONFIG % line)
        with open(f"{folder}/{name}/echo/1/{file}", "wb") as out:
            out.write(identity_onnx() if name == "flywheel" else b"")

    triton = os.path.abspath(options.triton)
    packages = glob.glob(f"{triton}/venv/lib/python3*/site-packages")[0]
    library = subprocess.run([f"{triton}/venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
                             capture_output=True, text=True, check=True).stdout.strip()
    servers = [
        Server("flywheel", [options.flywheel, "serve", "--model-repository", f"{folder}/flywheel", "--http-address", "127.0.0.1",
                            "--http-port", str(HTTP["flywheel"]), "--metrics-port", "0", *(
                                ["--grpc-address", "127.0.0.1", "--grpc-port", str(GRPC["flywheel"])] if "grpc" in options.only else [])],
               f"{folder}/flywheel.log"),
        Server("triton", [f"{packages}/pytriton/tritonserver/bin/tritonserver", f"--model-repository={folder}/triton", f"--backend-directory={triton}/backends",
                          "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1", f"--http-port={HTTP['triton']}",
                          f"--grpc-port={GRPC['triton']}", "--metrics-port=18012"], f"{folder}/triton.log",
               {"LD_LIBRARY_PATH": library, "PATH": f"{triton}/venv/bin:" + os.environ["PATH"], "PYTHONPATH": packages}),
    ]
    try:
        for server in servers:
            server.wait_until_ready()
        print(f"{'':>5} {'in flight':>9} | {'requests/s':>21} {'ratio':>6} | {'p50 us':>15} {'ratio':>6} | {'p99 us':>15} | {'CPU us/request':>15} {'ratio':>6} | errors")
        print(f"{'':>5} {'':>9} | {'Flywheel':>10} {'Triton':>10} {'':>6} | {'Flywheel':>8} {'Triton':>6}")
        for protocol, tool in (("http", run_wrk), ("grpc", run_h2load)):
            if protocol not in options.only.split(","):
                continue
            for in_flight in map(int, options.conc.split(",")):
                rows = {server.name: [] for server in servers}
                errors = 0
                for _ in range(options.rounds):
                    for server in servers:
                        before = server.cpu_s()
                        count, rate, p50, p99, failed = tool(server, in_flight, options.seconds, folder)
                        rows[server.name].append((rate, p50, p99, (server.cpu_s() - before) / count * 1e6))
                        errors += failed
                (rate, p50, p99, cpu), (rate_t, p50_t, p99_t, cpu_t) = ([statistics.median(column) for column in zip(*rows[s.name])] for s in servers)
                print(f"{protocol:>5} {in_flight:>9} | {rate:>10,.0f} {rate_t:>10,.0f} {rate / rate_t:>6.2f} | {p50:>8.0f} {p50_t:>6.0f} {p50 / p50_t:>6.2f} | "
                      f"{p99:>8.0f} {p99_t:>6.0f} | {cpu:>8.1f} {cpu_t:>6.1f} {cpu / cpu_t:>6.2f} | {errors}", flush=True)
        memory = [server.resident_mb() for server in servers]
        print(f"resident memory: Flywheel {memory[0]:.0f} MB, Triton {memory[1]:.0f} MB, ratio {memory[0] / memory[1]:.2f}")
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
