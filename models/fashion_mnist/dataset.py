# SPDX-License-Identifier: Apache-2.0
"""Reads Fashion-MNIST in its original IDX files.

Used by train.py and evaluate.py. Needs numpy only. An IDX file is a big-endian header (two zero bytes, a type code, the
number of dimensions, then each dimension as an uint32) followed by the values; Fashion-MNIST has uint8 (code 8) only.
"""

import gzip
import struct
from pathlib import Path

import numpy as np

DEFAULT_DIR = "/usr/share/datasets/fashion-mnist"
HERE = Path(__file__).resolve().parent

_TYPE_UINT8 = 8


def read_idx(path):
    """Returns the uint8 array in a gzip-compressed IDX file."""
    with gzip.open(path, "rb") as file:
        data = file.read()
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _TYPE_UINT8:
        raise SystemExit(f"{path}: starts with {data[:4].hex()}, not with the magic of an IDX file of uint8 (000008nn)")
    rank = data[3]
    header_bytes = 4 + 4 * rank
    if len(data) < header_bytes:
        raise SystemExit(f"{path}: ends inside the header; {header_bytes} bytes expected, {len(data)} found")
    dims = struct.unpack(f">{rank}I", data[4:header_bytes])
    values = np.frombuffer(data, np.uint8, offset=header_bytes)
    if values.size != np.prod(dims):
        raise SystemExit(f"{path}: holds {values.size} values; its header {dims} says {np.prod(dims)}")
    return values.reshape(dims)


def write_idx(path, array):
    """Writes an uint8 array; equal arrays give equal bytes (no time stamp, no name in the gzip header)."""
    header = bytes([0, 0, _TYPE_UINT8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    payload = header + np.ascontiguousarray(array, np.uint8).tobytes()
    with open(path, "wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(payload)


def load_split(directory, split):
    """Returns (images uint8 [n,28,28], labels uint8 [n]) of `split`, "train" or "t10k"."""
    directory = Path(directory)
    images_path = directory / f"{split}-images-idx3-ubyte.gz"
    labels_path = directory / f"{split}-labels-idx1-ubyte.gz"
    for path in (images_path, labels_path):
        if not path.exists():
            raise SystemExit(
                f"{path} does not exist; install it with `apt-get install dataset-fashion-mnist`, or pass "
                "the folder that holds Fashion-MNIST's four .gz files as --data"
            )
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.shape[1:] != (28, 28) or labels.shape != images.shape[:1]:
        raise SystemExit(
            f"{directory}: images {images.shape} and labels {labels.shape} of {split}; expected [n,28,28] and [n]"
        )
    return images, labels


def to_model_input(images):
    """uint8 [n,28,28] to the model's `image`: float32 [n,1,28,28], values left as 0..255."""
    return images.reshape(-1, 1, 28, 28).astype(np.float32)
