"""Brute-force oracle of a score's components: plain loops over what plain transformers computes.

It shares no code with `poskernel_core`: patterns, values, streams and outputs of MLPs are those of
transformers' own eager forward pass; everything else is a loop over lists in float64.
"""

import math
from pathlib import Path

import numpy as np
import torch

from tests.support.builders import hf_eager_model


def score_table(path: Path, ids: list[int], layer: int, head: int, query: int, key: int):
    """Names of the components, and the scores `[query component][key component]`, before a cap."""
    model = hf_eager_model(path)
    kind = _Gpt2(model)
    kept = {}
    for at in range(layer):
        for name, place in kind.places.items():
            part = kind.block(at).get_submodule(place)
            part.register_forward_hook(
                lambda _m, _a, out, name=name, at=at: kept.update({(name, at): out[0].double()})
            )
    with torch.inference_mode():
        out = model(
            torch.tensor([ids]), output_attentions=True, output_hidden_states=True, use_cache=False
        )
    patterns = [each[0].double().numpy() for each in out.attentions]
    streams = [each[0].double().numpy() for each in out.hidden_states]
    sides = []
    for side, position in (("query", query), ("key", key)):
        names, rows = _components(kind, kept, patterns, ids, layer, position)
        sigma, centre = kind.size(streams[layer][position])
        projected = []
        for row in rows:
            mean = sum(row) / len(row) if centre else 0.0
            normed = [(x - mean) / sigma for x in row]
            projected.append(kind.project(normed, side, layer, head, position, bias=False))
        constant = kind.project([0.0] * len(rows[0]), side, layer, head, position, bias=True)
        if any(constant):
            names, projected = [*names, "constant"], [*projected, constant]
        sides.append((names, projected))
    (names, queries), (_, keys) = sides
    scale = 1 / math.sqrt(kind.width)
    table = [[scale * sum(a * b for a, b in zip(q, k, strict=True)) for k in keys] for q in queries]
    return names, table


def _components(kind, kept, patterns, ids, layer, position):
    """What was written to the stream at one position, part by part."""
    names, rows = zip(*kind.embeddings(ids[position], position), strict=True)
    names, rows, biases = list(names), list(rows), None
    for at in range(layer):
        for head in range(kind.heads):
            values = kind.values(kept["values", at].numpy(), head)
            mixed = [0.0] * kind.width
            for j in range(position + 1):
                for d in range(kind.width):
                    mixed[d] += patterns[at][head, position, j] * values[j][d]
            names.append(f"L{at}H{head}")
            rows.append(kind.written(mixed, at, head))
        names.append(f"MLP {at}")
        rows.append(kept["mlp", at][position].tolist())
        more = kind.output_bias(at)
        if more is not None:
            biases = more if biases is None else [a + b for a, b in zip(biases, more, strict=True)]
    if biases is not None:
        names.append("biases")
        rows.append(biases)
    return names, rows


def _numbers(tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def _times(row, matrix) -> list[float]:
    """`row @ matrix`, with the matrix `[in][out]`."""
    return [sum(x * matrix[at][to] for at, x in enumerate(row)) for to in range(len(matrix[0]))]


class _Gpt2:
    def __init__(self, model):
        self.places = {"values": "attn.c_attn", "mlp": "mlp"}
        self.model, self.heads = model, model.config.n_head
        self.model_width = model.config.n_embd
        self.width = self.model_width // self.heads

    def block(self, at):
        return self.model.transformer.h[at]

    def embeddings(self, token, position):
        body = self.model.transformer
        yield "embedding", _numbers(body.wte.weight)[token].tolist()
        yield "position", _numbers(body.wpe.weight)[position].tolist()

    def values(self, joined, head):
        first = 2 * self.model_width + head * self.width
        return joined[:, first : first + self.width]

    def written(self, mixed, at, head):
        weight = _numbers(self.block(at).attn.c_proj.weight)
        return _times(mixed, weight[head * self.width : (head + 1) * self.width])

    def output_bias(self, at):
        return _numbers(self.block(at).attn.c_proj.bias).tolist()

    def size(self, x):
        mean = sum(x) / len(x)
        return math.sqrt(sum((each - mean) ** 2 for each in x) / len(x) + 1e-5), True

    def project(self, normed, side, layer, head, position, *, bias):
        block = self.block(layer)
        gain, shift = _numbers(block.ln_1.weight), _numbers(block.ln_1.bias)
        first = (self.model_width if side == "key" else 0) + head * self.width
        weight = _numbers(block.attn.c_attn.weight)[:, first : first + self.width]
        offset = _numbers(block.attn.c_attn.bias)[first : first + self.width]
        if bias:
            return [a + b for a, b in zip(_times(shift, weight), offset, strict=True)]
        return _times([g * x for g, x in zip(gain, normed, strict=True)], weight)
