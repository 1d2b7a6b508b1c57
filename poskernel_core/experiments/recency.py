"""Sequences with several candidates behind the same token: which of them the model predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.edits import Edit
from poskernel_core.errors import BadRequest
from poskernel_core.experiments.moments import Moments
from poskernel_core.experiments.sampled import batches, check_size, measured, steps, switched
from poskernel_core.layouts import ROLES, Layout, pairs_layout, second_positions, sequences

if TYPE_CHECKING:
    from poskernel_core.analyses.induction import RecencyParams, RecencyPatternsParams
    from poskernel_core.analyses.position_vs_token import PositionZeroParams

__all__ = ["induction_recency", "position_zero", "recency_patterns"]

SHARE = "share of attention"
MOST_CELLS = 2**23
CASES = (
    "start token, [A] at position 1",
    "no start token, [A] at position 0",
    "no start token, [A] at position 1",
)


class _Row:
    """Means over the samples of one layout: probabilities, and the last row of every head."""

    def __init__(self, layout: Layout, layers: int) -> None:
        self.layout = layout
        self.probability, self.other, self.advantage = Moments(), Moments(), Moments()
        self.last = [Moments() for _ in range(layers)]
        self.candidates = [Moments() for _ in range(layers)]
        self.preference = [Moments() for _ in range(layers)]

    def run(self, subject: Subject, edit: Edit, tokens: Tensor) -> None:
        """Add a batch of sequences."""
        logits = subject.model.run(tokens, edit, self._observe, keep=1)[:, -1].cpu()
        chances = torch.softmax(logits.double(), dim=-1)
        found = chances.gather(1, tokens[:, list(self.layout.candidates)])
        self.probability.add(found)
        self.advantage.add(found[:, -1] - found[:, 0])
        self.other.add(chances.gather(1, tokens[:, self.layout.others()]).mean(dim=1))

    def _observe(self, layer: int, pattern: Tensor) -> None:
        last = pattern[:, :, -1].cpu().double()
        found = last[..., list(self.layout.candidates)]
        self.last[layer].add(last)
        self.candidates[layer].add(found)
        self.preference[layer].add(found[..., -1] - found[..., 0])


def _means(rows: list[Moments]) -> tuple[np.ndarray, np.ndarray]:
    return np.stack([row.mean for row in rows]), np.stack([row.error for row in rows])


def _layers(rows: list[list[Moments]], length: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return means and errors of every row and layer; shorter rows get NaN in front."""
    pairs = [_means(row) for row in rows]
    mean, error = (np.stack([_padded(pair[i], length) for pair in pairs]) for i in (0, 1))
    return mean, error


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    lack = max(0, length - array.shape[-1])
    return np.pad(array, [*[(0, 0)] * (array.ndim - 1), (lack, 0)], constant_values=np.nan)


def induction_recency(subject: Subject, params: RecencyParams, progress: Progress) -> Result:
    """Run every row; see :class:`~poskernel_core.analyses.InductionRecency`.

    Raises:
        BadRequest: a head that is not there.
    """
    start, layers = subject.start_token, subject.model.geometry.n_layers
    seconds = second_positions(params.length, params.first, params.candidates, start)
    check_size(subject, params.length, MOST_CELLS, rows=len(seconds))
    count = steps(progress, len(seconds) * params.samples + measured(params))
    edit, norms = switched(subject, params, params.length, count)
    rows = []
    for second in seconds:
        layout = pairs_layout(params.length, params.first, second, params.candidates, start)
        row = _Row(layout, layers)
        for some, tokens in batches(subject, layout, params.samples, second, logits=1):
            row.run(subject, edit, tokens)
            count(len(some))
        rows.append(row)
    values, errors = _recency_values(rows)
    if norms is not None:
        values["norm"] = norms
    return Result(
        analysis="induction-recency",
        params=params.model_dump(),
        values=values,
        errors=errors,
        axes={name: AXES[name] for name in values},
        units={name: UNITS.get(name, SHARE) for name in values},
        labels={"role": ROLES},
        coordinates={"second": np.array(seconds)},
        provenance={"examples": _examples(subject, rows)},
    )


AXES: dict[str, tuple[str, ...]] = {
    "probability": ("second", "pair"),
    "probability_other": ("second",),
    "advantage": ("second",),
    "probability_rise": (),
    "last_row": ("second", "layer", "head", "key"),
    "candidate_attention": ("second", "layer", "head", "pair"),
    "attention_advantage": ("second", "layer", "head"),
    "attention_rise": ("layer", "head"),
    "role": ("second", "pos"),
    "norm": ("head", "pos"),
}
UNITS = {
    "probability": "probability",
    "probability_other": "probability",
    "advantage": "probability",
    "probability_rise": "probability",
    "role": "role",
    "norm": "length of z",
}


