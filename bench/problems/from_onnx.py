#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the contractions of an ONNX graph for kernel_bench, one problem a line, equal ones counted.

Usage: from_onnx.py GRAPH.onnx [input=1x3x224x224 ...] > NAME.txt
Dims without a value become 1 (the first) or 128. Epilogues are guessed from the nodes that follow, as the compiler's
fusion would make them. Needs onnx, and onnxruntime with sympy for its shape inference.
"""
import collections
import sys

import onnx
from onnx import numpy_helper
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference


def load(path, shapes):
    model = onnx.load(path, load_external_data=False)
    fixed = dict(s.split("=") for s in shapes)
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        wanted = [int(d) for d in fixed[value.name].split("x")] if value.name in fixed else None
        for i, dim in enumerate(dims):
            if wanted:
                dim.dim_value = wanted[i]
            elif not dim.HasField("dim_value"):
                dim.dim_value = 128 if i else 1
    return SymbolicShapeInference.infer_shapes(model, auto_merge=True)


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


class Graph:
    def __init__(self, graph):
        self.graph = graph
        self.dims = {t.name: list(t.dims) for t in graph.initializer}
        self.constants = set(self.dims)
        self.values = {}
        for t in graph.initializer:
            if not t.external_data and len(t.dims) <= 1:
                self.values[t.name] = numpy_helper.to_array(t)
        for value in list(graph.input) + list(graph.value_info) + list(graph.output):
            self.dims[value.name] = [d.dim_value for d in value.type.tensor_type.shape.dim]
        for node in graph.node:
            if node.op_type == "Constant":
                self.constants.add(node.output[0])
        self.users = collections.defaultdict(list)
        for node in graph.node:
            for name in node.input:
                self.users[name].append(node)

    def after(self, name):
        return self.users[name] if name not in {o.name for o in self.graph.output} else []

    def ending(self, name):
        text, parts = "bias", self.after(name)
        while len(parts) == 1 and parts[0].op_type in ("BatchNormalization", "Identity", "Add", "Reshape"):
            node = parts[0]
            if node.op_type == "Add" and not any(i in self.constants for i in node.input):
                if "res" in text:
                    break
                text += "_res"
            name = node.output[0]
            parts = self.after(name)
        kinds = sorted(n.op_type for n in parts)
        if kinds == ["Relu"]:
            return text + "_relu"
        if kinds == ["Clip"] and text == "bias":
            return "bias_clip"
        if kinds == ["Mul", "Sigmoid"] and text == "bias":
            return "bias_silu"
        if kinds == ["HardSwish"]:
            return "bias_hswish"
        if (kinds == ["Div", "Mul"] or kinds == ["Mul", "Mul"] or kinds == ["Gelu"]) and text == "bias":
            return "bias_gelu"
        return text

    def line(self, node):
        a = attributes(node)
        x, y = self.dims.get(node.input[0]), self.dims.get(node.output[0])
        if node.op_type in ("Conv", "ConvTranspose"):
            w = self.dims[node.input[1]]
            spatial = len(w) - 2
            s, d = a.get("strides", [1] * spatial), a.get("dilations", [1] * spatial)
            p = a.get("pads", [0] * 2 * spatial)
            if spatial == 1:
                x, y, w = [x[0], x[1], 1, x[2]], [y[0], y[1], 1, y[2]], [w[0], w[1], 1, w[2]]
                s, d, p = [1] + s, [1] + d, [0, p[0], 0, p[1]]
            if a.get("auto_pad", b"NOTSET") not in (b"NOTSET", "NOTSET"):
                raise SystemExit("auto_pad is not handled")
            family = "conv" if node.op_type == "Conv" else "conv_transpose"
            text = f"{family} x={x[0]}x{x[2]}x{x[3]}x{x[1]} w={'x'.join(map(str, w))} y={y[0]}x{y[2]}x{y[3]}x{y[1]}"
            return text + f" s={s[0]}x{s[1]} p={p[0]}x{p[1]}x{p[2]}x{p[3]} d={d[0]}x{d[1]} g={a.get('group', 1)} end={self.ending(node.output[0])}"
        if node.op_type == "Gemm" or (node.op_type == "MatMul" and node.input[1] in self.constants):
            b = self.dims[node.input[1]]
            tb = a.get("transB", 0)
            n, k = (b[0], b[1]) if tb else (b[1], b[0])
            m = 1
            for dim in y[:-1]:
                m *= dim
            return f"gemm m={m} n={n} k={k} tb={tb} end={self.ending(node.output[0])}"
        if node.op_type == "MatMul":
            return f"matmul a={'x'.join(map(str, x))} b={'x'.join(map(str, self.dims[node.input[1]]))} tb=0 end=none"
        return None


def main():
    graph = Graph(load(sys.argv[1], sys.argv[2:]).graph)
    lines = collections.Counter()
    for node in graph.graph.node:
        if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
            lines[graph.line(node)] += 1
    for line, count in lines.items():
        print(f"{line} count={count}")


main()
