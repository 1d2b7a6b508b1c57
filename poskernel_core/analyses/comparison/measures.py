"""Measures of chosen heads, side by side, and a measure by depth."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Composition, SkipParams, SubQuestion
from poskernel_core.analyses.comparison import spec
from poskernel_core.analyses.comparison.formulas import apart
from poskernel_core.analyses.comparison.pins import nearest_position
from poskernel_core.analyses.head_measures.spec import HeadMeasures, HeadMeasuresParams
from poskernel_core.analyses.head_measures.verdicts import names_between_commas
from poskernel_core.analyses.measures import asked_with, measure_called, one_a_head
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import BESIDE, OF_MEASURE, Result, outputs
from poskernel_core.common.specs import DEFAULT_QUERY, RunSpec


class HeadsBesideParams(spec.HeadDistancesParams):
    """Parameters of the measures of pinned heads."""

    leave_out: str = Field(
        "",
        max_length=4000,
        description="questions to leave out, separated by commas, each after the number of its "
        "run's first head, such as 0:additivity",
    )


class HeadsBeside(Composition[HeadsBesideParams]):
    r"""All measures of chosen heads, of one model or several, and how far the heads are apart.

    Formula: each measure has its own; a head's **z score** against the first head is
    $(x - x_0) / \sqrt{\sigma^2 + \sigma_0^2}$.

    Choices: of the query positions that a head's run records, the nearest to ``n`` is taken. The
    first head is the reference.

    Limits: heads of one run share windows, so their errors are not independent: the error of a
    difference is too large where texts move both numbers alike, and too small where they move them
    apart, mostly by less than a fifth. Measures that a model cannot have, or that are left out,
    are NaN.

    Source: ours; the measures are those of their questions, such as the effective token count of
    "Positional kernels of attention heads".
    """

    name = "compare-heads"
    title = "Measures of chosen heads, side by side"
    noun_phrase = "the measures of chosen heads"
    can_lack_parts = True
    values = outputs("""
        ± value [measure pin], that of each measure: every measure of every pinned head; for a kind,
            its number among the kinds
        rank [measure pin], rank: its rank among the heads of its model
        z_score [measure pin], standard errors: how far the value lies above the first head's; NaN
            where an error is not known
    """)
    texts = outputs("""
        heads [pin], head: each head with its run, as it is written
        measure [measure], name: title of each measure
        unit [measure], unit: unit of each measure
        question [measure], name: the question that declares it
        word [measure pin], name: what a kind is called; empty where it is a number
    """)

    def parts(self, run: RunSpec, params: HeadsBesideParams) -> Mapping[str, SubQuestion]:
        out = set(names_between_commas(params.leave_out))
        parts = {
            f"{first}:{name}": part
            for first, pinned in _firsts(spec.pinned_heads(run, params.heads, params.query)).items()
            for name, part in HeadMeasures().parts(pinned.run, _asked(pinned, params)).items()
        }
        left = {name: part for name, part in parts.items() if name not in out}
        if not left:
            raise BadRequest("Nothing is left to compare: leave out fewer measures.")
        return left

    def compose(
        self, results: Mapping[str, Result], run: RunSpec, params: HeadsBesideParams
    ) -> Result:
        pins = spec.pinned_heads(run, params.heads, params.query)
        tables = {}
        for first, pinned in _firsts(pins).items():
            own = {
                name.split(":", 1)[1]: result
                for name, result in results.items()
                if name.startswith(f"{first}:")
            }
            if own:
                tables[first] = HeadMeasures().compose(own, pinned.run, _asked(pinned, params))
        firsts = [_first(pins, place) for place in range(len(pins))]
        rows = {
            (title, unit, question): None
            for table in tables.values()
            for title, unit, question in zip(
                table.words("measure"), table.words("unit"), table.words("question"), strict=True
            )
        }
        shape = len(rows), len(pins)
        value, rank = (np.full(shape, np.nan) for _ in range(2))
        beside = {part: np.full(shape, np.nan) for part in BESIDE}
        words = np.full(shape, "", dtype=object)
        for at, (title, _, _) in enumerate(rows):
            for place, pinned in enumerate(pins):
                table = tables.get(firsts[place])
                if table is None or title not in table.words("measure"):
                    continue
                where = table.words("measure").index(title), pinned.layer, pinned.head
                value[at, place] = table.values["value"][where]
                for part, array in beside.items():
                    if "value" in getattr(table, part):
                        array[at, place] = getattr(table, part)["value"][where]
                rank[at, place] = table.values["rank"][where]
                kinds = [kind for kind in table.texts["kinds"][where[0]].tolist() if kind]
                code = value[at, place]
                if kinds and code >= 0:
                    words[at, place] = kinds[int(code)]
        numbers = np.where(words == "", value, np.nan)
        return self.result(
            params,
            {"value": value, "rank": rank, "z_score": apart(numbers, beside["errors"])},
            beside={"value": beside},
            texts={
                "heads": [str(one.pin) for one in pins],
                "measure": [title for title, _, _ in rows],
                "unit": [unit for _, unit, _ in rows],
                "question": [question for _, _, question in rows],
                "word": words.tolist(),
            },
            provenance=spec.told_together([table.provenance for table in tables.values()]),
        )


def _asked(pinned: spec.Pinned, params: HeadsBesideParams) -> HeadMeasuresParams:
    return HeadMeasuresParams(query=pinned.query, skip=params.skip, experiments=True)


def _first(pins: list[spec.Pinned], place: int) -> int:
    """Return the index of the first pinned head with the same run as the head at ``place``."""
    return next(i for i, one in enumerate(pins) if one.run == pins[place].run)


def _firsts(pins: list[spec.Pinned]) -> dict[int, spec.Pinned]:
    return {place: one for place, one in enumerate(pins) if _first(pins, place) == place}


class MeasureByDepthParams(SkipParams):
    """Parameters of a measure by depth."""

    measure: str = Field(
        "effective token count", description="measure of the grid of all heads, by its title"
    )
    query: int = Field(DEFAULT_QUERY, ge=0, description="query position n, or the nearest recorded")


class MeasureByDepth(Composition[MeasureByDepthParams]):
    r"""A measure over the layers of a model, so that models of different depths can be compared.

    Formula: layer $l$ of $L$ has depth $l / (L-1)$; the mean, the smallest and the largest value
    of the measure are taken over the heads of each layer.

    Choices: the only layer of a one-layer model has depth 0. Layers without heads are NaN.

    Limits: heads of a layer differ, so possibly no head is near the mean. Kinds have no mean.

    Source: ours; the measures are those of their questions, such as the effective token count of
    "Positional kernels of attention heads".
    """

    name = "depth"
    title = "A measure by depth"
    noun_phrase = "a measure by depth"
    values = outputs(f"""
        mean smallest largest [layer], {OF_MEASURE}: mean, smallest and largest of the measure over
            the heads of each layer
        depth [layer], share of depth: 0 for the first layer, 1 for the last
    """)

    def parts(self, run: RunSpec, params: MeasureByDepthParams) -> Mapping[str, SubQuestion]:
        question, declared = measure_called(params.measure, self.questions.values())
        if declared.scale == "labels":
            raise BadRequest(f"{params.measure!r} is a kind and has no mean: choose a number.")
        geometry = spec.located_once(run.model.name, run.model.revision).geometry
        query = nearest_position(run, params.query)
        part_params = asked_with(question, run, geometry, query=query, skip=params.skip)
        return {question.name: SubQuestion(question, run, part_params)}

    def compose(
        self, results: Mapping[str, Result], run: RunSpec, params: MeasureByDepthParams
    ) -> Result:
        _, declared = measure_called(params.measure, self.questions.values())
        (measure_result,) = results.values()
        one = one_a_head(declared, measure_result, query=nearest_position(run, params.query))
        numbers = one.values[declared.value].astype(float)
        numbers[~np.isfinite(numbers)] = np.nan
        count = np.isfinite(numbers).sum(axis=1)
        mean = np.where(count > 0, np.nansum(numbers, axis=1) / np.maximum(count, 1), np.nan)
        result = self.result(
            params,
            {
                "mean": mean,
                "smallest": np.fmin.reduce(numbers, axis=1),
                "largest": np.fmax.reduce(numbers, axis=1),
                "depth": np.arange(len(numbers)) / max(len(numbers) - 1, 1),
            },
            provenance=one.provenance,
        )
        unit = one.units[declared.value]
        measured = dict.fromkeys(("mean", "smallest", "largest"), unit)
        return replace(result, units=result.units | measured)
