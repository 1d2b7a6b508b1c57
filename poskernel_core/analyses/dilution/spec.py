"""Dilution: how a kernel's effective token count grows with the number of visible keys."""

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Analysis, Progress, SkipParams, Statistics
from poskernel_core.analyses.dilution.formulas import MIN_POINTS, log_spaced, slopes
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.analyses.kernels.etc import within_keys
from poskernel_core.analyses.kernels.formulas import effective_tokens, mean_kernels
from poskernel_core.common.result import Result, estimates, outputs, token_counts
from poskernel_core.common.views import StatisticsView, queries_of

LEAST_KEYS = 8
"""Fewest keys after ``skip`` of a query that counts: below, ETC has no room to grow."""

NO_SLOPE = "the number of visible keys does not vary over the query positions"
TOO_FEW = "fewer than three query positions were recorded"


class DilutionParams(SkipParams):
    """Parameters of the dilution."""

    points: int = Field(12, ge=MIN_POINTS, le=64, description="query positions on a log axis")


class Dilution(Analysis[DilutionParams]):
    r"""How far a head's mean kernel spreads out as more keys become visible.

    Formula: $\alpha$ is the least-squares slope of $\ln \mathrm{ETC}(n)$ on $\ln v(n)$ over query
    positions $n$, where $v(n)$ is the number of visible keys $i \ge \text{skip}$, and
    $\mathrm{ETC}(n) = 1 / \sum_i K(n,i)^2$ of the kernel $K(n,\cdot)$, the mean over queries. At
    $\alpha = 0$ the head keeps its reach; at $\alpha = 1$ it spreads over all visible keys.

    Choices: the positions are those of the recorded ones that are nearest to evenly spaced ones on
    a log axis, from the first with 8 keys on. ``alpha_upper`` is the slope over the upper half of
    them. The slope is on visible keys, not on $n$: on $n$ a uniform head comes out above 1. In a
    sliding window or a chunk, keys outside do not count.

    Limits: $\ln \mathrm{ETC}$ is no straight line, so the slope depends on the range of $n$: where
    the two slopes differ, the head reaches its full width within the range. Noise in the mean keys
    makes ETC too small, and more so for broad kernels; the correction for bias removes most of
    that. A head that spreads out by position may still find its key by content.

    Source: ours; that attention spreads out over longer contexts because softmax normalises is
    the subject of "softmax is not enough (for sharp size generalisation)" (2410.01104).
    """

    name = "dilution"
    title = "Dilution over visible keys"
    noun_phrase = "how kernels spread out as more keys become visible"
    error_counts = "queries"
    values = (
        *estimates(
            r"""
            alpha [layer head], slope: $\alpha$: 0 keeps its reach, 1 spreads over all visible keys;
                NaN where the number of visible keys does not vary
            alpha_upper [layer head], slope: the same over the upper half of the positions
            """,
            over_positions=True,
        ),
        *token_counts(
            "etc [layer head query], tokens: effective token count (ETC) of the kernel",
            over_positions=True,
        ),
        *outputs(
            "visible_keys [layer query], tokens: number of keys that the kernel is spread over",
            over_positions=True,
        ),
    )
    texts = outputs("no_slope [layer], reason: why a layer has no slope; else empty")
    measures = grid_measures("""
        dilution [alpha, unit], slope of log ETC on log keys: Dark: the head keeps its reach as more
            keys become visible; bright: it spreads over all of them.
        dilution at the upper half [alpha_upper, unit], slope of log ETC on log keys: The same over
            the later query positions alone: dark where a head has reached its full width.
    """)
    precomputed = "always"

    @classmethod
    def derived(cls, result: Result) -> Result:
        """Put ETC into its range, as on the map."""
        return within_keys(result)

    def compute(self, statistics: Statistics, params: DilutionParams, progress: Progress) -> Result:
        view = statistics["main"]
        recorded = np.array(view.header.positions, dtype=np.int64)
        enough = recorded[recorded >= max(1, params.skip + LEAST_KEYS - 1)]
        positions = log_spaced(enough, params.points) if len(enough) else recorded[-1:]
        values = self.of_layers(
            statistics, progress, lambda layer: _layer(view, layer, positions, params.skip)
        )
        varies = np.ptp(values["visible_keys"], axis=1) > 0
        reason = TOO_FEW if len(positions) < MIN_POINTS else NO_SLOPE
        return self.result(
            params,
            values,
            texts={
                "no_slope": ["" if varying and reason == NO_SLOPE else reason for varying in varies]
            },
            coordinates={"query": positions},
            provenance={"query_range": positions[[0, -1]].tolist()},
        )


def _layer(
    view: StatisticsView, layer: int, positions: np.ndarray, skip: int
) -> dict[str, np.ndarray]:
    rule, keys = view.header.rule(layer), view.layer(layer)["mean_keys"]
    low = np.array([rule.first_visible(n, skip) for n in positions.tolist()])
    etc = np.full((view.header.n_heads, len(positions)), np.nan)
    for place in np.flatnonzero(low <= positions).tolist():
        first, n = int(low[place]), int(positions[place])
        queries = queries_of(view, layer, view.header.positions.index(n))
        kernel = mean_kernels(queries, keys[:, first : n + 1], rule, first, groups=1)[0]
        etc[:, place] = effective_tokens(kernel)
    visible = np.maximum(positions - low + 1, 0).astype(float)
    half = len(positions) // 2
    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = np.log(visible), np.log(etc)
        return {
            "alpha": slopes(x, y),
            "alpha_upper": slopes(x[half:], y[:, half:]),
            "etc": etc,
            "visible_keys": visible,
        }
