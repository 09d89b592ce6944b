"""The weights of tiny models: from a tensor's name, the same here and in ../runtime/tiny.rs."""

import numpy as np


def mixed_bits(name, count):
    """32 bits for each element, from the tensor's name."""
    seed = np.uint32(2166136261)
    with np.errstate(over="ignore"):
        for byte in name.encode():
            seed = np.uint32((seed ^ np.uint32(byte)) * np.uint32(16777619))
        x = seed + np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return x ^ (x >> np.uint32(16))
