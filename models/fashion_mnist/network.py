# SPDX-License-Identifier: Apache-2.0
"""The network of the bundled model, written once: a list that train.py runs with JAX and export() turns into ONNX.

Every convolution is followed by a BatchNormalization that stays a node of its own in the ONNX file, since folding it is
the compiler's work. Parameters are a dict from ONNX initializer name to float32 array in ONNX's layout (OIHW).
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Mean and standard deviation of the 60,000 training images' pixels, in units of 0..255.
PIXEL_MEAN, PIXEL_STD = 72.94, 90.02
BATCH_NORM_EPSILON = 1e-5
CLASSES = 10

# ("conv", name, kernel, in, out) is Conv + BatchNormalization; ("save",) keeps its input for the next ("add", name).
NETWORK = (
    ("conv", "stem", 3, 1, 24),
    ("relu", "stem"),
    ("pool", "stem"),
    ("save",),
    ("conv", "block1.conv1", 3, 24, 24),
    ("relu", "block1.conv1"),
    ("conv", "block1.conv2", 3, 24, 24),
    ("add", "block1"),
    ("relu", "block1"),
    ("pool", "block1"),
    ("conv", "widen", 3, 24, 64),
    ("relu", "widen"),
    ("save",),
    ("conv", "block2.conv1", 3, 64, 64),
    ("relu", "block2.conv1"),
    ("conv", "block2.conv2", 3, 64, 64),
    ("add", "block2"),
    ("relu", "block2"),
    ("conv", "expand", 1, 64, 128),
    ("relu", "expand"),
    ("average", "head"),
    ("gemm", "head", 128, CLASSES),
)


def initial_parameters(rng):
    """Returns (trained, running): weights and scales, and BatchNormalization's running statistics."""
    trained, running = {}, {}
    for layer in NETWORK:
        if layer[0] == "conv":
            _, name, kernel, inputs, outputs = layer
            std = np.sqrt(2.0 / (kernel * kernel * inputs))
            trained[f"{name}.weight"] = rng.normal(0, std, (outputs, inputs, kernel, kernel)).astype(np.float32)
            trained[f"{name}.bn.scale"] = np.ones(outputs, np.float32)
            trained[f"{name}.bn.bias"] = np.zeros(outputs, np.float32)
            running[f"{name}.bn.mean"] = np.zeros(outputs, np.float32)
            running[f"{name}.bn.var"] = np.ones(outputs, np.float32)
        elif layer[0] == "gemm":
            _, name, inputs, outputs = layer
            trained[f"{name}.weight"] = rng.normal(0, np.sqrt(1.0 / inputs), (outputs, inputs)).astype(np.float32)
            trained[f"{name}.bias"] = np.zeros(outputs, np.float32)
    return trained, running


def export(parameters, path):
    """Writes the network as ONNX, opset 17, with a dynamic batch."""
    nodes, initializers = [], []

    def constant(name, value):
        initializers.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def node(op, name, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    x = node("Mul", "normalize/scale", ["image", constant("normalize.scale", 1 / PIXEL_STD)], "normalize.scaled")
    x = node("Sub", "normalize/center", [x, constant("normalize.mean", PIXEL_MEAN / PIXEL_STD)], "normalize.out")
    saved = None
    for layer in NETWORK:
        kind, name = layer[0], layer[1] if len(layer) > 1 else None
        if kind == "conv":
            kernel = layer[2]
            pad = kernel // 2
            weight = constant(f"{name}.weight", parameters[f"{name}.weight"])
            x = node(
                "Conv",
                f"{name}/conv",
                [x, weight],
                f"{name}.conv",
                kernel_shape=[kernel] * 2,
                pads=[pad] * 4,
                strides=[1, 1],
                dilations=[1, 1],
                group=1,
            )
            statistics = [
                constant(f"{name}.bn.{s}", parameters[f"{name}.bn.{s}"]) for s in ("scale", "bias", "mean", "var")
            ]
            x = node("BatchNormalization", f"{name}/bn", [x, *statistics], f"{name}.bn", epsilon=BATCH_NORM_EPSILON)
        elif kind == "relu":
            x = node("Relu", f"{name}/relu", [x], f"{name}.relu")
        elif kind == "pool":
            x = node("MaxPool", f"{name}/pool", [x], f"{name}.pool", kernel_shape=[2, 2], strides=[2, 2])
        elif kind == "save":
            saved = x
        elif kind == "add":
            x = node("Add", f"{name}/add", [x, saved], f"{name}.add")
        elif kind == "average":
            x = node("GlobalAveragePool", f"{name}/average", [x], f"{name}.average")
            x = node("Flatten", f"{name}/flatten", [x], f"{name}.flatten", axis=1)
        elif kind == "gemm":
            weight = constant(f"{name}.weight", parameters[f"{name}.weight"])
            bias = constant(f"{name}.bias", parameters[f"{name}.bias"])
            x = node("Gemm", f"{name}/gemm", [x, weight, bias], "logits", transB=1)
    graph = helper.make_graph(
        nodes,
        "fashion_mnist",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        initializers,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="flywheel models/fashion_mnist/train.py",
    )
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, strict_mode=True), full_check=True)
    onnx.save(model, path)
