"""Writes the golden logits of tiny models with weights of arithmetic, computed by mlx-lm.

usage: python make.py            (needs: pip install "mlx[cpu]==0.32.4" mlx-lm)

Each file holds a config.json, the tensors of the model by name, type and shape, tokens, and the logits of some positions. The
weights are no data: both sides make them from the tensor's name (see `value` here and in ../runtime/tiny.rs).
"""

import importlib
import json
import pathlib

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from bits import mixed_bits

HERE = pathlib.Path(__file__).parent
TOKENS = [3, 17, 42, 5, 60, 9, 33, 21, 50, 1, 28, 14, 7, 44]
ROWS = [0, 6, 13]

PLAIN = dict(hidden_size=64, num_hidden_layers=2, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
             rms_norm_eps=1e-5, vocab_size=64, max_position_embeddings=128, rope_theta=10000.0, tie_word_embeddings=False)
GEMMA = dict(PLAIN, head_dim=32, query_pre_attn_scalar=24, hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
LONG = dict(type="longrope", short_factor=[1.0 + 0.25 * pair for pair in range(6)],
            long_factor=[1.5 + pair for pair in range(6)])
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=0.5)


def quantized(group, bits, **more):
    return dict(quantization=dict(group_size=group, bits=bits, mode="affine", **more))


# name: (module of mlx-lm, element type, config.json)
CASES = {
    "llama": ("llama", "F32", dict(PLAIN, model_type="llama")),
    "llama_f16_tied": ("llama", "F16", dict(PLAIN, model_type="llama", tie_word_embeddings=True)),
    "llama_bf16_bias": ("llama", "BF16", dict(PLAIN, model_type="llama", attention_bias=True, mlp_bias=True)),
    "llama3_rope": ("llama", "F32", dict(PLAIN, model_type="llama", rope_scaling=LLAMA3)),
    "linear_rope": ("llama", "F32", dict(PLAIN, model_type="llama", rope_scaling=dict(type="linear", factor=2.0))),
    "llama_windows": ("llama", "F32", dict(PLAIN, model_type="llama", sliding_window=5,
                                           layer_types=["sliding_attention", "full_attention"])),
    "llama_q4": ("llama", "F16", dict(PLAIN, model_type="llama", **quantized(32, 4))),
    "llama_q8_g64": ("llama", "BF16", dict(PLAIN, model_type="llama", intermediate_size=128, **quantized(64, 8))),
    "llama_q2": ("llama", "F32", dict(PLAIN, model_type="llama", **quantized(32, 2))),
    "llama_q3": ("llama", "F16", dict(PLAIN, model_type="llama", **quantized(32, 3))),
    "llama_q5": ("llama", "F16", dict(PLAIN, model_type="llama", **quantized(32, 5))),
    "llama_q6": ("llama", "F16", dict(PLAIN, model_type="llama", **quantized(32, 6))),
    "llama_mixed": ("llama", "F16", dict(PLAIN, model_type="llama", **quantized(
        32, 4, **{"model.layers.0.self_attn.v_proj": dict(group_size=64, bits=8), "lm_head": False}))),
    "mistral": ("llama", "F32", dict(PLAIN, model_type="mistral", sliding_window=None)),
    "qwen2": ("qwen2", "F32", dict(PLAIN, model_type="qwen2", use_sliding_window=False, sliding_window=32)),
    "qwen3": ("qwen3", "F32", dict(PLAIN, model_type="qwen3", head_dim=24)),
    "phi3": ("phi3", "F32", dict(PLAIN, model_type="phi3", sliding_window=None)),
    "phi3_partial": ("phi3", "F32", dict(PLAIN, model_type="phi3", partial_rotary_factor=0.5)),
    "phi3_longrope": ("phi3", "F32", dict(PLAIN, model_type="phi3", partial_rotary_factor=0.75, rope_scaling=LONG,
                                          original_max_position_embeddings=32)),
    "qwen3_yarn": ("qwen3", "F32", dict(PLAIN, model_type="qwen3", head_dim=24, rope_scaling=YARN)),
    "gemma2": ("gemma2", "F32", dict(GEMMA, model_type="gemma2", attn_logit_softcapping=5.0, final_logit_softcapping=3.0,
                                     sliding_window=64)),
    "gemma3": ("gemma3_text", "F32", dict(GEMMA, model_type="gemma3_text", num_hidden_layers=3, sliding_window=5,
                                          sliding_window_pattern=3, rope_local_base_freq=10000.0, rope_theta=1000000.0)),
}


def value(name, dtype, shape):
    bits = mixed_bits(name, int(np.prod(shape)))
    if dtype == "U32":
        return mx.array(bits.reshape(shape))
    if name.endswith(".scales") or name.endswith(".biases"):
        # Exact in every type: few bits, and a bias half of a matrix' range below zero.
        scale = (1.0 + (bits >> 29).astype(np.float32) / 8.0) / 64.0
        out = scale if name.endswith(".scales") else -scale * 4.0
    else:
        # Within [-0.5, 0.5), of eight bits so that every type holds it.
        out = (bits >> 24).astype(np.float32) / np.float32(256.0) - np.float32(0.5)
        if "norm" in name:
            # In steps of a 64th.
            out = (bits >> 28).astype(np.float32) / np.float32(64.0) + np.float32(0.875)
        elif name.endswith(".weight"):
            out = out * np.float32(0.5)
    kind = dict(F32=mx.float32, F16=mx.float16, BF16=mx.bfloat16)[dtype]
    return mx.array(out.astype(np.float32).reshape(shape)).astype(kind)


def tensors(model, dtype):
    flat = nn.utils.tree_flatten(model.parameters())
    kind = lambda array: "U32" if array.dtype == mx.uint32 else dtype
    return [(name, kind(array), list(array.shape)) for name, array in flat]


def build(module, dtype, config):
    module = importlib.import_module(f"mlx_lm.models.{module}")
    model = module.Model(module.ModelArgs.from_dict(config))
    if config["tie_word_embeddings"] and "lm_head" in model:
        # As its loader does for files without this matrix.
        model.tie_word_embeddings = True
        model.pop("lm_head")
    block = config.get("quantization")
    if block:
        def choose(name, layer):
            if not hasattr(layer, "to_quantized"):
                return False
            own = block.get(name, True)
            return dict(group_size=own["group_size"], bits=own["bits"]) if isinstance(own, dict) else own
        nn.quantize(model, group_size=block["group_size"], bits=block["bits"], class_predicate=choose)
    names = [entry for entry in tensors(model, dtype) if "rope" not in entry[0]]
    # Computed in floats of 32 bits: the narrow types are exact in it.
    weights = [(name, as_float(value(name, kind, shape))) for name, kind, shape in names]
    model.load_weights(weights, strict=False)
    return model, names


def as_float(array):
    return array if array.dtype == mx.uint32 else array.astype(mx.float32)


def main():
    mx.set_default_device(mx.cpu)
    mx.disable_compile()
    for name, (module, dtype, config) in CASES.items():
        model, names = build(module, dtype, config)
        logits = np.array(model(mx.array([TOKENS]))[0])
        rows = [[float(f"{x:.6g}") for x in logits[row]] for row in ROWS]
        case = dict(config=config, tensors=names, tokens=TOKENS, rows=ROWS, logits=rows)
        (HERE / f"{name}.json").write_text(json.dumps(case, separators=(",", ":")) + "\n")
        print(name, len(names), float(np.abs(logits).max()))


if __name__ == "__main__":
    main()
