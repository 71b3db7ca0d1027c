#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the bundled model with ONNX Runtime.

It reads the committed test images, and the whole test split where that is installed. With --write it also makes the
committed test files anew: test_images.idx3.gz and test_labels.idx1.gz (the first 2,000 images of the test split) and
golden/ (the first 64 of them as model input, and ONNX Runtime's logits for them).
Run by hand after train.py. Needs numpy and onnxruntime.
"""

import argparse
from pathlib import Path

import numpy as np
import onnxruntime

import dataset

SUBSET_IMAGES, GOLDEN_IMAGES = 2000, 64
SUBSET_FILES = (dataset.HERE / "test_images.idx3.gz", dataset.HERE / "test_labels.idx1.gz")
GOLDEN_DIR = dataset.HERE / "golden"


def logits_of(session, images, batch=500):
    return np.concatenate(
        [
            session.run(["logits"], {"image": dataset.to_model_input(images[i : i + batch])})[0]
            for i in range(0, len(images), batch)
        ]
    )


def report(session, what, images, labels):
    hits = int((logits_of(session, images).argmax(1) == labels).sum())
    print(f"{what}: {hits} of {len(labels)} right, {hits / len(labels):.2%}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", default=str(dataset.HERE / "model.onnx"), help="ONNX file to measure")
    parser.add_argument("--data", default=dataset.DEFAULT_DIR, help="folder with Fashion-MNIST's four .gz files")
    parser.add_argument(
        "--write", action="store_true", help="make the committed test files anew from --data and --model"
    )
    args = parser.parse_args()

    session = onnxruntime.InferenceSession(args.model, providers=["CPUExecutionProvider"])
    if args.write or Path(args.data).is_dir():
        images, labels = dataset.load_split(args.data, "t10k")
        report(session, "whole test split", images, labels)
    else:
        print(f"whole test split: left out, {args.data} does not exist")
    if args.write:
        for path, array in zip(SUBSET_FILES, (images, labels), strict=True):
            dataset.write_idx(path, array[:SUBSET_IMAGES])
        GOLDEN_DIR.mkdir(exist_ok=True)
        first = images[:GOLDEN_IMAGES]
        np.savez(GOLDEN_DIR / "inputs.npz", image=dataset.to_model_input(first))
        # One image a run, so that the recorded numbers do not hang on how a batch is split.
        np.savez(GOLDEN_DIR / "outputs.npz", logits=logits_of(session, first, batch=1))
    report(session, "committed test images", *map(dataset.read_idx, SUBSET_FILES))


if __name__ == "__main__":
    main()
