"""One token in many contexts: how much its softmax denominator varies, in every head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.config import parse_cell
from poskernel_core.experiments.contents import Row, destination_windows, token_id, watch_rows
from poskernel_core.experiments.moments import jackknife
from poskernel_core.views import StatisticsView

if TYPE_CHECKING:
    from poskernel_core.analyses.contextual import ContextualParams
    from poskernel_core.analyses.denominators import DenominatorsParams

__all__ = ["contextual_heads", "denominators", "relative_spread"]

LOCAL_TOKENS = 10
UNITS = {
    "etc": "tokens",
    "local_mass": "share of mass",
    "visible": "tokens",
    "denominator": "weight",
    "spread": "relative to the mean",
    "predicted_spread": "relative to the mean",
    "weight_mean": "weight",
    "weight_variance": "weight squared",
}


class _Layer:
    """What is kept of one layer: denominators of all texts, sums of all else, ``[head]`` each."""

    def __init__(self, heads: int, texts: int) -> None:
        self.denominators = np.zeros((heads, texts))
        self.kernel: np.ndarray | float = 0.0
        self.squares = np.zeros(heads)
        self.weights = np.zeros((2, heads))
        self.keys = 0

    def add(self, row: Row, some: range) -> None:
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
        variance = square - weight_mean**2
        spread, error = relative_spread(self.denominators)
        return {
            "etc": 1 / (mean**2).sum(axis=-1),
            "local_mass": mean[:, -LOCAL_TOKENS:].sum(axis=-1),
            "visible": np.full(heads, self.keys),
            "denominator": self.denominators.mean(axis=1),
            "denominator_error": self.denominators.std(axis=1, ddof=1) / np.sqrt(texts),
            "spread": spread,
            "spread_error": error,
            "predicted_spread": np.sqrt(variance * self.squares / texts) / weight_mean,
            "weight_mean": weight_mean,
            "weight_variance": variance,
        }


def relative_spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return standard deviation over mean of ``values [..., text]``, and its jackknife error."""

    def spread(total: np.ndarray, squares: np.ndarray, count: int) -> np.ndarray:
        mean = total / count
        variance = (squares - count * mean**2) / (count - 1)
        return np.sqrt(np.maximum(variance, 0)) / mean

    texts = values.shape[-1]
    total, squares = values.sum(axis=-1), (values**2).sum(axis=-1)
    if texts < 3:
        found = spread(total, squares, texts)
        return found, np.full_like(found, np.nan)
    left = spread(total[..., None] - values, squares[..., None] - values**2, texts - 1)
    return spread(total, squares, texts), jackknife(np.moveaxis(left, -1, 0))


def contextual_heads(
    subject: Subject, main: StatisticsView, params: ContextualParams, progress: Progress
) -> Result:
    """Run every text; see :class:`~poskernel_core.analyses.ContextualHeads`.

    Raises:
        BadRequest: the text is not one token of the model, or there is too little text.
    """
    geometry = subject.model.geometry
    texts = subject.windows[: params.contexts]
    windows = destination_windows(texts, params.query, token_id(subject, params.token))
    layers = [_Layer(geometry.n_heads, len(windows)) for _ in range(geometry.n_layers)]
    progress(0, len(windows))
    for some, rows in watch_rows(subject, main, windows, params.skip):
        for row in rows:
            layers[row.layer].add(row, some)
        progress(some.stop, len(windows))
    found = [layer.values() for layer in layers]
    stacked = {name: np.stack([each[name] for each in found]) for name in found[0]}
    return Result(
        analysis="contextual-heads",
        params=params.model_dump(),
        values={name: stacked[name] for name in UNITS},
        axes=dict.fromkeys(UNITS, ("layer", "head")),
        units=UNITS,
        errors={name: stacked[f"{name}_error"] for name in ("denominator", "spread")},
        provenance={"contexts": len(windows)},
    )


def denominators(
    subject: Subject, main: StatisticsView, params: DenominatorsParams, progress: Progress
) -> Result:
    """Run every text at every position; see :class:`~poskernel_core.analyses.Denominators`.

    Raises:
        BadRequest: no such head, or the text is not one token of the model.
    """
    geometry = subject.model.geometry
    layer, head = parse_cell(params.cell, geometry.n_layers, geometry.n_heads)
    texts, token = subject.windows[: params.contexts], token_id(subject, params.token)
    last = texts.shape[1] - 1
    low = min(params.skip + 1, last)
    queries = np.unique(np.linspace(low, last, params.places).round().astype(int))
    kept: list[dict[str, np.ndarray]] = []
    for place, query in enumerate(queries):
        progress(place, len(queries))
        one = _Layer(geometry.n_heads, len(texts))
        windows = destination_windows(texts, int(query), token)
        for some, rows in watch_rows(subject, main, windows, params.skip, (layer,)):
            one.add(rows[0], some)
        kept.append(
            {"denominator": one.denominators[head]}
            | {name: array[head] for name, array in one.values().items() if name != "denominator"}
        )
    return _along_positions(params, kept, queries)


def _along_positions(
    params: DenominatorsParams, kept: list[dict[str, np.ndarray]], queries: np.ndarray
) -> Result:
    found = {name: np.stack([each[name] for each in kept], axis=-1) for name in kept[0]}
    names = ("denominator", "spread", "predicted_spread", "etc")
    values = {name: found[name] for name in names} | {"mean": found["denominator"].mean(axis=0)}
    return Result(
        analysis="denominators",
        params=params.model_dump(),
        values=values,
        axes={n: ("text", "query") if n == "denominator" else ("query",) for n in values},
        units={name: UNITS.get(name, "weight") for name in values},
        errors={"spread": found["spread_error"], "mean": found["denominator_error"]},
        coordinates={"query": queries},
    )
