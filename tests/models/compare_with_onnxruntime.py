#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds engines from the graphs in models/graphs and compares them with ONNX Runtime, intermediate values included.

Usage: compare_with_onnxruntime.py --flywheel build/flywheel [--models a,b] [--isa avx2] [--tune] [--keep DIR]

For each model: fill the weights, build ONE engine with one dynamic profile, run it at several shapes, and compare every value that
both sides compute under the same name with ONNX Runtime's (all optimizations off, every node's output exposed). Values of random
networks lose their dependence on the input layer by layer, so agreement at the end alone would mean little.

A value agrees when the largest difference is at most TOLERANCE of the value's largest magnitude, and the part of it that depends on the
sample (what is left after subtracting the mean over the batch) agrees as well, to LOOSE of its own largest magnitude.
Prints one line a model and shape, then "N passed, N failed".
"""
import argparse
import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "../../models")
TOLERANCE = 2e-4
LOOSE = 5e-3
# Of the values that an engine's steps give, at least this share must exist under the same name in the model and be compared: a fixed
# number would say less the more is fused.
LEAST_SHARE = 0.7

IMAGE = lambda name, size: lambda batch, rng: {name: rng.standard_normal((batch, 3, size, size), dtype=np.float32)}


def text(vocabulary):
    def make(shape, rng):
        batch, length = shape
        mask = np.ones((batch, length), np.int64)
        for row in range(batch):
            mask[row, length - (row * 3) % length:] = 0 if row % 2 else mask[row, length - (row * 3) % length:]
        return {"input_ids": rng.integers(0, vocabulary, (batch, length)), "attention_mask": mask}
    return make


def dlrm(batch, rng):
    return {"dense": rng.standard_normal((batch, 13), dtype=np.float32), "sparse": rng.integers(0, 2000, (batch, 26))}


def unet(shape, rng):
    batch, height, width = shape
    return {"image": rng.standard_normal((batch, 3, height, width), dtype=np.float32)}


def tokens(shape, rng):
    return {"tokens": rng.integers(0, 20000, shape)}


def features(shape, rng):
    batch, frames = shape
    return {"features": rng.standard_normal((batch, 80, frames), dtype=np.float32)}


TEXT_PROFILE = ["input_ids:1x1,2x64,4x128", "attention_mask:1x1,2x64,4x128"]
# name: (profile, input maker, shapes)
CASES = {
    "resnet18": (["input:1x3x224x224,2x3x224x224,4x3x224x224"], IMAGE("input", 224), [1, 3]),
    "resnet50": (["input:1x3x224x224,2x3x224x224,4x3x224x224"], IMAGE("input", 224), [1, 3]),
    "mobilenet_v2": (["input:1x3x224x224,2x3x224x224,4x3x224x224"], IMAGE("input", 224), [1, 3]),
    "squeezenet": (["input:1x3x224x224,2x3x224x224,4x3x224x224"], IMAGE("input", 224), [1, 3]),
    "yolo_n": (["images:1x3x640x640,1x3x640x640,2x3x640x640"], IMAGE("images", 640), [1, 2]),
    "unet": (["image:1x3x32x32,1x3x64x64,2x3x128x128"], unet, [(1, 64, 64), (2, 96, 32)]),
    "bert_base": (TEXT_PROFILE, text(30522), [(1, 17), (3, 64)]),
    "minilm_l6": (TEXT_PROFILE, text(30522), [(1, 128), (4, 33), (2, 1)]),
    "swin_t": (["input:1x3x224x224,1x3x224x224,2x3x224x224"], IMAGE("input", 224), [1, 2]),
    "lstm_tagger": (["tokens:1x1,2x16,4x40"], tokens, [(1, 17), (4, 40), (2, 1)]),
    "gru_speech": (["features:1x80x20,2x80x100,3x80x200"], features, [(1, 100), (3, 37)]),
    "dlrm": (["dense:1x13,8x13,64x13", "sparse:1x26,8x26,64x26"], dlrm, [1, 8, 61]),
}


def expose_all_values(model):
    """Every node output becomes a graph output, so that ONNX Runtime hands it out."""
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {v.name: v for v in inferred.graph.value_info}
    known = {o.name for o in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                model.graph.output.append(types.get(name) or onnx.ValueInfoProto(name=name))
    return model


def layouts(name, ours, theirs):
    """Theirs in the layouts that ours may have: the compiler marks a value that it keeps channels-last with `.nhwc`, and merges the
    leading dims of products."""
    if not name.endswith(".nhwc"):
        merged = theirs.reshape(-1, theirs.shape[-1]) if theirs.ndim > 2 else theirs
        return [array for array in (theirs, merged) if ours.shape == array.shape]
    # A one-dimensional image has a height of 1 in it.
    theirs = theirs.reshape(theirs.shape[:-1] + (1,) * (ours.ndim - theirs.ndim) + theirs.shape[-1:])
    orders = [np.transpose(theirs, order) for order in itertools.permutations(range(theirs.ndim))]
    return [array for array in orders if array.shape == ours.shape]


def differs(name, ours, theirs):
    """None when they agree, else a text."""
    reasons = [values_differ(ours, array) for array in layouts(name, ours, theirs)]
    return None if None in reasons else (reasons or [f"the shapes {ours.shape} and {theirs.shape} differ"])[0]


def values_differ(ours, theirs):
    if ours.dtype.kind != "f":
        return None if np.array_equal(ours, theirs) else "integers differ"
    if not np.array_equal(np.isnan(ours), np.isnan(theirs)):
        return "NaN in other places"
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return "infinities differ"
    a, b = np.where(finite, ours, 0).astype(np.float64), np.where(finite, theirs, 0).astype(np.float64)
    scale, error = np.abs(b).max(initial=0), np.abs(a - b).max(initial=0)
    if error > TOLERANCE * scale:
        return f"largest difference {error:.2e} of {scale:.2e}"
    if a.ndim > 1 and a.shape[0] > 1:
        a, b = a - a.mean(0), b - b.mean(0)
        own = np.abs(b).max(initial=0)
        if own > 1e-4 * scale and np.abs(a - b).max(initial=0) > max(LOOSE * own, 4e-6 * scale):
            return f"what depends on the sample differs by {np.abs(a - b).max():.2e} of {own:.2e}"
    return None


def run(command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def check_model(name, options, folder):
    profile, make, shapes = CASES[name]
    env = dict(os.environ, **({"FLYWHEEL_ISA": options.isa} if options.isa else {}))
    full, engine = os.path.join(folder, name + ".onnx"), os.path.join(folder, name + ".engine")
    run([sys.executable, os.path.join(MODELS, "fill_weights.py"), os.path.join(MODELS, "graphs", name + ".onnx"), full])
    command = [options.flywheel, "build", full, "-o", engine] + ([] if options.tune else ["--no-tune"])
    for item in profile:
        command += ["--profile", item]
    run(command, env)
    session_options = onnxruntime.SessionOptions()
    session_options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session_options.log_severity_level = 4
    model = expose_all_values(onnx.load(full))
    exposed = os.path.join(folder, name + ".all.onnx")
    onnx.save(model, exposed)
    final = [o.name for o in onnx.load(full, load_external_data=False).graph.output]
    session = onnxruntime.InferenceSession(exposed, session_options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    # What a node is taken apart into has no counterpart in the model.
    parts = tuple(f"{node.name}/" for node in model.graph.node if node.name and node.op_type in ("LSTM", "GRU", "RNN"))
    results = []
    for shape in shapes:
        inputs = make(shape, np.random.default_rng(7))
        theirs = dict(zip(names, session.run(names, inputs)))
        x, y, steps = (os.path.join(folder, f) for f in ("x.npz", "y.npz", "steps.npz"))
        np.savez(x, **inputs)
        run([options.flywheel, "run", engine, "--inputs", x, "--outputs", y, "--steps", steps], env)
        bad, compared, computed = [], 0, 0
        for file, wanted in ((y, final), (steps, None)):
            with np.load(file) as ours:
                computed += sum(not value.startswith(parts) or value in theirs for value in (wanted if wanted else ours.files))
                for value in wanted if wanted else ours.files:
                    model_name = value.removesuffix(".nhwc")
                    if model_name not in theirs:
                        if wanted:
                            bad.append(f"{value}: missing")
                        continue
                    compared += 1
                    why = differs(value, ours[value], theirs[model_name])
                    if why:
                        bad.append(f"{value}: {why}")
        if compared < LEAST_SHARE * computed:
            bad.append(f"only {compared} of {computed} values could be compared")
        results.append((shape, f"{compared} of {computed}", bad))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flywheel", required=True)
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--isa", default="")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--keep", default="", help="folder for models and engines, kept")
    options = parser.parse_args()
    passed = failed = 0
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.keep or temporary
            os.makedirs(folder, exist_ok=True)
            try:
                results = check_model(name, options, folder)
            except Exception as error:  # a model that fails must not hide the others
                results = [("-", "no", [str(error)])]
        for shape, compared, bad in results:
            passed, failed = passed + (not bad), failed + bool(bad)
            print(f"{'ok  ' if not bad else 'FAIL'} {name} {shape}: {compared} values compared", flush=True)
            for line in bad[:8]:
                print("     " + line, flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
