"""Writes blocks of each GGUF type that is read, and what their elements are worth to the format's own package.

usage: python blocks.py            (needs: pip install gguf==0.19.0)

Bytes are arithmetic; scales are set to halves of a usual size. Blocks and values, singles, are hexadecimal bytes.
"""

import json
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

HERE = pathlib.Path(__file__).parent
# Where a block's halves are.
HALVES = dict(
    Q4_0=[0], Q4_1=[0, 2], Q5_0=[0], Q5_1=[0, 2], Q8_0=[0], Q2_K=[80, 82], Q3_K=[108], Q4_K=[0, 2], Q5_K=[0, 2],
    Q6_K=[208], IQ4_NL=[0],
)
ELEMENTS = 512


def blocks(name, halves):
    size, length = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    count = ELEMENTS // size
    at = np.arange(count * length, dtype=np.uint32)
    mixed = (at * np.uint32(2654435761) ^ (at >> np.uint32(3))) * np.uint32(0x85EBCA6B)
    data = (mixed >> np.uint32(24)).astype(np.uint8).reshape(count, length)
    for number in range(count):
        for place, half in enumerate(halves):
            value = np.float16((0.01 + 0.003 * number) * (-2 if place else 1))
            data[number, half:half + 2] = np.frombuffer(value.tobytes(), np.uint8)
    return data


def case(name, halves):
    data = blocks(name, halves)
    values = dequantize(data, GGMLQuantizationType[name]).astype("<f4")
    return dict(blocks=data.tobytes().hex(), values=values.tobytes().hex())


cases = {name: case(name, halves) for name, halves in HALVES.items()}
(HERE / "blocks.json").write_text(json.dumps(cases, indent=1) + "\n")
