"""What makes the first key a sink, once more: plain transformers, and plain loops.

Written from the definition. A *setting* is three booleans: whether the target stands first, whether
it has position id 0, and whether it is the start token.
"""

import json
from functools import cache

import numpy as np
import torch

from tests.support import oracles
from tests.support.builders import hf_eager_model
from tests.support.truth import projections_in, projections_of

LEARNED = [(f, z, s) for f in (1, 0) for z in (1, 0) for s in (1, 0)]
OTHERS = [(f, f, s) for f in (1, 0) for s in (1, 0)]


def front(setting, start, ordinary, filler):
    """Tokens and position ids of the two front places."""
    stands_first, zero, is_start = setting
    target = (start if is_start else ordinary, 0 if zero else 1)
    other = (filler, 1 if zero else 0)
    pair = [target, other] if stands_first else [other, target]
    return [token for token, _ in pair], [number for _, number in pair]


def run(path, tokens, ids=None, mask=True):
    """Attention of each layer `[layer][head, query, key]` on one sequence, with eager attention."""
    more = {}
    if ids is not None:
        more["position_ids"] = torch.tensor([ids])
    if mask:
        more["attention_mask"] = torch.ones(1, len(tokens), dtype=torch.long)
    with torch.inference_mode():
        out = _model(path)[0](
            torch.tensor([tokens]), output_attentions=True, use_cache=False, **more
        )
    return [each[0].numpy().astype(float) for each in out.attentions if each is not None]


def queries_and_keys(path, tokens, scale):
    """Queries and keys of each layer, `[layer][head, pos, d]`, the queries times `scale[layer]`."""
    model, seen = _model(path)
    with torch.inference_mode():
        model(torch.tensor([tokens]), use_cache=False)
    config = json.loads((path / "config.json").read_text())
    queries, keys = projections_of(config, seen, np.arange(len(tokens)))
    return [q[0] * s for q, s in zip(queries, scale, strict=True)], [k[0] for k in keys]


@cache
def _model(path):
    """A model, loaded once, and what its maps to queries and keys gave last."""
    model = hf_eager_model(path)
    return model, projections_in(model)


def to_front(attention, head):
    """Mean attention to the two front keys over the queries behind them."""
    rows = attention[head][2:]
    return [sum(float(row[key]) for row in rows) / len(rows) for key in (0, 1)]


def effect(settings, values, factors):
    """Mean of the values where the product of the factors' signs is 1, less that where it is -1."""
    plus, minus = [], []
    for setting, value in zip(settings, values, strict=True):
        sign = 1
        for factor in factors:
            sign *= 1 if setting[factor] else -1
        (plus if sign > 0 else minus).append(value)
    return sum(plus) / len(plus) - sum(minus) / len(minus)


def exchanged(queries, keys, first_key, visible):
    """Mean attention to a first key of another run, behind the two front tokens, of one head.

    `visible [query][key]` says which keys each query sees.
    """
    found = []
    for n in range(2, len(queries)):
        scores = {
            i: float(queries[n] @ (first_key if i == 0 else keys[i]))
            for i in range(n + 1)
            if visible[n][i]
        }
        found.append(oracles.softmax_at(scores, n + 1)[0])
    return sum(found) / len(found)
