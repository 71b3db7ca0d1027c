#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How close the server comes to what sockets give, and what many or slow clients cost.

Usage: server_limits.py --flywheel build/flywheel [--rounds 5] [--seconds 2] [--only rate,latency,idle,slow]

rate     requests/s with 16 in flight, a tensor of 4 KB and one of 150 KB in and 64 bytes out, against bare_http.cc in turns: one thread each
latency  p50 of a request at 1 in flight less that of a run of the same engine without a server: what HTTP adds
idle     resident memory with 10,000 idle keep-alive connections
slow     p50 and p99 of one client alone and beside 64 that send a body a byte at a time

Needs wrk (Debian's package), a C++ compiler, and onnx (scripts/bootstrap --peers makes .venv, which has it).
"""
import argparse
import json
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

import onnx
from onnx import TensorProto, helper

HERE = os.path.dirname(os.path.abspath(__file__))
PORT, BARE_PORT = 18020, 18021
WIDTHS = {"4 KB": 1008, "150 KB": 37632}


def write_model(folder, name, width):
    os.makedirs(f"{folder}/{name}/1")
    with open(f"{folder}/{name}/config.pbtxt", "w") as out:
        out.write(f'max_batch_size: 8 input {{ name: "x" data_type: TYPE_FP32 dims: {width} }} output {{ name: "y" data_type: TYPE_FP32 dims: 16 }}\n')
    tensors = [helper.make_tensor(key, TensorProto.INT64, [1], [value]) for key, value in (("start", 0), ("end", 16), ("axis", 1))]
    graph = helper.make_graph([helper.make_node("Slice", ["x", "start", "end", "axis"], ["y"])], name,
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 16])], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"{folder}/{name}/1/model.onnx")


def request(width):
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, width], "datatype": "FP32", "parameters": {"binary_data_size": 4 * width}}],
                       "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
    return head + bytes(4 * width), len(head)


def run_wrk(folder, port, name, width, in_flight, seconds):
    body, head_bytes = request(width)
    with open(f"{folder}/body", "wb") as out:
        out.write(body)
    with open(f"{folder}/request.lua", "w") as out:
        out.write(f'local f=io.open("{folder}/body","rb") wrk.method="POST" wrk.body=f:read("*a") f:close()\n'
                  f'wrk.headers["Inference-Header-Content-Length"]="{head_bytes}"\nwrk.headers["Content-Type"]="application/octet-stream"\n'
                  'done=function(s,l,r) io.write(string.format("R %d %d %d %d %d\\n",s.requests,s.duration,l:percentile(50),l:percentile(99),'
                  's.errors.connect+s.errors.read+s.errors.write+s.errors.status+s.errors.timeout)) end\n')
    done = subprocess.run(["wrk", "-t1", f"-c{in_flight}", f"-d{seconds}s", "-s", f"{folder}/request.lua", f"http://127.0.0.1:{port}/v2/models/{name}/infer"],
                          capture_output=True, text=True, check=True).stdout
    count, duration_us, p50, p99, errors = map(int, re.search(r"^R (.*)$", done, re.M).group(1).split())
    assert errors == 0, f"{errors} of {count} requests failed"
    return count / duration_us * 1e6, p50, p99


def resident_mb(process):
    with open(f"/proc/{process.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


def measure_rate(folder, options):
    binary = f"{folder}/bare_http"
    subprocess.run(["c++", "-std=c++20", "-O2", "-o", binary, f"{HERE}/bare_http.cc"], check=True)
    bare = subprocess.Popen([binary, str(BARE_PORT)])
    try:
        time.sleep(0.3)
        for name, width in WIDTHS.items():
            model, rows = name.replace(" ", ""), []
            for _ in range(options.rounds):
                ours = run_wrk(folder, PORT, model, width, 16, options.seconds)[0]
                rows.append((ours, run_wrk(folder, BARE_PORT, model, width, 16, options.seconds)[0]))
            ratios = sorted(a / b for a, b in rows)
            ours, least = (statistics.median(column) for column in zip(*rows))
            print(f"rate: {name} in: {ours:,.0f} requests/s, bare epoll {least:,.0f}, ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)
    finally:
        bare.kill()


def measure_latency(folder, options):
    engine, figures = f"{folder}/direct.engine", f"{folder}/direct.json"
    subprocess.run([options.flywheel, "build", f"{folder}/models/4KB/1/model.onnx", "-o", engine], check=True, capture_output=True)
    subprocess.run([options.flywheel, "bench", engine, "--shapes", "x:1x1008", "--duration", "1", "--json", figures], check=True, capture_output=True)
    with open(figures) as file:
        direct = json.load(file)
    p50 = statistics.median(run_wrk(folder, PORT, "4KB", 1008, 1, options.seconds)[1] for _ in range(options.rounds))
    print(f"latency: p50 {p50} us at 1 in flight, {direct['latency_ms']['p50'] * 1000:.1f} us without a server", flush=True)


def measure_idle(server):
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(11000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    before = resident_mb(server)
    body, head_bytes = request(1008)
    text = (f"POST /v2/models/4KB/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {head_bytes}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body
    clients = []
    for _ in range(10000):
        client = socket.create_connection(("127.0.0.1", PORT))
        client.sendall(text)
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        clients.append(client)
    print(f"idle: {resident_mb(server):.0f} MB with {len(clients):,} connections that have each sent a request, {before:.0f} MB before", flush=True)
    for client in clients:
        client.close()


def measure_slow(folder, options):
    alone = [run_wrk(folder, PORT, "4KB", 1008, 1, options.seconds)[1:] for _ in range(options.rounds)]
    stop = threading.Event()
    body, head_bytes = request(37632)
    head = f"POST /v2/models/150KB/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {head_bytes}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    writers = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(64)]

    def write_slowly():
        for writer in writers:
            writer.sendall(head)
        sent = 0
        while not stop.is_set():
            for writer in writers:
                writer.sendall(body[sent:sent + 1])
            sent += 1
            time.sleep(0.05)

    thread = threading.Thread(target=write_slowly)
    thread.start()
    beside = [run_wrk(folder, PORT, "4KB", 1008, 1, options.seconds)[1:] for _ in range(options.rounds)]
    stop.set()
    thread.join()
    for writer in writers:
        writer.close()
    (p50, p99), (p50_slow, p99_slow) = ([statistics.median(column) for column in zip(*rows)] for rows in (alone, beside))
    print(f"slow: p50 {p50:.0f} us and p99 {p99:.0f} us alone, {p50_slow:.0f} and {p99_slow:.0f} beside 64 slow writers", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flywheel", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--only", default="rate,latency,idle,slow")
    options = parser.parse_args()
    folder = tempfile.mkdtemp()
    for name, width in WIDTHS.items():
        write_model(f"{folder}/models", name.replace(" ", ""), width)
    server = subprocess.Popen([options.flywheel, "serve", "--model-repository", f"{folder}/models", "--http-address", "127.0.0.1", "--http-port", str(PORT),
                               "--allow-grpc", "false", "--metrics-port", "0", "--http-thread-count", "1"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v2/health/ready", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        wanted = options.only.split(",")
        if "rate" in wanted:
            measure_rate(folder, options)
        if "latency" in wanted:
            measure_latency(folder, options)
        if "idle" in wanted:
            measure_idle(server)
        if "slow" in wanted:
            measure_slow(folder, options)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
