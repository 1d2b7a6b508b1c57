"""Results of the experiments on random tokens -> figures.

`layer` and `head` may be None where a result was already selected (``show --head``).
"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int, Num

from poskernel_core.common.result import Result
from poskernel_core.data.layouts import ROLES
from poskernel_core.figures.by_axes import by_axes
from poskernel_core.figures.conditions import case_curves, condition_curves, mean_bars, pattern_map
from poskernel_core.figures.random_rows import norm_curves, trend_figure
from poskernel_core.figures.recency import candidate_curves, head_map, last_rows_map
from poskernel_core.figures.role_maps import role_map, role_maps

CANDIDATE_ROLES = ROLES[ROLES.index("[B]") :]
ZERO_CANDIDATE = 2
"""The key of [B] in every case of the test of position 0."""

Index = int | None
Numbers = Float[np.ndarray, "*shape"]


def probability_figure(recency: Result) -> go.Figure:
    """Probability of each candidate after the last [A], and of other random tokens."""
    values, errors = part(recency, "probability")
    return candidate_curves(
        _seconds(recency),
        values,
        errors,
        list(CANDIDATE_ROLES[: values.shape[1]]),
        title="What follows the last [A]",
        y_title="probability ± 1 s.e.",
        other=part(recency, "probability_other"),
    )


def candidate_figure(recency: Result, layer: Index, head: Index) -> go.Figure:
    """One head's attention from the last [A] to each candidate."""
    values, errors = part(recency, "candidate_attention", layer=layer, head=head)
    return candidate_curves(
        _seconds(recency),
        values,
        errors,
        list(CANDIDATE_ROLES[: values.shape[1]]),
        title=_of(layer, head, "attention to candidates"),
        y_title="share of attention ± 1 s.e.",
    )


def last_rows_figure(recency: Result, layer: Index, head: Index) -> go.Figure:
    """One head's attention from the last [A] to every key, a row for each second position."""
    rows, errors = part(recency, "last_row", layer=layer, head=head)
    return last_rows_map(
        _seconds(recency),
        rows,
        errors,
        recency.text_of("role"),
        title=_of(layer, head, "attention of the last [A]"),
    )


def row_patterns_figure(patterns: Result, layer: int, columns: int | None = None) -> go.Figure:
    """The mean patterns of all heads of a layer in one row of the table, as small maps."""
    values, errors = part(patterns, "pattern", layer=layer)
    title = f"Layer {layer}: mean attention"
    return role_maps(values, errors, patterns.text_of("role"), title=title, columns=columns)


def row_pattern_figure(patterns: Result, layer: Index, head: Index) -> go.Figure:
    """The mean pattern of one head in one row of the table."""
    values, errors = part(patterns, "pattern", layer=layer, head=head)
    return role_map(
        values, errors, patterns.text_of("role"), title=_of(layer, head, "mean attention")
    )


def intrinsic_figure(
    rows: Result, layer: Index, head: Index, query: Index, log_y: bool = False
) -> go.Figure:
    """Mean attention from position `query` to each key 0 to `query`, with its fitted trend."""
    where = {"layer": layer, "head": head, "query": query}
    row, error = part(rows, "pattern", **where)
    at = last_key(row) if query is None else query
    slope, slope_error = part(rows, "slope", **where)
    correlation, _ = part(rows, "rank_correlation", **where)
    return trend_figure(
        row[: at + 1],
        error[: at + 1],
        slope=(float(slope), float(slope_error)),
        correlation=float(correlation),
        first=int(rows.params["trend_from"]),
        log_y=log_y,
        title=_of(layer, head, f"attention from position {at}"),
    )


def norm_figure(rows: Result, heads: Sequence[int] | None = None) -> go.Figure:
    """The norm of the outputs of layer 0's heads against position (default: of all heads)."""
    norm, error = part(rows, "norm")
    exponent, spread = part(rows, "norm_exponent")
    if norm.ndim != 2:
        raise ValueError("expected the norms of all heads, received those of one")
    visible = part(rows, "visible_keys")[0].astype(float)
    chosen = list(range(len(norm)) if heads is None else heads)
    if any(not 0 <= head < len(norm) for head in chosen):
        raise ValueError(f"expected heads 0 to {len(norm) - 1}, received {chosen}")
    exponents = [(float(exponent[head]), float(spread[head])) for head in chosen]
    return norm_curves(
        visible, norm[chosen], error[chosen], exponents, chosen, title="Norm of layer 0's outputs"
    )


