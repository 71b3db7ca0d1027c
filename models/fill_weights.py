#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives a weightless ONNX graph of graphs/ its weights: `fill_weights.py IN.onnx OUT.onnx`.

Called by tests and benchmarks (fill_model() from Python). Needs numpy and onnx. In such a graph an initializer's
external data has the location "__seed__" and the mean and standard deviation of the weights that once stood there. The
values are float32 normal numbers of PCG64 seeded with the CRC-32 of the tensor's name, times the deviation, plus the
mean: the same graph gets the same bytes on every machine, and no tensor depends on another. What is not marked stays.
"""

import argparse
import math
import sys
import zlib

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper

SEED_LOCATION = "__seed__"
FLOAT_TYPES = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}


def seeded_values(name, count, mean, std):
    """Returns `count` float32 values that depend on nothing but the arguments."""
    values = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode()))).standard_normal(count, dtype=np.float32)
    values *= np.float32(std)
    values += np.float32(mean)
    return values


def fill_tensor(tensor):
    """Fills one initializer in place; returns how many values it got, 0 if it is not marked."""
    recorded = {entry.key: entry.value for entry in tensor.external_data}
    if recorded.get("location") != SEED_LOCATION:
        return 0
    if tensor.data_type not in FLOAT_TYPES:
        raise ValueError(
            f"tensor '{tensor.name}' has type {TensorProto.DataType.Name(tensor.data_type)}; only "
            "floating-point tensors can be filled"
        )
    try:
        mean, std = float(recorded["mean"]), float(recorded["std"])
    except (KeyError, ValueError):
        raise ValueError(
            f"tensor '{tensor.name}' is marked {SEED_LOCATION} but records mean={recorded.get('mean')!r} and "
            f"std={recorded.get('std')!r}; both must be numbers"
        ) from None
    values = seeded_values(tensor.name, math.prod(tensor.dims), mean, std)
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    tensor.raw_data = values.astype(helper.tensor_dtype_to_np_dtype(tensor.data_type), copy=False).tobytes()
    return values.size


def fill_graph(graph):
    """Fills a graph and the graphs inside its nodes; returns how many values were filled."""
    count = sum(fill_tensor(tensor) for tensor in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                count += fill_graph(attribute.g)
            elif attribute.type == AttributeProto.GRAPHS:
                count += sum(fill_graph(inner) for inner in attribute.graphs)
    return count


def fill_model(path):
    """Returns the model at `path` with its weights filled."""
    model = onnx.load(path, load_external_data=False)
    fill_graph(model.graph)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", metavar="IN.onnx", help="weightless graph")
    parser.add_argument("model", metavar="OUT.onnx", help="whole model to write")
    args = parser.parse_args()
    try:
        onnx.save(fill_model(args.graph), args.model)
    except (OSError, ValueError, DecodeError) as error:
        sys.exit(f"{args.graph}: {error}")


if __name__ == "__main__":
    main()
