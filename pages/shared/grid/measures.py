"""The measures of heads that analyses declare, as colours of the grid."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from pages.shared.cards.explained import PICK, Explanation, explained
from pages.shared.choices.choices import chosen
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.base import Analysis, Params, Question
from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.how_many_texts.spec import HowManyTexts, HowManyTextsParams
from poskernel_core.analyses.measures import asked_with, fits
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.models.geometry import Geometry
from poskernel_core.plotting.shades import Shade, shaded


@dataclass(frozen=True)
class Measure:
    """A number or kind of every head: its declaration and its question."""

    question: type[Question[Any]]
    declared: HeadMeasure

    def fits(self, geometry: Geometry) -> bool:
        """Tell whether the measure exists for a model's position scheme and architecture."""
        return fits(self.question(), self.declared, geometry)

    def params(self, selection: Selection) -> Params:
        """Return the question's parameters for a model and selection."""
        return asked_with(
            self.question(),
            selection.run,
            selection.located.geometry,
            query=selection.query,
            skip=selection.skip,
        )

    def shade(self, result: Result, values: np.ndarray) -> Shade:
        """Return the colours of numbers ``[layer, head]`` and their legend."""
        most = self.declared.most
        high = max(float(np.nanmax(result.values[most])), 2.0) if most else None
        labels = result.labels.get(self.declared.value, ())
        return shaded(values, self.declared.scale, self.declared.floor, labels, high)

    @property
    def counts_texts(self) -> bool:
        """Whether it has errors over groups of texts, of which *How many texts* tells."""
        with_errors = (value.name for value in self.question.values if value.has_error)
        return issubclass(self.question, Analysis) and self.declared.value in with_errors

    def of_texts(self, selection: Selection) -> HowManyTextsParams | None:
        """Return what *How many texts* is asked; None where no groups of texts are kept."""
        if not self.counts_texts:
            return None
        params = HowManyTextsParams(
            measure=self.declared.title, query=selection.query, skip=selection.skip
        )
        with suppress(PosKernelError):  # who asks is told why it is refused
            if not results.engine().by_groups(results.plan(HowManyTexts, selection.run, params)):
                return None
        return params

    def words(self) -> Explanation:
        """Return the words for the grid."""
        return explained(
            self.question.name,
            f"One cell per head, layers downwards. {self.declared.reading} {PICK}",
            self.declared.value,
        )


MEASURES = {
    declared.title: Measure(type(question), declared)
    for question in ANALYSES.values()
    for declared in question.measures
}
"""By title, in the order of the analyses; the first is the landing page's."""


def titles_for(*geometries: Geometry) -> list[str]:
    """Return the titles of the measures that exist for all of some models."""
    return [title for title, measure in MEASURES.items() if all(map(measure.fits, geometries))]


def chosen_measure() -> Measure:
    """Return the measure that the reader has chosen to colour the heads."""
    return MEASURES[chosen("measure", next(iter(MEASURES)))]
