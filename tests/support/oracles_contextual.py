"""Brute-force oracles of contextual heads, token weights, and additivity, in plain loops.

They share no code with `poskernel_core`: queries and keys are those of plain transformers.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tests.support import oracles
from tests.support.builders import hf_eager_model
from tests.support.truth import Truth, projections_in, projections_of, truth_of

GROUPS = 10
LEARNED = ("wpe", "embed_positions")

Keys = list[list[list[list[float]]]]
"""Keys of one head, `[passage][token][shift][dimension]`."""


@dataclass(frozen=True, repr=False)
class Rows:
    """One head's last query, at `n`, in several texts.

    `kernels`: `K(n, .)` over all positions, 0 where nothing is visible; `scores`: content scores
    `c(n, i)` by visible position `i`.
    """

    n: int
    kernels: list[list[float]]
    scores: list[dict[int, float]]

    @property
    def denominators(self) -> list[float]:
        """`Z_n` of each text."""
        return [
            math.fsum(kernel[i] * math.exp(c) for i, c in scores.items())
            for kernel, scores in zip(self.kernels, self.scores, strict=True)
        ]


def mean_keys(path: Path, windows: np.ndarray) -> list[np.ndarray]:
    """Mean key at each position of some windows, for each layer `[kv, pos, d]`."""
    return [sum(keys.astype(float)) / len(windows) for keys in truth_of(path, windows).keys]


def head_rows(
    truth: Truth,
    means: Sequence[np.ndarray],
    cell: tuple[int, int],
    scale: float,
    n: int,
    skip: int,
    window: int | None = None,
) -> Rows:
    """The query at `n` of one head; `scale` and `window` are those of its layer."""
    (layer, head), kernels, scores = cell, [], []
    heads, shared = truth.queries[layer].shape[1], truth.keys[layer].shape[1]
    key_head = head * shared // heads
    means_here = means[layer][key_head].tolist()
    for q, k in zip(truth.queries[layer], truth.keys[layer], strict=True):
        query, keys = q[head, n].tolist(), k[key_head].tolist()
        kernels.append(oracles.kernel_row(query, means_here, scale, n, skip, window))
        content = {}
        for i in oracles.visible(n, skip, window):
            own = [x - m for x, m in zip(keys[i], means_here[i], strict=True)]
            content[i] = scale * oracles.dot(query, own)
        scores.append(content)
    return Rows(n, kernels, scores)


def relative_spread(values: Sequence[float]) -> float:
    """Standard deviation over mean, with one less in the denominator."""
    return oracles.standard_error(values) * math.sqrt(len(values)) / oracles.mean(values)


def mean_keys_kept(path: Path, windows: np.ndarray) -> list[list[np.ndarray]]:
    """Mean keys of all windows, and then without each group; window `w` is of `w mod 10`."""
    groups = range(min(GROUPS, len(windows)))
    rests = [[w for w in range(len(windows)) if w % GROUPS != group] for group in groups]
    return [mean_keys(path, windows), *(mean_keys(path, windows[rest]) for rest in rests)]


def moments_and_errors(
    truth: Truth, kept: list[list[np.ndarray]], *place: object
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Values of one head, and errors and biases of its denominator, mean and spread.

    `truth` is of the first texts, `kept` as :func:`mean_keys_kept`: each group is left out in the
    texts and in the mean keys. `place` is what `head_rows` wants to know.
    """
    found, left_out = moments(head_rows(truth, kept[0], *place)), []
    texts = range(len(truth.keys[0]))
    for group in range(min(GROUPS, len(texts))):
        rows = head_rows(truth, kept[1 + group], *place)
        rest = [t for t in texts if t % GROUPS != group]
        left = Rows(rows.n, [rows.kernels[t] for t in rest], [rows.scores[t] for t in rest])
        left_out.append(moments(left))
    columns = {
        name: [each[name] for each in left_out] for name in ("denominator", "denominator_cv")
    }
    errors = {name: oracles.jackknife_se(column) for name, column in columns.items()}
    biases = {
        name: (len(column) - 1) * (oracles.mean(column) - found[name])
        for name, column in columns.items()
    }
    return found, errors, biases


