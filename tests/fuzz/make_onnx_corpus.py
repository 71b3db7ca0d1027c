#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes corpus/fuzz_onnx/: small ONNX models that between them use every form the importer knows.

Run by hand when the importer learns something new: `tests/fuzz/make_onnx_corpus.py`. Needs onnx and numpy. The same files
come out each time.
"""
import pathlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
FOLDER = pathlib.Path(__file__).parent / "corpus" / "fuzz_onnx"


def floats(name, *shape):
    count = int(np.prod(shape))
    return numpy_helper.from_array((np.arange(count) % 7 / 4 - 0.5).astype(np.float32).reshape(shape), name)


def ints(name, *values, scalar=False):
    array = np.array(values, dtype=np.int64)
    return numpy_helper.from_array(array[0] if scalar else array, name)


def write(name, nodes, inputs, outputs, constants=(), opset=17, ir_version=8, functions=(), extra_opsets=()):
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(key, kind, dims) for key, kind, dims in inputs],
        [helper.make_tensor_value_info(key, TensorProto.UNDEFINED, None) for key in outputs],
        initializer=list(constants))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in extra_opsets)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=list(functions))
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())


def node(op_type, inputs, outputs, **attributes):
    return helper.make_node(op_type, inputs.split(), outputs.split(), name=outputs.split()[0], **attributes)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    image = [("x", FLOAT, ["batch", 4, 8, 8])]
    write("cnn", [
        node("Conv", "x w1 b1", "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", "c1 s b1 m v", "n1"),
        node("Relu", "n1", "r1"),
        node("Conv", "r1 w2", "c2", auto_pad="SAME_UPPER", group=4),
        node("Add", "c2 r1", "a"),
        node("MaxPool", "a", "p", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("AveragePool", "p", "q", kernel_shape=[2, 2], count_include_pad=1, pads=[0, 0, 1, 1]),
        node("GlobalAveragePool", "q", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f w3 b3", "y", transB=1),
    ], image, ["y"], [floats("w1", 4, 4, 3, 3), floats("b1", 4), floats("s", 4), floats("m", 4), floats("v", 4),
                      floats("w2", 4, 1, 3, 3), floats("w3", 5, 4), floats("b3", 5)])
    write("old", [
        node("Conv", "x w", "c", auto_pad="SAME_LOWER", strides=[2, 2]),
        node("Clip", "c", "k", min=0.0, max=6.0),
        node("Pad", "k", "p", pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.5),
        node("Upsample", "p s", "u", mode="nearest"),
        node("Slice", "u", "l", starts=[0, 1], ends=[2, 9], axes=[1, 2]),
        node("Split", "l", "h1 h2", axis=1, split=[1, 1]),
        node("Squeeze", "h1", "q", axes=[1]),
        node("Unsqueeze", "q", "z", axes=[1]),
        node("ReduceMean", "z", "m", axes=[2, 3], keepdims=0),
        node("Softmax", "m", "y"),
        node("Dropout", "h2", "d"),
    ], [("x", FLOAT, [1, 4, 8, 8]), ("w", FLOAT, [2, 4, 3, 3])], ["y", "d"],
          [floats("w", 2, 4, 3, 3), numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s")], opset=9, ir_version=3)
    write("deconv", [
        node("ConvTranspose", "x w", "t", strides=[2, 2], output_padding=[1, 1]),
        node("ConvTranspose", "x w", "o", strides=[2, 2], output_shape=[16, 16]),
        node("Concat", "x x", "y", axis=1),
        node("Resize", "x r sc", "z", mode="linear", coordinate_transformation_mode="align_corners"),
        node("Resize", "x r r sz", "v", mode="cubic"),
    ], [("x", FLOAT, ["n", 4, 8, 8])], ["t", "o", "y", "z", "v"],
          [floats("w", 4, 2, 3, 3), numpy_helper.from_array(np.zeros(0, np.float32), "r"),
           numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "sc"), ints("sz", 1, 4, 5, 7)], opset=13)
    write("reshape_chain", [
        node("Shape", "x", "s"),
        node("Gather", "s i0", "b", axis=0),
        node("Gather", "s i1", "q", axis=0),
        node("Unsqueeze", "b ax", "b1"),
        node("Unsqueeze", "q ax", "q1"),
        node("Concat", "b1 q1 heads dim", "target", axis=0),
        node("Reshape", "x target", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1, 3]),
        node("ConstantOfShape", "b1", "ones", value=helper.make_tensor("v", INT64, [1], [1])),
        node("Range", "i0 q i1", "range"),
        node("Expand", "ones b1", "e"),
        node("Slice", "x z1 q1 ax", "cut"),
        node("Tile", "t reps", "y"),
        node("Cast", "range", "f", to=FLOAT),
    ], [("x", FLOAT, ["batch", "seq", 8])], ["y", "f", "e", "cut"],
          [ints("i0", 0, scalar=True), ints("i1", 1, scalar=True), ints("ax", 0), ints("heads", 2), ints("dim", -1),
           ints("z1", 0), ints("reps", 1, 2, 1, 1)])
    write("attention", [
        node("Gather", "table ids", "x"),
        node("LayerNormalization", "x g b", "n", axis=-1),
        node("MatMul", "n wq", "q"),
        node("Reshape", "q split", "qs"),
        node("Transpose", "qs", "qt", perm=[0, 2, 1, 3]),
        node("Transpose", "qs", "kt", perm=[0, 2, 3, 1]),
        node("MatMul", "qt kt", "s"),
        node("Unsqueeze", "mask axes", "m4"),
        node("Equal", "m4 zero", "hidden"),
        node("Where", "hidden low s", "masked"),
        node("Softmax", "masked", "p", axis=-1),
        node("IsNaN", "p", "bad"),
        node("Where", "bad nil p", "pp"),
        node("MatMul", "pp qt", "o"),
        node("Div", "o root", "od"),
        node("Erf", "od", "er"),
        node("Add", "er one", "ea"),
        node("Mul", "ea od", "y"),
    ], [("ids", INT64, ["batch", "seq"]), ("mask", INT64, ["batch", "seq"])], ["y"],
          [floats("table", 6, 8), floats("g", 8), floats("b", 8), floats("wq", 8, 8), ints("split", 0, 0, 2, 4),
           ints("axes", 1, 2), ints("zero", 0, scalar=True), *(numpy_helper.from_array(np.array(v, np.float32), k)
                                                              for k, v in dict(low=-1e9, nil=0, root=1.414, one=1).items())])
    write("elementwise", [
        *(node(op, "x", f"u{i}") for i, op in enumerate(
            "Abs Neg Sqrt Reciprocal Exp Log Erf Sin Cos Tan Sinh Cosh Tanh Sigmoid Floor Ceil Round Sign Softplus Softsign "
            "Mish HardSwish Selu Celu Elu LeakyRelu HardSigmoid ThresholdedRelu Shrink IsInf Identity".split())),
        *(node(op, "x w", f"b{i}") for i, op in enumerate("Add Sub Mul Div Pow PRelu Min Max Sum Mean".split())),
        *(node(op, "x w", f"c{i}") for i, op in enumerate("Equal Less LessOrEqual Greater GreaterOrEqual".split())),
        node("And", "c0 c1", "l0"), node("Or", "c0 c1", "l1"), node("Xor", "c0 c1", "l2"), node("Not", "c0", "l3"),
        node("Where", "l0 x w", "y"), node("Mod", "x w", "m", fmod=1), node("Clip", "x lo", "k"), node("CastLike", "l1 x", "cl"),
    ], [("x", FLOAT, ["n", 3])], ["y", "m", "k", "cl", "u5", "b4", "l3", "u30"],
          [floats("w", 3), numpy_helper.from_array(np.array(0, np.float32), "lo")], opset=18)
    write("reductions", [
        *(node(op, "x axes", f"r{i}") for i, op in enumerate(
            "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp"
            .split())),
        node("ArgMax", "x", "am", axis=1, keepdims=0), node("ArgMin", "x", "an", select_last_index=1),
        node("LogSoftmax", "x", "ls"), node("Hardmax", "x", "hm", axis=1), node("TopK", "x k", "tv ti", largest=0),
        node("ReduceSum", "x", "noop", noop_with_empty_axes=1),
    ], [("x", FLOAT, ["n", 5, 6])], ["r0", "r9", "am", "an", "ls", "hm", "noop"], [ints("axes", -1, 0), ints("k", 2)], opset=20)
    write("top_k", [node("TopK", "x k", "v i")], [("x", FLOAT, ["n", 5])], ["v", "i"], [ints("k", 2)])
    write("gathers", [
        node("GatherElements", "x e", "a", axis=1), node("GatherND", "x d", "b", batch_dims=0),
        node("ScatterND", "x d u", "c"), node("ScatterElements", "x e w", "s", axis=1), node("OneHot", "e depth pair", "o"),
        node("Trilu", "x k", "t", upper=0), node("EyeLike", "x", "y", k=1), node("Compress", "x e", "z"),
    ], [("x", FLOAT, ["n", 4]), ("d", INT64, ["m", 1])], ["a", "b", "o", "t", "y"],
          [ints("depth", 5, scalar=True), floats("pair", 2), floats("u", 2, 4), ints("k", 1, scalar=True),
           numpy_helper.from_array(np.array([[0, 1], [3, -1]], np.int64), "e"), floats("w", 2, 2)])
    write("masks", [
        node("Trilu", "x k", "t", upper=0), node("EyeLike", "x", "y", k=1, dtype=INT64), node("OneHot", "e depth pair", "o"),
        node("Size", "x", "z"),
    ], [("x", FLOAT, ["n", 4])], ["t", "y", "o", "z"],
          [ints("depth", 5, scalar=True), floats("pair", 2), ints("k", 1, scalar=True), ints("e", 0, -1, 3)])
    write("normalizations", [
        node("InstanceNormalization", "x s b", "i"), node("GroupNormalization", "x s2 b2", "g", num_groups=2),
        node("LRN", "x", "l", size=3), node("LpNormalization", "x", "p", axis=1, p=2),
        node("MeanVarianceNormalization", "x", "m"), node("DepthToSpace", "x", "d", blocksize=2, mode="CRD"),
        node("SpaceToDepth", "x", "sd", blocksize=2), node("Pad", "x pads v axes", "q", mode="constant"),
        node("Split", "x", "h1 h2 h3", axis=1, num_outputs=3), node("Gelu", "x", "ge", approximate="tanh"),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["rs"], axes=[2, 3], keep_aspect_ratio_policy="not_smaller"),
    ], image, ["i", "g", "l", "p", "m", "d", "sd", "q", "h3", "ge"],
          [floats("s", 4), floats("b", 4), floats("s2", 2), floats("b2", 2), ints("pads", 1, -1), floats("v", 1), ints("axes", 3),
           ints("sizes", 9, 5)], opset=20)
    for kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT8, TensorProto.BOOL, TensorProto.UINT64):
        name = TensorProto.DataType.Name(kind).lower()
        write(f"typed_{name}", [node("Identity", "w", "y")], [("x", FLOAT, [1])], ["y"],
              [helper.make_tensor("w", kind, [2, 2], [0, 1, 1, 0])])
    write("constants", [
        node("Constant", "", "a", value_float=1.5), node("Constant", "", "b", value_ints=[1, 2]),
        node("Constant", "", "c", value=helper.make_tensor("t", FLOAT, [2], [1.0, 2.0])), node("Mul", "a c", "d"),
        node("Sqrt", "d", "e"), node("Cast", "e", "f", to=INT64), node("Reshape", "x f", "y"),
    ], [("x", FLOAT, [1])], ["y", "b"])
    branch = [helper.make_graph([node(op, "x", "r")], op, [], [helper.make_tensor_value_info("r", FLOAT, None)])
              for op in ("Relu", "Exp")]
    write("branches", [
        node("If", "yes", "y", then_branch=branch[0], else_branch=branch[1]),
        node("If", "flag", "z", then_branch=branch[0], else_branch=branch[1]),
        node("Loop", "trips yes x", "l", body=branch[0]),
    ], [("x", FLOAT, ["n", 3]), ("flag", BOOL, [])], ["y"],
          [numpy_helper.from_array(np.array(True), "yes"), ints("trips", 3, scalar=True)])
    write("decided", [node("If", "yes", "y", then_branch=branch[0], else_branch=branch[1])],
          [("x", FLOAT, ["n", 3])], ["y"], [numpy_helper.from_array(np.array(True), "yes")])
    relu = node("LeakyRelu", "a", "r")
    reference = relu.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", 1
    inner = helper.make_function("local", "Inner", ["a"], ["r"], [relu], [helper.make_opsetid("", 17)], ["slope"])
    outer = helper.make_function(
        "local", "Outer", ["a", "c"], ["r"],
        [helper.make_node("Inner", ["a"], ["t"], domain="local", slope=0.5), node("Clip", "t c", "r")],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)])
    write("functions", [
        helper.make_node("Outer", ["x", ""], ["m"], domain="local"), helper.make_node("Outer", ["m", "low"], ["y"], domain="local"),
    ], [("x", FLOAT, ["n", 3])], ["y"], [numpy_helper.from_array(np.array(-1, np.float32), "low")],
          functions=[inner, outer], extra_opsets=["local"])
    write("microsoft", [
        helper.make_node("Gelu", ["x"], ["a"], domain="com.microsoft"),
        helper.make_node("FastGelu", ["a", "b"], ["y"], domain="com.microsoft"),
        helper.make_node("QuickGelu", ["y"], ["z"], domain="com.microsoft"),
    ], [("x", FLOAT, ["n", 3])], ["z"], [floats("b", 3)], extra_opsets=["com.microsoft"])
    external = helper.make_tensor("w", FLOAT, [1], [0.0])
    external.ClearField("float_data")
    external.data_location = TensorProto.EXTERNAL
    entry = external.external_data.add()
    entry.key, entry.value = "location", "../w.bin"
    write("external", [node("Identity", "w", "y")], [("x", FLOAT, [1])], ["y"], [external])


if __name__ == "__main__":
    main()
