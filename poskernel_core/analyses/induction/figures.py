"""Induction, recency and its causes as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.induction.role_maps import (
    letter,
    row_pattern_figure,
    row_patterns_figure,
)
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import ROLES
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.conditions import mean_bars
from poskernel_core.plotting.curves import Look, curves, look
from poskernel_core.plotting.head_map import share_bar, share_map
from poskernel_core.plotting.layout import MUTED, set_title, style
from poskernel_core.plotting.palette import SCALE
from poskernel_core.plotting.parts import Index, part, title_of

CANDIDATE_ROLES = ROLES[ROLES.index("[B]") :]
FEW = 32  # up to this many keys, cells have gaps and candidates are labelled


def probability_figure(recency: Result) -> go.Figure:
    """Draw the probability of each candidate after the last [A], and of other random tokens."""
    others = {"other random tokens (mean)": part(recency, "probability_other")}
    values = part(recency, "probability")
    title = "What follows the last [A]"
    return _by_candidate(recency, values, others, title, "probability ± 1 s.e.")


def candidate_figure(recency: Result, layer: Index, head: Index) -> go.Figure:
    """Draw one head's attention from the last [A] to each candidate."""
    values = part(recency, "candidate_attention", layer=layer, head=head)
    title = title_of(layer, head, "attention to candidates")
    return _by_candidate(recency, values, {}, title, "share of attention ± 1 s.e.")


def _by_candidate(
    recency: Result,
    values: tuple[np.ndarray, np.ndarray],
    others: dict[str, tuple[np.ndarray, np.ndarray]],
    title: str,
    y_title: str,
) -> go.Figure:
    """Draw a curve per candidate over the last [A]'s position; `others` are grey and dotted."""
    seconds, count = recency.coordinates["second"], values[0].shape[1]
    means, errors = values
    rows = {name: (means[:, at], errors[:, at]) for at, name in enumerate(CANDIDATE_ROLES[:count])}
    figure = curves(
        seconds,
        rows | others,
        x_title="position of the last pair's [A] (tokens)",
        y_title=y_title,
        where="second [A] at %{x}" if count == 2 else "last pair at %{x}",
        looks=[*map(look, range(count)), Look(MUTED, "dot", "circle-open")],
        band=False,
    )
    figure.update_xaxes(dtick=1 if len(seconds) <= 16 else None)
    figure.update_yaxes(rangemode="tozero")
    return set_title(figure, title)


def last_rows_figure(recency: Result, layer: Index, head: Index) -> go.Figure:
    """Draw a head's attention from the last [A] to each key, a row per place of the last pair.

    Candidates are marked with their letter.
    """
    rows, errors = part(recency, "last_row", layer=layer, head=head)
    seconds, keys = recency.coordinates["second"], rows.shape[1]
    letters = [
        ["" if role == "[A]" else letter(role) for role in row] for row in recency.text_of("role")
    ]
    apart = {"text": letters, "texttemplate": "%{text}", "xgap": 1, "ygap": 1}
    top = float(rows.max())
    figure = go.Figure().add_heatmap(
        z=rows.astype(np.float32),
        y=seconds,
        zmin=0,
        zmax=top,
        colorscale=SCALE,
        textfont_size=12,
        customdata=errors.astype(np.float32),
        hovertemplate="last pair at %{y}, key %{x}"
        "<br><b>%{z:.3g}</b> ± %{customdata:.2g}<extra></extra>",
        **(apart if keys <= FEW else {}),
    )
    y_title = "position of the last pair's [A]"
    style(figure, x_title="key position i (tokens)", y_title=y_title, height=420)
    figure.update_xaxes(showgrid=False, dtick=1 if keys <= 13 else None)
    figure.update_yaxes(
        showgrid=False, autorange="reversed", dtick=1 if len(seconds) < 13 else None
    )
    title = title_of(layer, head, "attention of the last [A]")
    return set_title(share_bar(figure, top), title)


def induction_figure(scores: Result) -> go.Figure:
    """Draw the induction score of every head [layer, head]."""
    score, error = part(scores, "induction")
    others = [part(scores, name)[0] for name in ("duplicate", "previous_mass")]
    hover = (
        "induction <b>%{z:.3f}</b> ± %{customdata[0]:.2g}<br>to the earlier duplicate "
        "%{customdata[1]:.3f}<br>to the previous token %{customdata[2]:.3f}"
    )
    extra = np.dstack([error, *others])
    title = "Induction score of every head"
    return share_map(score, told=hover, title=title, customdata=extra)


def cause_figure(cause: Result) -> go.Figure:
    """Draw how equalising layer 0's norms changes one head's preference for recent candidates."""
    names = {
        "attention_change": "to all candidates",
        "attention_advantage_change": "last minus first",
        "attention_rise_change": "last row minus first",
    }
    return mean_bars(
        list(names.values()),
        *np.transpose([part(cause, name) for name in names]),
        title="Attention, norms equalised minus as they are",
        x_title="change of the share of attention ± 1 s.e.",
    )


def head_scores_figure(scores: Result) -> go.Figure:
    """Draw one head's attention to the induction target, the duplicate and the previous token."""
    names = {
        "induction": "the token after the duplicate",
        "duplicate": "the earlier duplicate",
        "previous_mass": "the previous token",
    }
    return mean_bars(
        list(names.values()),
        *np.transpose([part(scores, name) for name in names]),
        title="Attention in a sequence repeated",
        x_title="share of attention ± 1 s.e.",
    )


def induction_scores_figure(result: Result) -> go.Figure:
    """Draw the induction score of all heads, or the scores of one head."""
    if result.axes["induction"]:
        return induction_figure(result)
    return head_scores_figure(result)


def recency_figure(result: Result) -> go.Figure:
    """Draw the predicted probabilities, or one head's attention to the candidates."""
    if "head" in result.axes["candidate_attention"]:
        return probability_figure(result)
    return candidate_figure(result, None, None)


def patterns_figure(result: Result) -> go.Figure:
    """Draw one head, or the layer of the head whose least attention to a candidate is largest."""
    if result.axes["pattern"] == ("layer", "head", "query", "key"):
        at = [role in CANDIDATE_ROLES for role in result.text_of("role")]
        found = result.values["pattern"][:, :, -1, at].min(axis=-1).max(axis=1)
        return row_patterns_figure(result, int(np.nanargmax(found)))
    if result.axes["pattern"] == ("query", "key"):
        return row_pattern_figure(result, None, None)
    return by_axes(result.only("pattern"))


def norm_cause_figure(result: Result) -> go.Figure:
    """Draw the effect of equalised norms on one head's attention, or on all heads' preference."""
    if result.axes["attention_change"] == ():
        return cause_figure(result)
    return by_axes(result.only("attention_advantage_change"))