def induction_figure(scores: Result) -> go.Figure:
    """The induction score of every head [layer, head]."""
    score, error = part(scores, "induction")
    others = [part(scores, name)[0] for name in ("duplicate", "previous_mass")]
    hover = (
        "induction <b>%{z:.3f}</b> ± %{customdata[0]:.2g}<br>to the earlier duplicate "
        "%{customdata[1]:.3f}<br>to the previous token %{customdata[2]:.3f}"
    )
    return head_map(score, [error, *others], hover, "Induction score of every head")


def cause_figure(cause: Result) -> go.Figure:
    """How one head's preference for recent candidates changes with layer 0's norms equalised."""
    names = {
        "attention_change": "to all candidates",
        "attention_advantage_change": "last minus first",
        "attention_rise_change": "last row minus first",
    }
    pairs = [part(cause, name) for name in names]
    if any(np.ndim(value) for value, _ in pairs):
        raise ValueError("expected one head, received all: choose one")
    return mean_bars(
        list(names.values()),
        *np.transpose(pairs),
        title="Attention, norms equalised minus as they are",
        x_title="change of the share of attention ± 1 s.e.",
    )


def head_scores_figure(scores: Result) -> go.Figure:
    """One head's attention to the induction target, the duplicate and the previous token."""
    names = {
        "induction": "the token after the duplicate",
        "duplicate": "the earlier duplicate",
        "previous_mass": "the previous token",
    }
    pairs = [part(scores, name) for name in names]
    return mean_bars(
        list(names.values()),
        *np.transpose(pairs),
        title="Attention in a sequence repeated",
        x_title="share of attention ± 1 s.e.",
    )


def zero_bars(zero: Result) -> go.Figure:
    """The probability of [B] after the last [A] in the three cases of the test of position 0."""
    cases = zero.words("cases")
    return mean_bars(
        cases,
        *part(zero, "probability"),
        title="What follows the last [A]",
        x_title="probability of [B] ± 1 s.e.",
        other=part(zero, "probability_other")[0],
    )


def look_back_heads(parts: Result) -> go.Figure:
    """Every head's largest attention to one offset by position only; cells name the offset."""
    mass, error = part(parts, "largest_mass", condition=1)
    offset, _ = part(parts, "largest_offset", condition=1)
    hover = "by position only, %{customdata[1]} back: <b>%{z:.3f}</b> ± %{customdata[0]:.2g}"
    figure = head_map(mass, [error, offset], hover, "How far heads look back")
    return figure.update_traces(text=offset, texttemplate="%{text}", textfont_size=11)


def score_conditions_figure(parts: Result, layer: Index, head: Index, query: Index) -> go.Figure:
    """Mean scores from position `query` with both embeddings, positions only and tokens only."""
    title, y_title = "scores from position", "mean score ± 1 s.e. (nats)"
    return _conditions(parts, "score", (layer, head, query), title, y_title)


def pattern_conditions_figure(parts: Result, layer: Index, head: Index, query: Index) -> go.Figure:
    """Mean attention from position `query` in the same three conditions."""
    title, y_title = "attention from position", "share of attention ± 1 s.e."
    return _conditions(parts, "pattern", (layer, head, query), title, y_title)


def _conditions(
    parts: Result, name: str, at: tuple[Index, Index, Index], title: str, y_title: str
) -> go.Figure:
    layer, head, query = at
    means, errors = part(parts, name, layer=layer, head=head, query=query)
    n = last_key(means[0]) if query is None else query
    figure = condition_curves(
        means[:, : n + 1],
        errors[:, : n + 1],
        parts.words("conditions"),
        title=_of(layer, head, f"{title} {n}"),
        x_title="key position i (tokens)",
        y_title=y_title,
        where="key %{x}",
    )
    return figure.update_yaxes(rangemode="tozero") if name == "pattern" else figure


def condition_map_figure(parts: Result, layer: Index, head: Index, condition: int) -> go.Figure:
    """One head's whole mean pattern in one condition."""
    pattern, _ = part(parts, "pattern", layer=layer, head=head, condition=condition)
    return pattern_map(pattern, title=_of(layer, head, parts.words("conditions")[condition]))


def look_back_figure(parts: Result, layer: Index, head: Index) -> go.Figure:
    """One head's mean attention by offset in the three conditions, up to half of the length."""
    means, errors = part(parts, "profile", layer=layer, head=head)
    offsets, _ = part(parts, "largest_offset", layer=layer, head=head)
    shown = means.shape[1] // 2 + 1
    pairs = zip(parts.words("conditions"), offsets, strict=True)
    names = [f"{name}, most at k = {offset}" for name, offset in pairs]
    figure = condition_curves(
        means[:, :shown],
        errors[:, :shown],
        names,
        title=_of(layer, head, "attention by offset"),
        x_title="offset k = n − i (tokens)",
        y_title="share of attention ± 1 s.e.",
        where="%{x} back",
    )
    return figure.update_yaxes(rangemode="tozero")


