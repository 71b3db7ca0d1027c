#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the bundled Fashion-MNIST model with JAX on the CPU and writes model.onnx.

Run by hand, only to make the model anew: the demo and the tests use the committed file. Needs requirements.txt and the
data (`apt-get install dataset-fashion-mnist`). The seed fixes the initial weights, the order of the images and their
augmentation. JAX's sums differ between processors in the last bits, so another machine ends near the same weights, not
at them.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import dataset
import network


def convolve(x, weight):
    """3x3 or 1x1 "same" convolution of NHWC `x` by OIHW `weight`."""
    outputs, inputs, kernel, _ = weight.shape
    batch, height, width, _ = x.shape
    if kernel == 1:
        return x @ weight.reshape(outputs, inputs).T
    if inputs == 1:
        # XLA's convolution is several times slower than this matrix product when there is a single input channel.
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        patches = jnp.concatenate([padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)], -1)
        return (patches.reshape(-1, 9) @ weight.reshape(outputs, 9).T).reshape(batch, height, width, outputs)
    return lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC"))


def forward(trained, running, image, training):
    """Returns (logits, batch statistics) of NHWC float pixels 0..255; `running` normalizes unless `training`."""
    x = image / network.PIXEL_STD - network.PIXEL_MEAN / network.PIXEL_STD
    saved, statistics = None, {}
    for layer in network.NETWORK:
        kind, name = layer[0], layer[1] if len(layer) > 1 else None
        if kind == "conv":
            x = convolve(x, trained[f"{name}.weight"])
            if training:
                mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
                statistics |= {f"{name}.bn.mean": mean, f"{name}.bn.var": var}
            else:
                mean, var = running[f"{name}.bn.mean"], running[f"{name}.bn.var"]
            scale = trained[f"{name}.bn.scale"] * lax.rsqrt(var + network.BATCH_NORM_EPSILON)
            x = x * scale + (trained[f"{name}.bn.bias"] - mean * scale)
        elif kind == "relu":
            x = jnp.maximum(x, 0)
        elif kind == "pool":
            batch, height, width, channels = x.shape
            x = x.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4))
        elif kind == "save":
            saved = x
        elif kind == "add":
            x = x + saved
        elif kind == "average":
            x = x.mean((1, 2))
        elif kind == "gemm":
            x = x @ trained[f"{name}.weight"].T + trained[f"{name}.bias"]
    return x, statistics


def make_step(optimizer, label_smoothing, momentum=0.97):
    def loss_of(trained, image, label):
        logits, statistics = forward(trained, None, image, training=True)
        target = optax.smooth_labels(jax.nn.one_hot(label, network.CLASSES), label_smoothing)
        return optax.softmax_cross_entropy(logits, target).mean(), (statistics, (logits.argmax(-1) == label).mean())

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(trained, running, state, image, label):
        (loss, (statistics, accuracy)), gradient = jax.value_and_grad(loss_of, has_aux=True)(trained, image, label)
        updates, state = optimizer.update(gradient, state, trained)
        running = {k: momentum * running[k] + (1 - momentum) * statistics[k] for k in running}
        return optax.apply_updates(trained, updates), running, state, loss, accuracy

    return step


def augment(images, rng, shift):
    """Mirrors half of the images and moves each by up to `shift` pixels, filling with background (0)."""
    n = len(images)
    padded = np.pad(images, ((0, 0), (shift, shift), (shift, shift)))
    down, right = rng.integers(0, 2 * shift + 1, (2, n, 1))
    rows, columns = np.arange(28) + down, np.arange(28) + right
    mirrored = rng.random(n) < 0.5
    columns[mirrored] = columns[mirrored, ::-1]
    return padded[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def as_batch(images):
    return images[..., None].astype(np.float32)


def accuracy_of(trained, running, images, labels, batch=500):
    predict = jax.jit(lambda image: forward(trained, running, image, training=False)[0].argmax(-1))
    hits = sum(
        int((predict(as_batch(images[i : i + batch])) == labels[i : i + batch]).sum())
        for i in range(0, len(images), batch)
    )
    return hits / len(images)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", default=dataset.DEFAULT_DIR, help="folder with Fashion-MNIST's four .gz files")
    parser.add_argument("--out", default=str(dataset.HERE / "model.onnx"), help="ONNX file to write")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training images")
    parser.add_argument("--batch", type=int, default=128, help="images a step")
    parser.add_argument(
        "--learning-rate", type=float, default=0.1, help="peak; one epoch of warm-up, then a cosine to 0"
    )
    parser.add_argument("--weight-decay", type=float, default=5e-4, help="on convolution and Gemm weights only")
    parser.add_argument(
        "--label-smoothing", type=float, default=0.05, help="share of the target spread over all classes"
    )
    parser.add_argument("--shift", type=int, default=2, help="largest shift of an image in pixels")
    parser.add_argument("--seed", type=int, default=2017, help="of weights, order and augmentation")
    parser.add_argument(
        "--validation",
        type=int,
        default=0,
        help="hold out this many training images and report on them in place of the test split; use it to "
        "choose settings, and the test split only to report",
    )
    args = parser.parse_args()
    for name in ("epochs", "batch"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}; it must be at least 1")
    if args.shift < 0:
        parser.error(f"--shift is {args.shift}; it must not be negative")
    if not Path(args.out).resolve().parent.is_dir():
        parser.error(f"--out {args.out}: its folder does not exist; create it first")

    images, labels = dataset.load_split(args.data, "train")
    labels = labels.astype(np.int32)
    if not 0 <= args.validation <= len(images) - args.batch:
        parser.error(f"--validation is {args.validation}; it must leave a batch of the {len(images)} training images")
    if args.validation:
        held_out, split = (images[-args.validation :], labels[-args.validation :]), "validation"
        images, labels = images[: -args.validation], labels[: -args.validation]
    else:
        held_out, split = dataset.load_split(args.data, "t10k"), "test"

    rng = np.random.Generator(np.random.PCG64(args.seed))
    trained, running = jax.tree.map(jnp.asarray, network.initial_parameters(rng))
    steps = len(images) // args.batch
    schedule = optax.warmup_cosine_decay_schedule(0, args.learning_rate, steps, max(args.epochs, 2) * steps)
    optimizer = optax.chain(
        optax.add_decayed_weights(args.weight_decay, mask=lambda p: {k: k.endswith(".weight") for k in p}),
        optax.sgd(schedule, momentum=0.9, nesterov=True),
    )
    state, step = optimizer.init(trained), make_step(optimizer, args.label_smoothing)

    print(f"{sum(a.size for a in trained.values())} parameters, {len(images)} images, {args.epochs} epochs", flush=True)
    start = time.monotonic()
    for epoch in range(args.epochs):
        order = rng.permutation(len(images))
        losses, accuracies = [], []
        for i in range(steps):
            chosen = order[i * args.batch : (i + 1) * args.batch]
            batch = as_batch(augment(images[chosen], rng, args.shift))
            trained, running, state, loss, accuracy = step(trained, running, state, batch, labels[chosen])
            losses.append(loss)
            accuracies.append(accuracy)
        print(
            f"epoch {epoch + 1}/{args.epochs}: loss {np.mean(losses):.4f}, "
            f"training accuracy {np.mean(accuracies):.2%}, {time.monotonic() - start:.0f} s",
            flush=True,
        )

    print(f"{split} accuracy: {accuracy_of(trained, running, *held_out):.2%} of {len(held_out[1])} images")
    network.export({k: np.asarray(v) for k, v in (trained | running).items()}, args.out)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