def moments(rows: Rows) -> dict[str, float]:
    """All values of one head."""
    z = rows.denominators
    weights = [math.exp(c) for scores in rows.scores for c in scores.values()]
    weight_mean, variance = oracles.mean(weights), oracles.variance(weights)
    squares = oracles.mean([1 / oracles.etc(kernel) for kernel in rows.kernels])
    kernel = oracles.mean_row(rows.kernels)
    return {
        "etc": oracles.etc(kernel),
        "local_mass": oracles.local_mass(kernel, rows.n),
        "visible_keys": len(rows.scores[0]),
        "denominator": oracles.mean(z),
        "denominator_cv": relative_spread(z),
        "predicted_cv": math.sqrt(variance * squares) / weight_mean,
        "weight_mean": weight_mean,
        "weight_variance": variance,
    }


def token_scores(rows: Rows, windows: np.ndarray) -> dict[int, list[float]]:
    """Content scores of each token, wherever it stands before the query."""
    found: dict[int, list[float]] = {}
    for window, scores in zip(windows.tolist(), rows.scores, strict=True):
        for i, score in scores.items():
            if i < rows.n:
                found.setdefault(window[i], []).append(score)
    return found


def keys_at(
    path: Path, texts: Sequence[Sequence[int]], positions: Sequence[int]
) -> list[list[list]]:
    """Keys `[layer][text][kv][place][d]` of texts whose tokens are said to stand at positions.

    Learned positional embeddings are put into the model in that order; rotations are done here.
    """
    model = hf_eager_model(path)
    _reorder(model, positions)
    seen = projections_in(model)
    with torch.inference_mode():
        model(torch.tensor(texts), use_cache=False)
    config = json.loads((path / "config.json").read_text())
    return [layer.tolist() for layer in projections_of(config, seen, np.array(positions))[1]]


def _reorder(model: nn.Module, positions: Sequence[int]) -> None:
    """Let the embedding of place 0, 1, ... be that of these positions, and the rotations too."""
    for name, module in model.named_modules():
        if name.endswith(LEARNED):
            first = getattr(module, "offset", 0)
            rows = module.weight.detach()[[first + p for p in positions]].clone()
            with torch.no_grad():
                module.weight[first : first + len(positions)] = rows
        if name.endswith("rotary_emb"):
            there = {"position_ids": torch.tensor([list(positions)])}
            module.register_forward_pre_hook(
                lambda _m, args, kw, there=there: (args[:1], kw | there), with_kwargs=True
            )


def shares(keys: Keys) -> tuple[float, float, float]:
    """Shares of position, content and the rest in the variance around each token's mean."""
    each = np.array(keys)
    grand = each.mean(axis=(0, 2), keepdims=True)
    position, content = (each.mean(axis=axis, keepdims=True) - grand for axis in (0, 2))
    whole = each - grand
    parts = position + 0 * whole, content + 0 * whole, whole - position - content
    return tuple(float((part**2).sum() / (whole**2).sum()) for part in parts)


def cosines(keys: Keys) -> list[float]:
    """Mean cosine of the contents at two places, by how many places they lie apart."""
    each = np.array(keys)
    rows = np.moveaxis(each - each.mean(axis=0), 2, 0).reshape(each.shape[2], -1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = rows @ rows.T
    return [float(np.diagonal(cosine, k).mean()) for k in range(len(rows))]


def numbers(keys: Keys) -> list[float]:
    return [*shares(keys), *cosines(keys)]


def jackknife(keys: Keys) -> list[float]:
    """Standard errors of `numbers`, passage `t` in group `t mod 10`."""
    left_out = []
    for group in range(min(GROUPS, len(keys))):
        left_out.append(numbers([k for t, k in enumerate(keys) if t % GROUPS != group]))
    return [oracles.jackknife_se(column) for column in zip(*left_out, strict=True)]