def _recency_values(rows: list[_Row]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    found = {
        "probability": _means([row.probability for row in rows]),
        "probability_other": _means([row.other for row in rows]),
        "advantage": _means([row.advantage for row in rows]),
        "last_row": _layers([row.last for row in rows]),
        "candidate_attention": _layers([row.candidates for row in rows]),
        "attention_advantage": _layers([row.preference for row in rows]),
    }
    found["probability_rise"] = _rise(*found["probability"])
    found["attention_rise"] = _rise(*found["candidate_attention"])
    values = {name: mean for name, (mean, _) in found.items()}
    values["role"] = np.array([row.layout.roles() for row in rows])
    return values, {name: error for name, (_, error) in found.items()}


def _rise(mean: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return last row less first of the last candidate; rows are independent."""
    rise = np.asarray(mean[-1, ..., -1] - mean[0, ..., -1])
    both = np.asarray(np.hypot(error[-1, ..., -1], error[0, ..., -1]))
    return (rise, both) if len(mean) > 1 else (rise * np.nan, both * np.nan)


def _examples(subject: Subject, rows: list[_Row]) -> list[list[str]]:
    """Return the text of the first sequence of every row."""
    assert subject.source is not None
    found = []
    for row in rows:
        stream = row.layout.pairs[-1]
        ids = sequences(row.layout, subject.source, stream, range(1))[0]
        found.append(subject.decode(ids.tolist()))
    return found


def recency_patterns(subject: Subject, params: RecencyPatternsParams, progress: Progress) -> Result:
    """Run one row; see :class:`~poskernel_core.analyses.RecencyPatterns`.

    Raises:
        BadRequest: a head that is not there.
    """
    check_size(subject, params.length, MOST_CELLS)
    count = steps(progress, params.samples + measured(params))
    edit, _ = switched(subject, params, params.length, count)
    layout = pairs_layout(
        params.length, params.first, params.second, params.candidates, subject.start_token
    )
    patterns = [Moments() for _ in range(subject.model.geometry.n_layers)]
    for some, tokens in batches(subject, layout, params.samples, params.second):
        subject.model.run(tokens, edit, lambda layer, p: patterns[layer].add(p), keep=0)
        count(len(some))
    pattern, error = _means(patterns)
    return Result(
        analysis="recency-patterns",
        params=params.model_dump(),
        values={"pattern": pattern.astype(np.float32), "role": np.array(layout.roles())},
        errors={"pattern": error.astype(np.float32)},
        axes={"pattern": ("layer", "head", "query", "key"), "role": ("pos",)},
        units={"pattern": SHARE, "role": "role"},
        labels={"role": ROLES},
    )


def position_zero(subject: Subject, params: PositionZeroParams, progress: Progress) -> Result:
    """Run the three cases; see :class:`~poskernel_core.analyses.PositionZero`.

    Raises:
        BadRequest: the model has no start token.
    """
    if subject.source is None or subject.source.start is None:
        raise BadRequest(
            "The model has no start token, or no tokenizer that names it: the first of the three "
            "cases needs one."
        )
    count = steps(progress, len(CASES) * params.samples)
    layers, rows = subject.model.geometry.n_layers, []
    for case, (start, first) in enumerate(((True, 1), (False, 0), (False, 1))):
        layout = pairs_layout(params.length - 1 + first, first, first, 1, start)
        row = _Row(layout, layers)
        for some, tokens in batches(subject, layout, params.samples, case, logits=1):
            row.run(subject, Edit(), tokens)
            count(len(some))
        rows.append(row)
    found = {
        "probability": _means([row.probability for row in rows]),
        "probability_other": _means([row.other for row in rows]),
        "last_row": _layers([row.last for row in rows], params.length),
        "candidate_attention": _layers([row.candidates for row in rows]),
    }
    axes = {
        "probability": ("case",),
        "probability_other": ("case",),
        "last_row": ("case", "layer", "head", "key"),
        "candidate_attention": ("case", "layer", "head"),
    }
    single = ("probability", "candidate_attention")  # of the one candidate
    return Result(
        analysis="position-zero",
        params=params.model_dump(),
        values={n: mean[..., 0] if n in single else mean for n, (mean, _) in found.items()},
        errors={n: error[..., 0] if n in single else error for n, (_, error) in found.items()},
        axes=axes,
        units={n: "probability" if n.startswith("prob") else SHARE for n in found},
        provenance={"cases": CASES},
    )
