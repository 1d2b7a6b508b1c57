"""Induction, recency and its causes as figures."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Int

from poskernel_core.analyses.induction.recency import candidate_curves, head_map, last_rows_map
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import ROLES
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.conditions import mean_bars
from poskernel_core.plotting.parts import Index, part, title_of
from poskernel_core.plotting.role_maps import role_map, role_maps

CANDIDATE_ROLES = ROLES[ROLES.index("[B]") :]


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
        title=title_of(layer, head, "attention to candidates"),
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
        title=title_of(layer, head, "attention of the last [A]"),
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
        values, errors, patterns.text_of("role"), title=title_of(layer, head, "mean attention")
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


def _seconds(recency: Result) -> Int[np.ndarray, " second"]:
    """The positions of the last pair, one per row."""
    if "second" not in recency.coordinates:
        raise ValueError(f"expected 'induction-recency', received {recency.analysis!r}")
    return recency.coordinates["second"]


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


def norm_cause_figure(result: Result) -> go.Figure:
    """What equalised norms change in one head's attention, or in the preference of all heads."""
    if result.axes["attention_change"] == ():
        return cause_figure(result)
    return by_axes(result.only("attention_advantage_change"))
