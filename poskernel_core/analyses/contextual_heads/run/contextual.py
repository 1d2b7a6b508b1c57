"""One token in many contexts: how much its softmax denominator varies, in every head."""

from __future__ import annotations

import numpy as np
import torch

from poskernel_core.analyses.base import Progress, Statistics, Subject
from poskernel_core.analyses.contextual_heads.behaviour import BEHAVIOURS, behaviour
from poskernel_core.analyses.contextual_heads.run.contents import (
    LastQuery,
    destination_windows,
    last_rows,
    token_id,
)
from poskernel_core.analyses.contextual_heads.run.duplicates import copy_distances, duplicates
from poskernel_core.analyses.contextual_heads.spec import ContextualHeads, ContextualParams
from poskernel_core.analyses.random_tokens.run.sampled import steps
from poskernel_core.common.jackknife import jackknife
from poskernel_core.common.result import Result

__all__ = ["LayerRows", "contextual_heads", "relative_spread"]

LOCAL_TOKENS = 10


class LayerRows:
    """What is kept of one layer: denominators of all windows, sums of all else, ``[head]`` each."""

    def __init__(self, heads: int, texts: int) -> None:
        self.denominators = np.zeros((heads, texts))
        self.kernel: np.ndarray | float = 0.0
        self.squares = np.zeros(heads)
        self.weights = np.zeros((2, heads))
        self.keys = 0

    def add(self, row: LastQuery, some: range) -> None:
        """Add some texts."""
        kernel, weight = row.kernel, row.log_weight.exp()
        self.denominators[:, some.start : some.stop] = row.denominator.T.numpy()
        self.kernel = self.kernel + kernel.sum(dim=0).numpy()
        self.squares += (kernel**2).sum(dim=(0, 2)).numpy()
        self.weights += torch.stack([weight.sum(dim=(0, 2)), (weight**2).sum(dim=(0, 2))]).numpy()
        self.keys = kernel.shape[-1]

    def values(self) -> dict[str, np.ndarray]:
        """Return the values of the layer, ``[head]`` each; errors as ``name_error``."""
        heads, texts = self.denominators.shape
        mean = np.asarray(self.kernel) / texts
        weight_mean, square = self.weights / (texts * self.keys)
        variance = np.maximum(square - weight_mean**2, 0)
        spread, error = relative_spread(self.denominators)
        return {
            "etc": 1 / (mean**2).sum(axis=-1),
            "local_mass": mean[:, -LOCAL_TOKENS:].sum(axis=-1),
            "visible_keys": np.full(heads, self.keys),
            "denominator": self.denominators.mean(axis=1),
            "denominator_error": self.denominators.std(axis=1, ddof=1) / np.sqrt(texts),
            "denominator_cv": spread,
            "denominator_cv_error": error,
            "predicted_cv": np.sqrt(variance * self.squares / texts) / weight_mean,
            "weight_mean": weight_mean,
            "weight_variance": variance,
        }


def relative_spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return standard deviation over mean of ``values [..., text]``, and its jackknife error.

    What is left without text ``i`` follows from sums of squares about the mean of all.
    """
    texts, mean = values.shape[-1], values.mean(axis=-1)
    apart = values - mean[..., None]
    squares = (apart**2).sum(axis=-1)
    spread = np.asarray(np.sqrt(squares / (texts - 1)) / mean)
    if texts < 3:
        return spread, np.full_like(spread, np.nan)
    left = np.maximum(squares[..., None] - apart**2 * texts / (texts - 1), 0) / (texts - 2)
    out = np.sqrt(left) / (mean[..., None] - apart / (texts - 1))
    return spread, jackknife(out, axis=-1)


def contextual_heads(
    subject: Subject, statistics: Statistics, params: ContextualParams, progress: Progress
) -> Result:
    """Run every window; see :class:`~poskernel_core.analyses.ContextualHeads`.

    Raises:
        BadRequest: the text is not one token of the model, or there is too little text.
    """
    main = statistics["main"]
    geometry = subject.model.geometry
    texts = subject.windows[: params.first_windows]
    windows = destination_windows(texts, params.query, token_id(subject, params.token))
    layers = [LayerRows(geometry.n_heads, len(windows)) for _ in range(geometry.n_layers)]
    count = steps(progress, len(windows) + params.samples)
    for some, rows in last_rows(subject, main, windows, params.skip):
        for row in rows:
            layers[row.layer].add(row, some)
        count(len(some))
    found = [layer.values() for layer in layers]
    stacked = {name: np.stack([each[name] for each in found]) for name in found[0]}
    copies = duplicates(subject, params.query, params.samples, count)
    return _all_heads(subject, params, stacked, copies, len(windows))


def _all_heads(
    subject: Subject,
    params: ContextualParams,
    stacked: dict[str, np.ndarray],
    copies: dict[str, tuple[np.ndarray, np.ndarray]],
    texts: int,
) -> Result:
    values = {
        value.name: stacked[value.name] for value in ContextualHeads.values if value.name in stacked
    } | {n: v for n, (v, _) in copies.items()}
    values["group"] = behaviour(values, params)
    errors = {name: stacked[f"{name}_error"] for name in ("denominator", "denominator_cv")}
    return ContextualHeads.result(
        params,
        values,
        errors | {name: error for name, (_, error) in copies.items()},
        labels={"group": BEHAVIOURS},
        coordinates={"distance": copy_distances(params.query, int(subject.start_token))},
        provenance={"first_windows": texts},
    )
