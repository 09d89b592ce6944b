"""Derives directories with other element types from a quantized one, by MLX itself.

usage: python derive.py SOURCE act32|bf16|f32 DIRECTORY

act32: what is not packed becomes f32, and so do activations. bf16, f32: nothing is packed any more.
"""

import json
import pathlib
import shutil
import sys

import mlx.core as mx

source, kind, to = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
dtype = mx.bfloat16 if kind == "bf16" else mx.float32
shutil.copytree(source, to, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json"))
config = json.loads((source / "config.json").read_text())
arrays = mx.load(str(source / "model.safetensors"))
quantization = config["quantization"]
out = {}
for name, array in arrays.items():
    base = name.rsplit(".", 1)[0]
    packed = f"{base}.scales" in arrays
    if not packed or (kind == "act32" and name.endswith((".scales", ".biases"))):
        out[name] = array.astype(dtype)
    elif kind == "act32":
        out[name] = array
    elif name.endswith(".weight"):
        how = quantization.get(base) or quantization
        scales, biases = (arrays[f"{base}.{part}"].astype(mx.float32) for part in ("scales", "biases"))
        plain = mx.dequantize(array, scales, biases, group_size=how["group_size"], bits=how["bits"])
        out[name] = plain.astype(dtype)
mx.save_safetensors(str(to / "model.safetensors"), out, metadata={"format": "mlx"})
if kind != "act32":
    config.pop("quantization", None)
    config.pop("quantization_config", None)
config["torch_dtype"] = "bfloat16" if kind == "bf16" else "float32"
(to / "config.json").write_text(json.dumps(config, indent=2) + "\n")
