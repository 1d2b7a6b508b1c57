"""A table of all measures of all heads, with ranks."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Composition, QueryParams, Question, SubQuestion
from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.measures import asked_with, fits, one_a_head
from poskernel_core.common.axes import PerHead
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result, beside_of, errors_together, outputs
from poskernel_core.common.specs import RunSpec
from poskernel_core.models import catalog
from poskernel_core.models.fragments import why_not

MANY = 1024
"""Heads up to which every pair is compared."""


def rank_range(value: PerHead, low: PerHead, high: PerHead) -> tuple[PerHead, PerHead]:
    """Return the first and the last rank that each head may have, by 95 % intervals.

    A head is above another if the interval of their difference, as of independent numbers, is above
    0. NaN where a head has no number or no interval, and for more heads than can be compared in
    pairs.
    """
    nothing = np.full_like(value, np.nan)
    if value.size > MANY:
        return nothing, nothing
    number, down, up = (array.ravel() for array in (value, value - low, high - value))
    with np.errstate(invalid="ignore"):
        above = number[:, None] - number > np.hypot(down[:, None], up)
    known = np.isfinite(low + high)
    ends = 1 + above.sum(axis=0), np.isfinite(number).sum() - above.sum(axis=1)
    first, last = (np.where(known, end.reshape(value.shape), np.nan) for end in ends)
    return first, last


def ranks(numbers: PerHead) -> PerHead:
    """Return ranks, 1 for the largest; ties share a rank; NaN stays NaN and does not count."""
    known = np.sort(numbers[~np.isnan(numbers)])
    above = known.size - np.searchsorted(known, numbers, side="right")
    return np.where(np.isnan(numbers), np.nan, 1.0 + above)


class HeadMeasuresParams(QueryParams):
    """Parameters of the table of all measures."""

    experiments: bool = Field(
        False, description="also the measures for which the model runs again, with changes"
    )


class HeadMeasures(Composition[HeadMeasuresParams]):
    r"""Every measure of all heads in one table, with ranks.

    Formula: each measure $m$ is defined by the question that declares it. A head's **rank** is
    $1 + \#\{h : m_h > m\}$, over the heads $h$ of the model.

    Choices: every question is asked as on the pages, at the same query position and skip. Measures
    that ``precompute`` always computes are always included; the others, such as those for which
    the model runs again, only on request. Kinds are numbers here, indices into ``kinds``, without
    ranks.

    Limits: a measure that a model cannot have (it needs another position scheme, a missing part or
    a longer context) is left out, not zero.

    Source: ours; for each measure see its question. Such tables of all heads began with Olsson et
    al., "In-context learning and induction heads".
    """

    name = "head-measures"
    title = "All measures of all heads"
    noun_phrase = "all measures of all heads"
    can_lack_parts = True
    values = outputs(f"""
        ± value [measure layer head], that of each measure: every measure of every head; for a kind,
            its place in ``kinds``
        rank [measure layer head], rank: 1 for the head with the largest value; NaN where the
            measure is a kind
        first_rank last_rank [measure layer head], rank: ranks of the heads that cannot be told from
            this one; NaN without an interval, and in models of more than {MANY:,} heads
    """)
    texts = outputs("""
        measure [measure], name: title of each measure
        unit [measure], unit: unit of each measure
        question [measure], name: the question that declares it
        named [measure], name: the name of the value in that question's answer
        kinds [measure label], name: names of the kinds; empty for a measure in numbers
    """)

    def parts(self, run: RunSpec, params: HeadMeasuresParams) -> Mapping[str, SubQuestion]:
        located = catalog.locate(run.model.name, run.model.revision)
        parts = {}
        for question in self.questions.values():
            if question.on_request and not params.experiments:
                continue
            if not any(fits(question, one, located.geometry) for one in question.measures):
                continue
            if why_not(run.model.name, located.config, question.uses) is not None:
                continue
            try:
                part_params = asked_with(
                    question, run, located.geometry, query=params.query, skip=params.skip
                )
                question.needs(question.canonical(run, part_params), part_params)
            except BadRequest:
                continue
            parts[question.name] = SubQuestion(question, run, part_params)
        return parts

    def compose(
        self, results: Mapping[str, Result], run: RunSpec, params: HeadMeasuresParams
    ) -> Result:
        geometry = catalog.locate(run.model.name, run.model.revision).geometry
        columns = list(self._columns(results, geometry, params))
        named = [(one, declared.value) for _, declared, one in columns]
        kinds = [one.labels.get(name, ()) for one, name in named]
        longest = max(1, *map(len, kinds))
        numbers = [one.values[name].astype(float) for one, name in named]
        nothing = np.full_like(numbers[0], np.nan)
        ranked = [
            (nothing,) * 3 if labels else (ranks(number), *rank_range(*one.estimate_of(name)))
            for labels, number, (one, name) in zip(kinds, numbers, named, strict=True)
        ]
        places = ("rank", "first_rank", "last_rank")
        return self.result(
            params,
            {
                "value": np.stack(numbers),
                **dict(zip(places, map(np.stack, zip(*ranked, strict=True)), strict=True)),
            },
            beside={"value": beside_of(named)},
            texts={
                "measure": [declared.title for _, declared, _ in columns],
                "unit": [one.units[name] for one, name in named],
                "question": [question.name for question, _, _ in columns],
                "named": [name for _, name in named],
                "kinds": [[*labels, *[""] * (longest - len(labels))] for labels in kinds],
            },
            provenance=next(iter(results.values())).provenance
            | errors_together(
                {"errors": question.error_counts} | one.provenance
                for question, _, one in columns
                if one.errors
            ),
        )

    def _columns(
        self, results: Mapping[str, Result], geometry: Any, params: HeadMeasuresParams
    ) -> Iterator[tuple[Question[Any], HeadMeasure, Result]]:
        for name, result in results.items():
            question = self.questions[name]
            for declared in question.measures:
                if fits(question, declared, geometry):
                    one = one_a_head(declared, result, query=params.query).only(declared.value)
                    yield question, declared, one
