"""Dilution and longer contexts once more, in plain loops, on transformers' own scaled models.

Nothing here goes through `poskernel_core`.
"""

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support import oracles
from tests.support.oracles import dot, mean, mean_row, softmax

apart = oracles.total_variation


def scaled_model(path, scaling, factor, length):
    """The model as transformers loads it with a scaled rotation in its configuration."""
    config = AutoConfig.from_pretrained(path)
    if scaling != "own" and factor > 1:
        more = {"rope_type": scaling.lower(), "factor": float(factor),
                "original_max_position_embeddings": length}  # fmt: skip
        config.rope_parameters = config.rope_parameters | more
    return AutoModelForCausalLM.from_pretrained(
        path, config=config, attn_implementation="eager"
    ).eval()


def scaled_logits(path, texts, scaling, factor, length):
    """Logits of tokens `[text, pos]`."""
    with torch.inference_mode():
        model = scaled_model(path, scaling, factor, length)
        return model(torch.as_tensor(texts), use_cache=False).logits


def losses(logits, texts):
    """The loss of every token but the first, as lists."""
    found = []
    for rows, text in zip(logits.double(), np.asarray(texts).tolist(), strict=True):
        found.append([
            float(torch.logsumexp(row, 0) - row[right])
            for row, right in zip(rows, text[1:], strict=False)
        ])  # fmt: skip
    return found


def queries_and_keys(path, texts, scaling, factor, length):
    """Of a Llama: rotated queries and keys, each `[layer][text][head][pos]` as vectors."""
    model, seen = scaled_model(path, scaling, factor, length), {}
    for name, module in model.named_modules():
        if name.endswith(("q_proj", "k_proj")):
            module.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out}))
    ids = torch.as_tensor(texts)
    with torch.inference_mode():
        model(ids, use_cache=False)
        cos, sin = model.model.rotary_emb(torch.zeros(1, 1), torch.arange(ids.shape[1])[None])
    width, found = model.config.head_dim, []
    for kind in ("q_proj", "k_proj"):
        layers = [out for name, out in seen.items() if name.endswith(kind)]
        split = [x.reshape(*x.shape[:2], -1, width).transpose(1, 2) for x in layers]
        found.append([turned(x.double(), cos.double(), sin.double()) for x in split])
    return found


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    away = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return (x * cos + away * sin).tolist()


def end_kernel(queries, keys, head, length, skip, scale, window=None):
    """One head's kernel by offset at the end of texts, by loops; `[text][head][pos]` of one layer.

    Eight query positions in the last quarter of `length`, each over the offsets that the first of
    them sees in the shortest context.
    """
    texts, total, quarter = len(queries), len(queries[0][0]), length // 4
    shared = head * len(keys[0]) // len(queries[0])
    backs = sorted({round(place * (quarter - 1) / 7) for place in range(8)})
    offsets = length - quarter - skip + 1
    means = {
        i: [mean([keys[t][shared][i][d] for t in range(texts)]) for d in range(len(keys[0][0][0]))]
        for i in range(total - length + skip, total)
    }
    rows = []
    for text in range(texts):
        for back in backs:
            n = total - 1 - back
            seen = range(offsets if window is None else min(window, offsets))
            row = softmax([scale * dot(queries[text][head][n], means[n - k]) for k in seen])
            rows.append(row + [0.0] * (offsets - len(row)))
    return mean_row(rows)
