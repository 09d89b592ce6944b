"""Writes the golden vectors of encoders, computed by numpy in floats of 64 bits from the equations of the BERT paper.

usage: python make_encoder.py [MODEL]      (needs: pip install numpy; with MODEL also tokenizers and safetensors)

Tiny cases have weights of arithmetic, made from each tensor's name as in make.py. MODEL is the directory of all-MiniLM-L6-v2: the
sentences below get the tokens that Hugging Face's tokenizers make of them, and vectors.
"""

import json
import math
import pathlib
import sys

import numpy as np

from bits import mixed_bits

HERE = pathlib.Path(__file__).parent / "encoder"
BASE = dict(model_type="bert", hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=80, vocab_size=64,
            max_position_embeddings=32, type_vocab_size=2, layer_norm_eps=1e-12, hidden_act="gelu")
TEXTS = [[1, 5, 9, 2], [1, 2], [1, 60, 33, 21, 50, 7, 28, 14, 8, 44, 3, 17, 42, 5, 60, 9, 33, 21, 2], [1, 5, 9, 2, 0]]

# name: (prefix of the tensors, element type, config.json, pooling, normalized)
CASES = {
    "bert": ("", "F32", BASE, "mean", True),
    "bert_first": ("bert.", "F16", dict(BASE, hidden_act="gelu_new", layer_norm_eps=1e-5), "first", False),
    "bert_last": ("", "BF16", dict(BASE, num_attention_heads=2, type_vocab_size=1), "last", True),
}

SENTENCES = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "A cheetah is running behind its prey.",
    "The new movie is awesome",
    "The cat sits outside",
    "A man is playing guitar",
    "The new opera is not so great",
    "Das ist ein Satz auf Deutsch.",
    "Привет, мир!",
    "人工知能は面白い。",
    "naïve café résumé",
    "fn main() { println!(\"{}\", 1 << 20); }",
    "https://example.org/a?b=c&d=e#f",
    "1234567890 3.14159 -42",
    "😀 emoji and a zero\u200bwidth space",
    "unbelievablyincomprehensiblelongword",
    "Short",
    "How do I cancel my subscription and get my money back?",
    "The Treaty of Westphalia, signed in October 1648, ended both the Thirty Years' War within the Holy Roman Empire and the "
    "Eighty Years' War between Spain and the Dutch Republic; it is often named as the beginning of the modern system of states, "
    "although historians dispute how much of that system the texts themselves contain.",
]


def value(name, shape):
    """Eight bits, so that every element type holds it."""
    out = (mixed_bits(name, int(np.prod(shape))) >> 24).astype(np.float64) / 256.0 - 0.5
    return (out * 0.5 if name.endswith(".weight") else out).reshape(shape)


def shapes(prefix, c):
    h, f = c["hidden_size"], c["intermediate_size"]
    yield f"{prefix}embeddings.word_embeddings.weight", [c["vocab_size"], h]
    yield f"{prefix}embeddings.position_embeddings.weight", [c["max_position_embeddings"], h]
    yield f"{prefix}embeddings.token_type_embeddings.weight", [c["type_vocab_size"], h]
    norms = [f"{prefix}embeddings.LayerNorm"]
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}encoder.layer.{i}."
        for part in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]:
            yield at + part + ".weight", [h, h]
            yield at + part + ".bias", [h]
        yield at + "intermediate.dense.weight", [f, h]
        yield at + "intermediate.dense.bias", [f]
        yield at + "output.dense.weight", [h, f]
        yield at + "output.dense.bias", [h]
        norms += [at + "attention.output.LayerNorm", at + "output.LayerNorm"]
    for norm in norms:
        yield norm + ".weight", [h]
        yield norm + ".bias", [h]


def gelu(x, kind):
    if kind == "gelu":
        return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def encode(weights, prefix, c, tokens, pooling, normalized):
    w = lambda name: weights[prefix + name]
    dense = lambda x, name: x @ w(name + ".weight").T + w(name + ".bias")

    def norm(x, name):
        mean = x.mean(axis=-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + c["layer_norm_eps"]) * w(name + ".weight") + w(name + ".bias")

    heads, n = c["num_attention_heads"], len(tokens)
    split = lambda x: x.reshape(n, heads, -1).transpose(1, 0, 2)
    x = w("embeddings.word_embeddings.weight")[tokens] + w("embeddings.position_embeddings.weight")[:n]
    x = norm(x + w("embeddings.token_type_embeddings.weight")[0], "embeddings.LayerNorm")
    for i in range(c["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        q, k, v = (split(dense(x, at + "attention.self." + part)) for part in ["query", "key", "value"])
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ v).transpose(1, 0, 2).reshape(n, -1)
        x = norm(x + dense(mixed, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        inner = gelu(dense(x, at + "intermediate.dense"), c["hidden_act"])
        x = norm(x + dense(inner, at + "output.dense"), at + "output.LayerNorm")
    out = dict(mean=x.mean(axis=0), first=x[0], last=x[-1])[pooling]
    return out / np.sqrt((out**2).sum()) if normalized else out


def rounded(vector):
    return [float(f"{x:.7g}") for x in vector]


def tiny():
    for name, (prefix, dtype, config, pooling, normalized) in CASES.items():
        tensors = [(tensor, dtype, shape) for tensor, shape in shapes(prefix, config)]
        weights = {tensor: value(tensor, shape) for tensor, _, shape in tensors}
        vectors = [rounded(encode(weights, prefix, config, text, pooling, normalized)) for text in TEXTS]
        case = dict(config=config, tensors=tensors, pooling=pooling, normalized=normalized, texts=TEXTS, vectors=vectors)
        (HERE / f"{name}.json").write_text(json.dumps(case, separators=(",", ":")) + "\n")


def real(model):
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    config = json.loads((model / "config.json").read_text())
    weights = {name: array.astype(np.float64) for name, array in load_file(model / "model.safetensors").items()}
    cases = []
    for text in SENTENCES:
        tokens = tokenizer.encode(text).ids
        cases.append(dict(text=text, tokens=tokens, vector=rounded(encode(weights, "", config, tokens, "mean", True))))
    (HERE / "real" / "all-MiniLM-L6-v2.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")


(HERE / "real").mkdir(parents=True, exist_ok=True)
tiny()
if len(sys.argv) > 1:
    real(pathlib.Path(sys.argv[1]))
