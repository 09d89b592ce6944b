"""Writes what MLX makes of matrices of arithmetic, for every type, width and group of its affine form.

usage: python make.py            (needs: pip install "mlx[cpu]==0.32.4" numpy)

A case holds the words, scales and biases of a small matrix as hexadecimal bytes, and the SHA-256 of those of a large one. The
elements are no data: both sides make them (see `element` here and in ../quantize.rs).
"""

import hashlib
import json
import pathlib

import mlx.core as mx
import numpy as np

HERE = pathlib.Path(__file__).parent
TYPES = dict(F32=mx.float32, F16=mx.float16, BF16=mx.bfloat16)
SMALL, LARGE = (6, 128), (96, 1024)


def mixed(count):
    """32 bits for each element."""
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(97)
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return x ^ (x >> np.uint32(16))


def element(shape):
    """A row of each sort in turn; every step is exact or rounded once, as it is in Rust."""
    x = (mixed(shape[0] * shape[1]) >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)
    x = x.reshape(shape)
    sort = (np.arange(shape[0]) % 6)[:, None]
    third = x * x * x
    rows = [
        x,
        third * np.float32(0.01),
        x + np.float32(1.0),
        x - np.float32(0.75),
        # Few values: many are halfway between two codes, and a group can be of one value.
        np.floor(x * np.float32(8.0)) * np.float32(0.125),
        # Groups of zeros, and one large element now and then.
        np.where(x > np.float32(0.45), third, np.float32(0.0)),
    ]
    return np.choose(sort, rows).astype(np.float32)


def bytes_of(array):
    return np.array(array.view(mx.uint8)).tobytes()


def main():
    mx.set_default_device(mx.cpu)
    cases = []
    for name, kind in TYPES.items():
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128):
                case = dict(type=name, bits=bits, group=group)
                for size, shape in (("small", SMALL), ("large", LARGE)):
                    parts = mx.quantize(mx.array(element(shape)).astype(kind), group_size=group, bits=bits)
                    parts = [bytes_of(part) for part in parts]
                    if size == "small":
                        case.update(zip(("words", "scales", "biases"), (part.hex() for part in parts)))
                    else:
                        case["large"] = hashlib.sha256(b"".join(parts)).hexdigest()
                cases.append(case)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "quantize.json").write_text(f"[\n{lines}\n]\n")


main()
