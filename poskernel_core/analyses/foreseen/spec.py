"""How much of its attention a head's kernel foresees, for a number of keys chosen beforehand."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from poskernel_core.analyses.base import Analysis, Progress, QueryParams, Statistics
from poskernel_core.analyses.foreseen import formulas
from poskernel_core.analyses.foreseen.formulas import FIXED, HEADLINES, KERNEL, WAYS
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.analyses.kernels.formulas import mean_kernels
from poskernel_core.analyses.replicates import errors_and_biases
from poskernel_core.analyses.sources import check_query, queries_at
from poskernel_core.common.result import Result, estimates, outputs, ranges
from poskernel_core.common.specs import RunSpec
from poskernel_core.common.views import Some, StatisticsView, halves


class ForeseenAttention(Analysis[QueryParams]):
    r"""How much of a head's mean attention falls on a few keys that are chosen beforehand.

    Formula: $c(b) = \sum_{i \in B} \bar A(n,i) \,/\, \sum_i \bar A(n,i)$ with the mean observed
    attention $\bar A$ and $b$ visible keys $B$ that are chosen in one of four ways: those with the
    largest positional kernel $K(n,i)$ (the first ``skip`` keys are always kept, and counted); the
    last $b$; the first 4 and the last $b - 4$; or those with the largest $\bar A(n,i)$, the best
    fixed choice. Kernel and best choice come from one half of the groups of texts, $\bar A$ in
    $c(b)$ from the other; the halves are swapped, and the two numbers averaged.

    Choices: the halves are the groups of even and of odd number. Errors leave out one group at a
    time: the rest of its half, and the other half, stay as they are. The variances from the two
    halves add up. The numbers are not corrected: keys that swap ranks make the jackknife's bias
    noisier than it is large. Keys outside a sliding window or a chunk are neither kept nor counted.
    A learned sink's attention falls on no key, and is left out.

    **A whole cache** follows the recorded queries up to $n$, in order. At each of them a key head's
    cache holds the keys that it kept at the recorded query before, and all keys since then. Each of
    its query heads picks, of the keys *that are held*, the first $b$ by its kernel there. A key
    that none of them picks is dropped, and never comes back. Between recorded queries nothing is
    dropped. A query head may use all keys of its key head's cache.

    Limits: which keys a cache keeps changes by jumps, so ``kept_keys`` and ``kept_captured`` have
    the range of the replicates in place of an interval. A mean over texts is foreseen, not the
    attention in one text: a head that looks at one key, another in every text, has a broad mean
    that no fixed choice captures with few keys. What a dropped key would have done to the output is
    not measured.
    With few keys to see, every choice captures much: compare with $b$ over the visible keys. Two
    groups of texts are needed (errors need four); without them all numbers are NaN.

    Source: ours; the first 4 and the last keys are those of "Efficient streaming language models
    with attention sinks" (2309.17453).
    """

    name = "foreseen-attention"
    title = "Attention that can be foreseen"
    noun_phrase = "the attention that can be foreseen"
    error_counts = "windows"
    values = (
        *estimates("""
            % captured [layer head way budget], share of attention: $c(b)$, by the way of choosing
                and the number of keys
            % share_16 share_32 share_64 [layer head], share of attention: what 16, 32 and 64 keys
                chosen by the kernel capture
            gain_32 [layer head], share of attention: what 32 keys chosen by the kernel capture,
                minus what the first 4 and the last 28 do
            keys_for_95 [layer head way], keys: number of keys that capture 0.95, interpolated
        """),
        *ranges(
            """
            kept_keys [layer budget], share of visible keys: keys in a layer's cache at ``n``, if
                each query head picks ``budget`` keys
            kept_captured [layer budget], share of attention: attention to the keys in that cache,
                mean over the layer's heads
            """,
            over_positions=True,
        ),
        *estimates(
            """
            cache_for_95 fixed_cache_for_95 [layer], share of visible keys: size of a layer's cache
                that captures 0.95, mean over its heads, interpolated: with keys that the kernels
                pick; with the first 4 and the last keys, the same in all heads
            """,
            over_positions=True,
        ),
        *outputs("visible_keys [layer head], tokens: number of keys that the query sees"),
    )
    texts = outputs("ways [way], name: the ways to choose keys")
    narrow_below = (("share_32", 200), ("gain_32", 200))
    measures = grid_measures("""
        attention foreseen with 32 keys [share_32, unit], share of attention: Bright: 32 keys chosen
            by the kernel get most of the attention.
        gain over first and last keys [gain_32, diverging], share of attention: Above 0: 32 keys
            chosen by the kernel get more of the attention than the first 4 and the last 28 keys;
            below 0: less.
    """)
    precomputed = "always"

    def needs(self, run: RunSpec, params: QueryParams) -> Mapping[str, RunSpec]:
        check_query(params.query, params.skip, run.context)
        return {"main": run}

    def answer(self, statistics: Statistics, params: QueryParams, progress: Progress) -> Result:
        """Compute the result; variances from the two halves add up, and nothing is corrected."""
        full, without = self.jackknifed(statistics, params, progress)
        one, other = (
            errors_and_biases(self.values, full.values, [replicate.values for replicate in half])[0]
            for half in (without[::2], without[1::2])
        )
        jumps = {value.name for value in self.values if value.kind == "range"}
        errors = {
            name: full.errors[name] if name in jumps else np.hypot(error, other[name])
            for name, error in one.items()
        }
        biases = {name: array for name, array in full.biases.items() if name in jumps}
        return self.shown(replace(full, errors=errors, biases=biases))

    def compute(self, statistics: Statistics, params: QueryParams, progress: Progress) -> Result:
        view = statistics["main"]
        queries_at(statistics, 0, params.query)  # refuses a position that is not recorded
        budgets = formulas.budgets_up_to(params.query + 1)
        if all(half.kept for half in halves(view)):
            one = partial(_layer, view, params, budgets)
            values = self.of_layers(statistics, progress, one)
            for array in values.values():
                array[list(view.header.reasons)] = np.nan  # layers without heads
        else:
            header = view.header
            sizes = {"layer": header.n_layers, "head": header.n_heads}
            sizes |= {"way": len(WAYS), "budget": len(budgets)}
            values = {
                value.name: np.full([sizes[axis] for axis in value.axes], np.nan)
                for value in self.values
            }
        return self.result(
            params, values, coordinates={"budget": budgets}, texts={"ways": list(WAYS)}
        )


def _layer(
    view: StatisticsView, params: QueryParams, budgets: np.ndarray, layer: int
) -> dict[str, np.ndarray]:
    one, other = halves(view)
    ways = ((one, other), (other, one))
    outcomes = [_across(*way, params, budgets, layer) for way in ways]
    curve, kept_keys, kept_captured = (
        np.mean(arrays, axis=0) for arrays in zip(*outcomes, strict=True)
    )
    visible = curve.shape[-1]
    counts = 1.0 + np.arange(visible)
    shares = {b: curve[..., min(b, visible) - 1] for b in HEADLINES}
    return {
        "captured": curve[..., np.minimum(budgets, visible) - 1],
        **{f"share_{b}": share[:, KERNEL] for b, share in shares.items()},
        "gain_32": np.round(shares[32][:, KERNEL] - shares[32][:, FIXED], 9),  # same keys: 0
        "keys_for_95": formulas.first_reaching(curve, counts),
        "kept_keys": kept_keys,
        "kept_captured": kept_captured,
        "cache_for_95": formulas.first_reaching(kept_captured, kept_keys),
        "fixed_cache_for_95": formulas.first_reaching(curve[:, FIXED].mean(0), counts / visible),
        "visible_keys": np.full(len(curve), float(visible)),
    }


def _across(
    ranked: Some, measured: Some, params: QueryParams, budgets: np.ndarray, layer: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what keys chosen by one half of the texts capture of the other half's attention.

    The curve ``[head, way, key]`` over the number of keys; then the share of the visible keys that
    a cache keeps, and the share of attention to them, ``[budget]`` each.
    """
    header, arrays, n = ranked.header, ranked.layer(layer), params.query
    rule, mean_keys = header.rule(layer), arrays["mean_keys"]
    held = np.zeros((len(budgets), len(mean_keys), n + 1), dtype=bool)
    since = 0
    for place, query in enumerate(header.positions[: header.positions.index(n) + 1]):
        low, first = (rule.first_visible(query, skip) for skip in (0, params.skip))
        seen = slice(low, query + 1)
        observed = arrays["mean_rows"][:, place, seen]
        kernel = np.full(observed.shape, np.inf)
        if first <= query:
            queries = queries_at({"main": ranked}, layer, query)
            keys = mean_keys[:, first : query + 1]
            kernel[:, first - low :], _ = mean_kernels(queries, keys, rule, first, 0)
        order = formulas.rankings(kernel, observed, low)
        held[..., since : query + 1], since = True, query + 1
        held[..., seen] = formulas.kept(held[..., seen], order[KERNEL], budgets)
    attention = measured.layer(layer)["mean_rows"][:, place, seen].astype(np.float64)
    attention /= attention.sum(axis=-1, keepdims=True)
    cache = held[..., seen]
    of_kv = attention.reshape(cache.shape[1], -1, cache.shape[2])
    got = np.einsum("bgk,ghk->bgh", cache, of_kv).mean(axis=(1, 2))
    return formulas.captured(order, attention).swapaxes(0, 1), cache.mean(axis=(1, 2)), got