def position_zero_figure(zero: Result, layer: Index, head: Index) -> go.Figure:
    """One head's attention from the last [A] in the three cases of the test of position 0."""
    rows, errors = part(zero, "last_row", layer=layer, head=head)
    return case_curves(
        rows,
        errors,
        zero.words("cases"),
        ZERO_CANDIDATE,
        title=_of(layer, head, "attention of the last [A]"),
    )


def part(result: Result, name: str, **chosen: Index) -> tuple[Num[np.ndarray, "*shape"], Numbers]:
    """A value of `result` and its errors (NaN where it has none), at one index of each axis.

    An axis that was selected before is passed over; None stands for such an axis.
    """
    if name not in result.values:
        raise ValueError(f"expected a result with {name!r}, received {result.analysis!r}")
    value = result.values[name]
    index: list[int | slice] = []
    for axis, size in zip(result.axes[name], value.shape, strict=True):
        at = chosen.get(axis)
        if axis in chosen and (at is None or not 0 <= at < size):
            raise ValueError(f"expected a {axis} from 0 to {size - 1}, received {at}")
        index.append(slice(None) if at is None else at)
    error = result.errors.get(name)
    error = np.full(value.shape, np.nan) if error is None else error
    return np.asarray(value[tuple(index)]), np.asarray(error[tuple(index)])


def _seconds(recency: Result) -> Int[np.ndarray, " second"]:
    """The positions of the last pair, one per row."""
    if "second" not in recency.coordinates:
        raise ValueError(f"expected 'induction-recency', received {recency.analysis!r}")
    return recency.coordinates["second"]


def last_key(row: Float[np.ndarray, " key"]) -> int:
    """The query of a row [key] of attention or scores: its last key that is seen."""
    return int(np.flatnonzero(np.nan_to_num(row))[-1])


def _of(layer: Index, head: Index, what: str) -> str:
    """A title that begins with the head, where it is known."""
    if layer is None or head is None:
        return what[0].upper() + what[1:]
    return f"L{layer}H{head}: {what}"


def induction_scores_figure(result: Result) -> go.Figure:
    """The induction score of all heads, or what one head does."""
    if result.axes["induction"]:
        return induction_figure(result)
    return head_scores_figure(result)


def recency_figure(result: Result) -> go.Figure:
    """What is predicted, or what one head attends to."""
    if "head" in result.axes["candidate_attention"]:
        return probability_figure(result)
    return candidate_figure(result, None, None)


def patterns_figure(result: Result) -> go.Figure:
    """The layer of the head that attends most to each of the candidates, or one head."""
    if result.axes["pattern"] == ("layer", "head", "query", "key"):
        at = [role in CANDIDATE_ROLES for role in result.text_of("role")]
        found = result.values["pattern"][:, :, -1, at].min(axis=-1).max(axis=1)
        return row_patterns_figure(result, int(np.nanargmax(found)))
    if result.axes["pattern"] == ("query", "key"):
        return row_pattern_figure(result, None, None)
    return by_axes(result.only("pattern"))


def random_figure(result: Result) -> go.Figure:
    """The norms of layer 0, or one head's attention from one position or the last."""
    if "head" in result.axes["pattern"]:
        return norm_figure(result)
    last = len(result.values["pattern"]) - 1 if "query" in result.axes["pattern"] else None
    return intrinsic_figure(result, None, None, last)


def conditions_figure(result: Result) -> go.Figure:
    """How far every head looks back by position, or one head's offsets, or one row of it."""
    if "head" in result.axes["pattern"]:
        return look_back_heads(result)
    if "query" in result.axes["pattern"]:
        return look_back_figure(result, None, None)
    return pattern_conditions_figure(result, None, None, None)


def zero_figure(result: Result) -> go.Figure:
    """The probability of [B] in the three cases, or one head's attention in them."""
    if "head" in result.axes["last_row"]:
        return zero_bars(result)
    return position_zero_figure(result, None, None)


def norm_cause_figure(result: Result) -> go.Figure:
    """What equalised norms change in one head's attention, or in the preference of all heads."""
    if result.axes["attention_change"] == ():
        return cause_figure(result)
    return by_axes(result.only("attention_advantage_change"))
