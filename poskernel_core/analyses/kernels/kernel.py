"""Positional kernels of all heads at one query position, with the observed attention."""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from poskernel_core.analyses.base import Analysis, Progress, QueryParams, Statistics
from poskernel_core.analyses.kernels import formulas
from poskernel_core.analyses.kernels.etc import summarise_row, within_keys
from poskernel_core.analyses.sources import SourceParams, attended_by_text, queries_at, source_runs
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result, distances, estimates, outputs, shares, token_counts
from poskernel_core.common.specs import RunSpec
from poskernel_core.common.views import StatisticsView

PERCENTILES = (10, 90)


class KernelParams(SourceParams, QueryParams):
    """Parameters of the kernels at one query position."""


class PositionalKernel(Analysis[KernelParams]):
    r"""The positional kernel ``K(n, .)`` of every head at one query position.

    Formula: $s(n,i) = a(n,i) + c(n,i)$ with $a(n,i) = \text{scale}\; q_n \cdot m_i$ (position) and
    $c(n,i) = \text{scale}\; q_n \cdot (k_i - m_i)$ (content), with mean keys $m_i =
    \mathbb{E}_\text{text}[k_i]$; $K(n,i) = \mathrm{softmax}_i\, a(n,i)$ over the visible $i \ge
    \text{skip}$. With skip 0, attention is exactly $A(n,i) = K(n,i)\, e^{c(n,i)} / \sum_j K(n,j)\,
    e^{c(n,j)}$. $\mathrm{TV}(K,K') = \tfrac12 \sum_i |K_i - K'_i|$.

    Choices: queries are those of many windows (their mean kernel), of one text, or of one fixed
    token at position $n$; the posts use a chapter of the Bible, or the token " the".

    Limits: noise in the mean keys makes kernels look sharper than they are. Queries of one text
    share its content, and errors then count only the texts of the mean keys.

    Source: "Positional kernels of attention heads"; "Contextual attention heads in the first layer
    of GPT-2" draws one row as a square.
    """

    name = "kernel"
    title = "Positional kernels"
    noun_phrase = "positional kernels"
    error_counts = "queries"
    values = (
        *outputs("""
            ± kernel [layer head key], share of attention: mean over the source's queries; keys that
                are not visible hold 0
            kernel_low kernel_high [layer head key], share of attention: its 10th and 90th
                percentile over the queries
            ± observed [layer head key], share of attention: attention seen at ``n`` (mean over all
                windows; if the source is one text, that text's), ``skip`` applied and renormalised
        """),
        *token_counts("etc [layer head], tokens: effective token count (ETC) of the kernel"),
        *estimates(
            "half_mass_distance [layer head], tokens: offset within which half of the kernel's "
            "mass lies, interpolated within the token",
            bounds=(0, math.inf),
        ),
        *shares("local_mass [layer head], share of mass: mass of the kernel in the last 10 tokens"),
        *distances(
            "query_variation [layer head]",
            "mean TV between kernels of queries of different groups of texts",
        ),
        *distances("attention_distance [layer head]", "TV to the observed attention"),
        *outputs(
            "visible_keys [layer head], tokens: number of keys that the kernel is spread over"
        ),
    )
    narrow_below = (("attention_distance", 200),)
    continued = "kernel"
    precomputed = "always"

    def needs(self, run: RunSpec, params: KernelParams) -> Mapping[str, RunSpec]:
        if params.query >= run.context:
            raise BadRequest(
                f"Query position {params.query} is outside the context: choose 0 to "
                f"{run.context - 1}."
            )
        return source_runs(run, params, params.query)

    @classmethod
    def derived(cls, result: Result) -> Result:
        """Put ETC into its range, as on the map."""
        return within_keys(result)

    def compute(self, statistics: Statistics, params: KernelParams, progress: Progress) -> Result:
        one = partial(_layer, statistics, params, spread=True)
        return self.result(params, self.of_layers(statistics, progress, one))

    def replicate(self, statistics: Statistics, params: KernelParams, progress: Progress) -> Result:
        """Compute everything except the percentiles."""
        one = partial(_layer, statistics, params, spread=False)
        return self.result(params, self.of_layers(statistics, progress, one))


def _layer(
    statistics: Statistics, params: KernelParams, layer: int, *, spread: bool
) -> dict[str, np.ndarray]:
    view, n = statistics["main"], params.query
    header, arrays = view.header, view.layer(layer)
    rule = header.rule(layer)
    if (low := rule.first_visible(n, params.skip)) > n:
        raise BadRequest(
            f"Query position {n} sees no key when the first {params.skip} are left out: choose a "
            "later query or a smaller skip."
        )
    queries, keys = queries_at(statistics, layer, n), arrays["mean_keys"][:, low : n + 1]
    groups = statistics.get("queries", view).header.groups
    mean, variation = formulas.mean_kernels(queries, keys, rule, low, groups)
    observed = observed_row(statistics, layer, n, low)
    curves = {"kernel": mean}
    if spread:
        kernels = formulas.kernel_rows(queries, keys, rule, low)
        curves["kernel_low"], curves["kernel_high"] = np.percentile(kernels, PERCENTILES, axis=1)
    if observed is not None:
        curves["observed"] = observed
    hidden = low, header.context - n - 1
    padded = {name: np.pad(curve, ((0, 0), hidden)) for name, curve in curves.items()}
    summary = summarise_row(mean, observed, formulas.LOCAL_TOKENS, hidden)
    return padded | summary | {"query_variation": variation}


def kernels_at(statistics: Statistics, layer: int, n: int, skip: int) -> tuple[np.ndarray, int]:
    """Return the mean kernels ``[head, key]`` over the keys that ``n`` sees, and the first key."""
    view = statistics["main"]
    rule = view.header.rule(layer)
    low = rule.first_visible(n, skip)
    keys = view.layer(layer)["mean_keys"][:, low : n + 1]
    return formulas.mean_kernels(queries_at(statistics, layer, n), keys, rule, low, 0)[0], low


def observed_row(
    statistics: Statistics, layer: int, n: int, low: int, head: int | None = None
) -> np.ndarray | None:
    """Return the observed attention from ``n`` to the keys ``low .. n``, renormalised.

    The shape is ``[head, key]``, with one head if ``head`` is given. None if the run did not record
    ``n``.
    """
    view = statistics["main"]
    heads = slice(None) if head is None else slice(head, head + 1)
    if (keys := attended_by_text(statistics, layer)) is not None:
        rule, queries = view.header.rule(layer).of_heads(heads), queries_at(statistics, layer, n)
        shared = keys if head is None else keys[kv_head(view, head)]
        return formulas.kernel_rows(queries[heads], shared[:, low : n + 1], rule, low)[:, 0]
    places = np.flatnonzero(np.array(view.header.positions) == n)
    if len(places) == 0:
        return None
    row = view.layer(layer)["mean_rows"][heads, places[0], low : n + 1].astype(np.float64)
    return row / np.maximum(row.sum(axis=-1, keepdims=True), 1e-300)


def kv_head(view: StatisticsView, head: int) -> slice:
    """Return the key head that a query head reads, as a slice of length 1."""
    first = head * view.header.n_kv_heads // view.header.n_heads
    return slice(first, first + 1)
