"""What the grid of all heads can be coloured by: every measure that an analysis declares."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pages.shared.cards.card import Explanation
from pages.shared.cards.explained import explained
from pages.shared.grid.shades import Shade, categories, diverging, linear, logarithmic
from pages.shared.selection.selection import Selection
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.base import Params, Question
from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.measures import asked_with, fits
from poskernel_core.common.result import Result
from poskernel_core.models.geometry import Geometry
from poskernel_core.plotting.palette import KIND_LOOKS


@dataclass(frozen=True)
class Measure:
    """One number, or one kind, of every head: what is declared, and by which question."""

    question: type[Question[Any]]
    declared: HeadMeasure

    def fits(self, geometry: Geometry) -> bool:
        """Tell whether a model has it, by its position scheme and architecture."""
        return fits(self.question(), self.declared, geometry)

    def params(self, selection: Selection) -> Params:
        """Return what the question is asked with: what fits the model, and what is chosen."""
        return asked_with(
            self.question(),
            selection.run,
            selection.located.geometry,
            query=selection.query,
            skip=selection.skip,
        )

    def shade(self, found: Result, values: np.ndarray) -> Shade:
        """Return the colours of numbers ``[layer, head]``, with their legend."""
        most = self.declared.most
        high = max(float(np.nanmax(found.values[most])), 2.0) if most else None
        return shade_of(self.declared, found.labels.get(self.declared.value, ()), values, high)

    def words(self) -> Explanation:
        """Return how to read the grid, and the formula from the definitions."""
        return explained(
            self.question.name,
            f"One cell per head, layers downwards. {self.declared.reading} Click a cell, or walk "
            "with the arrow keys and press Enter, and that head is shown everywhere.",
            self.declared.value,
        )


def shade_of(
    declared: HeadMeasure, labels: tuple[str, ...], values: np.ndarray, high: float | None = None
) -> Shade:
    """Return the colours of a measure's numbers ``[layer, head]``, with their legend.

    ``labels`` are those of its codes; ``high`` ends a log scale that the measure bounds itself.
    """
    match declared.scale:
        case "labels":
            looks = [KIND_LOOKS[label].colour for label in labels if label in KIND_LOOKS]
            return categories(values, labels, tuple(looks))
        case "log":
            if declared.floor is None or high is not None:
                return logarithmic(values, declared.floor, high)
            return logarithmic(np.fmax(values, declared.floor))
        case "diverging":
            return diverging(values)
        case "cosine" if np.nanmin(values) < 0:
            return diverging(values)
        case "unit" | "cosine":
            return linear(values, 1.0)
    return linear(values)


MEASURES = {
    declared.title: Measure(type(question), declared)
    for question in ANALYSES.values()
    for declared in question.measures
}
"""By title, in the order of the analyses; the first is the landing page's."""
