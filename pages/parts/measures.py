"""What the grid of all heads can be coloured by: one registration for each measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pages.parts.cards import Explanation
from pages.parts.explained import explained
from pages.parts.figures.palette import KINDS as KIND_LOOKS
from pages.parts.selection import Selection
from pages.parts.shades import Shade, categories, diverging, linear, logarithmic
from poskernel_core.analyses.additivity import fitting
from poskernel_core.analyses.base import Result
from poskernel_core.precomputed import PERIOD

__all__ = ["MEASURES", "Measure"]

TV = "TV distance ↓ (0: alike)"
SHARE = "share of attention"
VARIANCE = "share of the keys' variance"


@dataclass(frozen=True)
class Measure:
    """One number, or one kind, of every head.

    Attributes:
        title: what it is called in the list.
        question: the analysis or experiment that knows it.
        value: the name of the value there.
        unit: beside the legend.
        reading: one sentence on what high and low mean.
        shade: numbers ``[layer, head]`` -> colours.
        params: selection -> parameters of the question.
        at: the result -> the result with one number a head.
    """

    title: str
    question: str
    value: str
    unit: str
    reading: str
    shade: Callable[[Result, np.ndarray], Shade] = lambda _result, values: linear(values)
    params: Callable[[Selection], dict[str, Any]] = lambda _selection: {}
    at: Callable[[Result, Selection], Result] = lambda result, _selection: result

    def numbers(self, found: Result) -> np.ndarray:
        """Return the value of every head, ``[layer, head]``."""
        return found.values[self.value].astype(float)

    def words(self) -> Explanation:
        """Return how to read the grid, and the formula from the definitions."""
        return explained(
            self.question,
            f"One cell per head, layers downwards. {self.reading} Click a cell, or walk with the "
            "arrow keys and press Enter, and that head is shown everywhere.",
        )


def _of_etc(title: str, value: str, unit: str, reading: str,
            shade: Callable[[Result, np.ndarray], Shade]) -> Measure:  # fmt: skip
    """Return a measure of the ETC heat map's analysis; the page asks for that in any case."""
    return Measure(
        title, "etc", value, unit, reading, shade,
        at=lambda result, selection: result.select(query=selection.query),
    )  # fmt: skip


def _visible(result: Result) -> float:
    return max(float(np.nanmax(result.values["visible"])), 2.0)


def _distance(_result: Result, values: np.ndarray) -> Shade:
    return linear(values, 1.0)


def _cosine(_result: Result, values: np.ndarray) -> Shade:
    return diverging(values) if np.nanmin(values) < 0 else linear(values, 1.0)


def _labels(value: str, colours: tuple[str, ...] = ()) -> Callable[[Result, np.ndarray], Shade]:
    return lambda result, codes: categories(codes, result.labels[value], colours)


def _query(selection: Selection) -> dict[str, Any]:
    return {"query": selection.query, "skip": selection.skip}


def _passages(selection: Selection) -> dict[str, Any]:
    return fitting(selection.run)


def _drift(result: Result, _selection: Selection) -> Result:
    return result.select(shift=int(result.coordinates["shift"][-1]))


MEASURES = {
    measure.title: measure
    for measure in (
        _of_etc("effective token count", "etc", "effective tokens (log scale)", "",
                lambda result, values: logarithmic(values, 1.0, _visible(result))),
        _of_etc("kind of kernel", "kind", "kind",
                "Local heads have most of their kernel in the last tokens (10 unless changed "
                "under «Kinds»), slow decay spreads it over many, uniform over all alike.",
                _labels("kind", tuple(look.colour for look in KIND_LOOKS.values()))),
        _of_etc("half-mass distance", "half_mass_distance", "tokens (log scale)",
                "Dark: half of the kernel's mass lies within a few tokens.",
                lambda _result, values: logarithmic(np.fmax(values, 0.5))),
        _of_etc("consistency over queries", "consistency", TV,
                "Dark: kernels of different queries at one position agree.", _distance),
        _of_etc("translation equivariance", "equivariance", TV,
                "Dark: the kernel is the same, seen from every position.", _distance),
        _of_etc("fidelity", "fidelity", TV,
                "Dark: the kernel is what the head does on average; bright: content decides.",
                _distance),
        Measure("previous-token ratio", "previous-token", "ratio",
                "second diagonal over the largest ↓",
                "Dark: one diagonal of the mean attention stands out from all others.",
                lambda _result, values: linear(values, 1.0)),
        Measure("attention to the previous token", "previous-token", "previous_mass", SHARE,
                "Bright: the head attends to the token before."),
        Measure("induction score", "induction-scores", "induction", SHARE,
                "Bright: the head attends to what followed the current token's earlier copy.",
                params=lambda selection: {
                    "period": min(PERIOD, (selection.located.geometry.n_ctx - 1) // 2)
                }),
        Measure("spread of the denominator", "contextual-heads", "spread",
                "relative to the mean ↓ (log scale)",
                "Dark: the softmax denominator hardly depends on the context.",
                lambda _result, values: logarithmic(values), _query),
        Measure("behaviour group", "contextual-heads", "group", "group",
                "By kernel, spread of the denominator and attention to copies.",
                _labels("group"), _query),
        Measure("attention to far copies", "contextual-heads", "far", SHARE,
                "Bright: the head attends to earlier copies of the current token.",
                lambda _result, values: diverging(values), _query),
        Measure("position in the keys", "additivity", "position_share", VARIANCE,
                "Bright: keys differ mostly by position.", _distance, _passages),
        Measure("content in the keys", "additivity", "content_share", VARIANCE,
                "Bright: keys differ mostly by content.", _distance, _passages),
        Measure("keys beyond the sum", "additivity", "rest_share", VARIANCE,
                "Dark: keys are the sum of a part of position and a part of content.",
                params=_passages),
        Measure("drift of content", "additivity", "content_cosine", "cosine at the largest shift ↑",
                "Bright: the same passage leaves the same keys wherever it stands.",
                _cosine, _passages, _drift),
    )
}  # fmt: skip
"""By title, in the order of the list; the first is the landing page's."""
