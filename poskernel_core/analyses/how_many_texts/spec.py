"""How many texts are enough: a measure's error against windows, and the number needed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Analysis, Params, Progress, SkipParams, Statistics
from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.measures import measure_called, one_a_head
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.jackknife import jackknife
from poskernel_core.common.result import BEGINNINGS, OF_MEASURE, Result, outputs
from poskernel_core.common.specs import DEFAULT_QUERY, RunSpec
from poskernel_core.common.views import Some

OF_VALUE, OF_SHARE = 0.05, 0.02
"""Default wanted errors: relative, for measures on a log scale, and absolute, for others."""

NOT_BY_GROUPS = (
    "These sums are not kept by groups of texts, as those that come with the project: choose "
    "another number of windows."
)


class HowManyTextsParams(SkipParams):
    """Parameters of the number of texts that are enough."""

    measure: str = Field(
        "effective token count", max_length=200, description="a measure of the grid of all heads"
    )
    query: int = Field(DEFAULT_QUERY, ge=0, description="query position n")
    wanted: float | None = Field(
        None, gt=0, description="the wanted error, in the unit of the measure"
    )


class HowManyTexts(Analysis[HowManyTextsParams]):
    r"""The error of a measure against the number of windows, and the number that is enough.

    Formula: $s(N) = c / \sqrt{N}$ for the jackknife error $s$ of a number from $N$ windows, with
    $c^2 = \sum_m \nu_m s_m^2 N_m / \sum_m \nu_m$ over the errors $s_m$ of $m$ groups of texts alone
    ($N_m$ windows, $\nu_m$ degrees of freedom); $N = (c / \text{wanted})^2$ windows are enough. The
    influence of group $g$ is $d_g^2 / \sum d^2$, with $d_g$ the pseudo-value of the group less the
    mean of all, on the scale on which the measure is corrected.

    Choices: errors are computed from two, half and all of the run's groups; those of disjoint sets
    of groups are averaged (root mean square). The default wanted error is a twentieth of the value
    for measures on a log scale, 0.02 for others.

    Limits: the law holds where errors are small; with few windows a bias is left in ETC and
    distances, which shrinks faster than the error with more texts. A number of windows beyond ten
    times those read is a guess, and each number is itself uncertain by a third. Measures for
    which the model runs again have other errors, and are left out. A large influence says which
    texts decide a number, not that its interval is wrong: intervals miss where a rare text is
    absent, and then the influence is small. Of ten groups of normal numbers the largest is 0.36 at
    the median, above 0.58 in 5 of 100.

    Source: ours; the jackknife as in "The jackknife: a review" (Miller, 1974).
    """

    name = "how-many-texts"
    title = "How many texts are enough?"
    noun_phrase = "how many texts are enough"
    values = outputs(f"""
        error [subset layer head], {OF_MEASURE}: the jackknife error of a run of that many windows
        value law wanted [layer head], {OF_MEASURE}: the measure; $c$, the error of one window by
            the law; and the error that is wanted
        enough [layer head], windows: how many windows have the wanted error
        influence [left_out layer head], share of variance: how much of the squared error each group
            of texts makes
    """)
    texts = (BEGINNINGS,)

    def needs(self, run: RunSpec, params: HowManyTextsParams) -> Mapping[str, RunSpec]:
        question, _, measure_params = self._asked(params)
        return question.needs(question.canonical(run, measure_params), measure_params)

    def _asked(self, params: HowManyTextsParams) -> tuple[Analysis[Any], HeadMeasure, Params]:
        counting = [one for one in self.questions.values() if isinstance(one, Analysis)]
        question, declared = measure_called(params.measure, counting)
        assert isinstance(question, Analysis)
        if not any(v.name == declared.value and v.has_error for v in question.values):
            raise BadRequest(
                f"{declared.title!r} has no error: choose a measure that has one, such as "
                "'effective token count'."
            )
        names = {"query", "skip"} & question.params.model_fields.keys()
        return question, declared, question.params(**{n: getattr(params, n) for n in names})

    def at_one_position(self, params: HowManyTextsParams) -> list[str]:
        """Return all values, or none for a measure that compares positions."""
        question, declared, measure_params = self._asked(params)
        known = declared.value in question.at_one_position(measure_params)
        return super().at_one_position(params) if known else []

    def compute(
        self, statistics: Statistics, params: HowManyTextsParams, progress: Progress
    ) -> Result:
        """Compute the measure for sets of groups, and for each set without each of its groups.

        Raises:
            BadRequest: fewer than four groups of texts, or a position that is not recorded.
        """
        header = statistics["main"].header
        groups = header.groups
        if groups == 0:
            raise BadRequest(NOT_BY_GROUPS)
        if groups < 4:
            raise BadRequest(
                f"Expected four groups of texts or more, got {groups}: ask for ten windows or more."
            )
        question, declared, measure_params = self._asked(params)

        def number(kept: tuple[int, ...]) -> np.ndarray:
            some = {
                role: Some(view, kept) if view.header.groups == groups else view
                for role, view in statistics.items()
            }
            found = question.numbers(some, measure_params, lambda done, total: None)
            return one_a_head(declared, found, query=params.query).values[declared.value]

        sizes = sorted({2, groups // 2, groups})
        sets = {
            size: [tuple(range(first, first + size)) for first in range(0, groups - size + 1, size)]
            for size in sizes
        }
        total, done = sum(size * len(sets[size]) for size in sizes) + 1, 0
        squares = []
        for size in sizes:
            variances = []
            for kept in sets[size]:
                without = []
                for out in kept:
                    without.append(number(tuple(group for group in kept if group != out)))
                    done += 1
                    progress(done, total)
                variances.append(jackknife(np.stack(without)) ** 2)
            squares.append(np.mean(variances, axis=0))
        error = np.sqrt(np.stack(squares))
        windows = np.array(sizes) * (header.windows // groups)
        freedom = np.array([(size - 1) * len(sets[size]) for size in sizes])
        weight = freedom[:, None, None] * np.isfinite(error)  # halves need more than two groups
        one_window = np.nan_to_num(error**2) * windows[:, None, None]
        with np.errstate(invalid="ignore"):
            law = np.sqrt((weight * one_window).sum(axis=0) / weight.sum(axis=0))
        value = number(tuple(range(groups))).astype(float)
        progress(total, total)
        usual = OF_VALUE * np.abs(value) if declared.scale == "log" else np.full_like(law, OF_SHARE)
        wanted = usual if params.wanted is None else np.full_like(law, params.wanted)
        kind = next(v.kind for v in question.values if v.name == declared.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            enough = np.ceil((law / wanted) ** 2)
            last = np.array(without, dtype=float)  # of all groups
            last = np.log(last) if kind == "log" else last
            squared = np.square(last - last.mean(axis=0))
            influence = squared / squared.sum(axis=0)
        values = {"error": error, "value": value, "law": law, "wanted": wanted, "enough": enough}
        return self.result(
            params, values | {"influence": influence}, coordinates={"subset": windows}
        )
