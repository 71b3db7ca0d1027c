#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of Flywheel against ONNX Runtime on the graphs of models/graphs, FP32, in turns on the same machine.

Usage: compare_with_onnxruntime.py --flywheel build/flywheel [--models resnet50,bert_base] [--batches 1,8] [--rounds 5] [--threads 2]

Each round gives each side one turn of --seconds; a turn's figure is its median latency. Printed: best and median over the rounds of both
sides, and the median over the rounds of (ONNX Runtime's latency / Flywheel's) with its range: above 1, Flywheel is faster. ONNX Runtime
runs with all optimizations, the same number of threads and fixed shapes (its fastest mode); Flywheel runs one engine with a dynamic
batch. Also prints load time (session from ONNX against engine from its file) as the best of three.
Machines are noisy: between a pair of cores on one L3 and on two, latencies on two threads move by up to 1.8 times. Only the ratio of
neighbouring turns means something.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "../models")
TEXT = {"bert_base": 128, "minilm_l6": 128}
IMAGE = {"yolo_n": ("images", 640), "unet": ("image", 256)}


def shapes(model, batch):
    if model in TEXT:
        return {name: (batch, TEXT[model]) for name in ("input_ids", "attention_mask")}
    if model == "dlrm":
        return {"dense": (batch, 13), "sparse": (batch, 26)}
    name, size = IMAGE.get(model, ("input", 224))
    return {name: (batch, 3, size, size)}


def feeds(model, batch):
    rng = np.random.default_rng(0)
    out = {}
    for name, shape in shapes(model, batch).items():
        if name == "attention_mask":
            out[name] = np.ones(shape, np.int64)
        elif name in ("input_ids", "sparse"):
            out[name] = rng.integers(0, 2000, shape)
        else:
            out[name] = rng.standard_normal(shape, dtype=np.float32)
    return out


def text(shape):
    return "x".join(map(str, shape))


class Ort:
    def __init__(self, path, model, batch, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        for name, value in (("batch", batch), ("s77", batch), ("sequence", TEXT.get(model, 0)), ("height", 256), ("width", 256)):
            options.add_free_dimension_override_by_name(name, value)
        start = time.perf_counter()
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.load_ms = (time.perf_counter() - start) * 1e3
        self.inputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in feeds(model, batch).items()}
        self.names = [output.name for output in self.session.get_outputs()]

    def turn(self, seconds):
        self.session.run_with_ort_values(self.names, self.inputs)
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            self.session.run_with_ort_values(self.names, self.inputs)
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)


class Flywheel:
    def __init__(self, binary, engine, model, batch, threads, folder):
        self.json = os.path.join(folder, "bench.json")
        self.command = [binary, "bench", engine, "--threads", str(threads), "--json", self.json]
        for name, shape in shapes(model, batch).items():
            self.command += ["--shapes", f"{name}:{text(shape)}"]

    def turn(self, seconds):
        subprocess.run(self.command + ["--duration", str(seconds), "--warmup", "200"], check=True, capture_output=True)
        with open(self.json) as file:
            self.last = json.load(file)
        return self.last["latency_ms"]["p50"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flywheel", required=True)
    parser.add_argument("--models", default="resnet50,bert_base")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--timing-cache", default="")
    parser.add_argument("--opt-batch", type=int, default=0, help="the profile's opt batch; 0: the batch measured")
    options = parser.parse_args()
    batches = [int(b) for b in options.batches.split(",")]
    print(f"onnxruntime {onnxruntime.__version__}, {options.threads} threads, {options.rounds} rounds of {options.seconds} s a side")
    for model in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            full, engine = os.path.join(folder, "model.onnx"), os.path.join(folder, "model.engine")
            subprocess.run([sys.executable, os.path.join(MODELS, "fill_weights.py"), os.path.join(MODELS, "graphs", model + ".onnx"), full], check=True)
            for batch in batches:
                build = [options.flywheel, "build", full, "-o", engine, "--threads", str(options.threads)]
                if options.timing_cache:
                    build += ["--timing-cache", options.timing_cache]
                for (name, low), high in zip(shapes(model, 1).items(), shapes(model, max(batches)).values()):
                    middle = shapes(model, options.opt_batch or batch)[name]
                    build += ["--profile", f"{name}:{text(low)},{text(middle)},{text(high)}"]
                subprocess.run(build, check=True, capture_output=True)
                ort, ours = Ort(full, model, batch, options.threads), Flywheel(options.flywheel, engine, model, batch, options.threads, folder)
                a, b = [], []
                for _ in range(options.rounds):
                    a.append(ort.turn(options.seconds))
                    b.append(ours.turn(options.seconds))
                ratios = [x / y for x, y in zip(a, b)]
                print(f"{model} batch {batch}: onnxruntime best {min(a):.2f} median {statistics.median(a):.2f} ms; flywheel best {min(b):.2f} "
                      f"median {statistics.median(b):.2f} ms; ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
            loads = [Ort(full, model, 1, options.threads).load_ms for _ in range(3)]
            ours_load = [(ours.turn(0.2), ours.last["load_ms"])[1] for _ in range(3)]
            print(f"{model} load: onnxruntime {min(loads):.1f} ms, flywheel {min(ours_load):.2f} ms, {min(loads) / min(ours_load):.1f} times", flush=True)


if __name__ == "__main__":
    main()
