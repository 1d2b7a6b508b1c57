"""Effective token count, kind and trust of every head's positional kernel."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Analysis, Progress, SkipParams, Statistics
from poskernel_core.analyses.claims import passing
from poskernel_core.analyses.head_measure import HeadMeasure, grid_measures
from poskernel_core.analyses.kernels import formulas
from poskernel_core.analyses.replicates import GAP
from poskernel_core.common.result import (
    NUMBERS,
    Result,
    distances,
    estimates,
    outputs,
    shares,
    token_counts,
)
from poskernel_core.common.views import StatisticsView, queries_of


class EtcParams(SkipParams):
    """Parameters of the effective token count."""

    local_tokens: int = Field(
        formulas.LOCAL_TOKENS, ge=1, le=256, description="last tokens that count as local"
    )
    local_share: float = Field(0.5, ge=0, le=1, description="mass in them that makes a head local")
    uniform_share: float = Field(
        0.5, ge=0, le=1, description="ETC over visible keys that makes a head uniform"
    )


class EtcHeatMap(Analysis[EtcParams]):
    r"""Effective token count (ETC) and other summaries of every head's mean kernel over queries.

    Formula: $\mathrm{ETC}(n) = 1 / \sum_i K(n,i)^2$ of the positional kernel $K(n,i) =
    \mathrm{softmax}_i\; \text{scale}\; q_n \cdot m_i$ over the visible $i \ge \text{skip}$, with
    mean keys $m_i = \mathbb{E}_\text{text}[k_i]$; $\mathrm{TV}(K,K') = \tfrac12 \sum_i |K_i -
    K'_i|$.

    Choices: the first ``skip`` keys are left out, because heads park attention there. A kernel is
    ``local`` if at least half of its mass lies in the last 10 tokens; else ``uniform`` if ETC is at
    least half of the visible keys; else ``slow decay``. The mean key is taken per head and after
    rotation, so that one definition serves learned and rotary positions; the first version of the
    post multiplies the mean stream by the key matrix, with the same result for learned positions.

    Limits: a kernel shows the average effect of position; where ``attention_distance`` is large,
    content decides. Noise in the mean keys makes kernels look sharper than they are, so with few
    texts ETC is too small; what is shown is corrected for most of that. ``query_variation`` and
    ``equivariance_error`` are means of distances and not cross-fit: the jackknife's bias is taken
    off, and twice that at the lower end of the interval.

    Source: "Positional kernels of attention heads"; query variation, equivariance error
    and distance to observed attention are ours.
    """

    name = "etc"
    title = "Effective token count"
    noun_phrase = "the effective token count"
    error_counts = "queries"
    values = (
        *token_counts("""
            etc [layer head query], tokens: effective token count (ETC) of the kernel, from 1 to
                ``visible_keys``
        """),
        *estimates(
            "half_mass_distance [layer head query], tokens: offset within which half of the "
            "kernel's mass lies, interpolated within the token",
            bounds=(0, math.inf),
        ),
        *shares("""
            local_mass [layer head query], share of mass: mass of the kernel in the last
                ``local_tokens`` tokens
        """),
        *outputs(
            "kind [layer head query], kind: local, slow decay or uniform", labels=formulas.KINDS
        ),
        *distances(
            "query_variation [layer head query]",
            "mean total variation (TV) between kernels of queries of different groups of texts, "
            "at the same position",
        ),
        *distances(
            "equivariance_error [layer head query]",
            "mean TV to the kernels of the other positions, aligned by offset and "
            "renormalised on their common support",
            over_positions=True,
        ),
        *distances(
            "attention_distance [layer head query]",
            "TV to the mean observed attention, ``skip`` applied to both",
        ),
        *outputs(
            "visible_keys [layer head query], tokens: number of keys that the kernel is spread over"
        ),
    )
    narrow_below = (("attention_distance", 200),)
    measures = (
        HeadMeasure(
            "effective token count",
            "etc",
            "effective tokens (log scale)",
            scale="log",
            floor=1.0,
            most="visible_keys",
        ),
        *grid_measures("""
            kind of kernel [kind, labels], kind: Local heads have most of their kernel in the last
                tokens (10 unless changed under «Filter and order»), slow decay spreads it over
                many, uniform over all alike.
        """),
        *grid_measures(
            "half-mass distance [half_mass_distance, log], tokens (log scale): Dark: half of the "
            "kernel's mass lies within a few tokens.",
            most="visible_keys",
            floor=0.5,
        ),
        *grid_measures("""
            query variation [query_variation, unit], total variation (0: alike): Dark: kernels of
                different queries at one position agree.
            equivariance error [equivariance_error, unit], total variation (0: alike): Dark: the
                kernel is the same, seen from every position.
            distance to observed attention [attention_distance, unit], total variation (0: alike):
                Dark: the kernel is what the head does on average; bright: content decides.
        """),
        *grid_measures(
            "visible keys [visible_keys, linear], tokens: Dark: a sliding window or chunks hide "
            "all but the nearest keys from the layer.",
            of_windows=True,
        ),
    )
    continued = "kernel"
    precomputed = "always"

    def compute(self, statistics: Statistics, params: EtcParams, progress: Progress) -> Result:
        view = statistics["main"]
        positions = np.array(view.header.positions, dtype=np.int64)
        values = self.of_layers(
            statistics, progress, lambda layer: _layer(view, layer, positions, params)
        )
        values["kind"] = np.full_like(values["etc"], -1, dtype=np.int8)
        return self.result(params, values)

    @classmethod
    def derived(cls, result: Result) -> Result:
        """Put ETC into its range, and classify the heads."""
        if not {"etc", "kind", "visible_keys", "local_mass"} <= result.values.keys():
            return result
        result = within_keys(result)
        mass, etc, visible = (result.values[name] for name in ("local_mass", "etc", "visible_keys"))
        share, uniform = (result.params[name] for name in ("local_share", "uniform_share"))
        kind = formulas.classify(mass, etc, visible, share, uniform)
        return replace(result, values={**result.values, "kind": kind})


def within_keys(result: Result) -> Result:
    """Return a result whose ETC, and the ends of its interval, are at most the visible keys."""
    if not {"etc", "visible_keys"} <= result.values.keys():
        return result
    visible, axes = result.values["visible_keys"], result.axes
    if "head" in axes["etc"] and "head" not in axes["visible_keys"]:
        visible = np.expand_dims(visible, axes["etc"].index("head"))
    parts: dict[str, Any] = {name: dict(getattr(result, name)) for name in NUMBERS[:3]}
    for part in parts.values():
        if "etc" in part:
            part["etc"] = np.asarray(np.minimum(part["etc"], visible))
    return replace(result, **parts)


def stands(result: Result, stretched: float = 1.0) -> np.ndarray:
    """Return for which heads ``[layer, head, query]`` the kind is resolved.

    It is if the interval of no number holds a limit that the kind goes by. ``stretched`` is the
    factor by which the ends of the intervals are farther away than at 95 %.
    """
    local, not_local = passing(result, "local_mass", result.params["local_share"], stretched)
    limit = result.params["uniform_share"] * result.values["visible_keys"]
    uniform, narrow = passing(result, "etc", limit, stretched)
    return np.asarray(local | (not_local & (uniform | narrow)))


def _layer(
    view: StatisticsView, layer: int, positions: np.ndarray, params: EtcParams
) -> dict[str, np.ndarray]:
    arrays, header = view.layer(layer), view.header
    rule = header.rule(layer)
    keys, observed = arrays["mean_keys"], arrays["mean_rows"]
    means = np.zeros((len(observed), len(positions), header.context), dtype=np.float32)
    rows: list[dict[str, np.ndarray]] = []
    for place, n in enumerate(positions):
        if (low := rule.first_visible(int(n), params.skip)) > n:
            rows.append(_nothing(len(observed), header.context))
            continue
        queries = queries_of(view, layer, place)
        visible = slice(low, n + 1)
        mean, variation = formulas.mean_kernels(queries, keys[:, visible], rule, low, header.groups)
        means[:, place, visible] = mean
        hidden = low, header.context - int(n) - 1
        row = summarise_row(mean, observed[:, place, visible], params.local_tokens, hidden)
        rows.append(row | {"query_variation": variation})
    values = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
    return values | _equivariance(means, positions, params.skip)


def summarise_row(
    mean: np.ndarray, observed: np.ndarray | None, local_tokens: int, hidden: tuple[int, int]
) -> dict[str, np.ndarray]:
    """Summarise the mean kernels ``[head, key]`` of one query position over its visible keys.

    ``observed [head, key]`` is the mean attention to the same keys; None: not recorded. ``hidden``
    keys are not seen before and after them.
    """
    row = {
        "etc": formulas.effective_tokens(mean),
        "half_mass_distance": formulas.half_mass_distance(mean),
        "local_mass": mean[:, -local_tokens:].sum(axis=-1),
        "visible_keys": np.full(len(mean), float(mean.shape[-1])),
    }
    if observed is not None:
        total = observed.sum(axis=-1, keepdims=True)
        share = observed / np.maximum(total, np.finfo(observed.dtype).tiny)
        row["attention_distance"] = formulas.total_variation(mean, share)
        row[_GAP] = np.pad((mean - share).astype(np.float32), ((0, 0), hidden))
    return row


_GAP = f"attention_distance{GAP}"


def _nothing(heads: int, context: int) -> dict[str, np.ndarray]:
    names = ("etc", "half_mass_distance", "local_mass", "query_variation", "attention_distance")
    numbers = {name: np.full(heads, np.nan) for name in names} | {"visible_keys": np.zeros(heads)}
    return numbers | {_GAP: np.zeros((heads, context), dtype=np.float32)}


def _equivariance(means: np.ndarray, positions: np.ndarray, skip: int) -> dict[str, np.ndarray]:
    """Return each kernel's mean aligned distance to the kernels of the other positions."""
    gaps = formulas.aligned_distance(formulas.by_offset(means, positions), positions, skip)
    gaps[:, np.arange(len(positions)), np.arange(len(positions))] = np.nan
    count = np.isfinite(gaps).sum(axis=-1)
    total = np.nansum(gaps, axis=-1)
    return {"equivariance_error": np.where(count > 0, total / np.maximum(count, 1), np.nan)}
