"""What is drawn and said of results on position against token, and on position 0."""

from functools import partial

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    ATTENTION,
    HALF,
    Number,
    most,
    name_at,
    named,
    number_of,
    of_all,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.pictures import draw_lines, heads, lines, rows_of, unit_of
from poskernel_core.analyses.position_vs_token.spec import CONDITIONS
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.attention import only_visible
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted
from poskernel_core.plotting.conditions import mean_bars
from poskernel_core.plotting.curves import Look
from poskernel_core.plotting.layout import LINE, SHARE
from poskernel_core.plotting.palette import BLUE, GREEN, PURPLE, VERMILLION
from poskernel_core.plotting.patterns import stage_map

LOOKS = (  # both, position only, token only: the posts' blue, red and green
    Look(BLUE),
    Look(VERMILLION, "dash", "square"),
    Look(GREEN, "dot", "diamond"),
)
CASE_LOOKS = (Look(BLUE), Look(VERMILLION, "dash", "square"), Look(PURPLE, "dot", "diamond"))


CANDIDATE = 2
"""The key of [B] in every case of the test of position 0."""
BOTH, POSITION, TOKEN = range(len(CONDITIONS))


def _back(offset: float) -> str:
    return f"{counted(int(offset), 'token')} back" if offset else "the token itself"


def _mass(result: Result) -> str:
    alone, both = (number_of(result, "largest_mass", run) for run in (POSITION, BOTH))
    if not (looks := alone.sign(ATTENTION)):
        return ""
    place = _back(float(result.values["largest_offset"][POSITION]))
    if looks < 0:
        return (
            f"Fed positions alone, {who(result)} gives no distance {ATTENTION:g} of its "
            f"attention: the most is {alone} ({place})."
        )
    with_tokens = f"{both} ({_back(float(result.values['largest_offset'][BOTH]))})"
    return (
        f"Fed positions alone, {who(result)} gives {alone} of its attention to one distance, "
        f"{place} (limit {ATTENTION:g}); fed tokens as well the most is {with_tokens}."
    )


def _masses(result: Result) -> str:
    alone = result.select(condition=POSITION)
    masses, offsets = named(alone, "largest_mass"), named(alone, "largest_offset")
    back = (alone.values["largest_offset"] > 0).astype(float)
    listing = discovered(
        alone, Condition("largest_mass", ATTENTION), Condition(Estimate(back, back, back), 1)
    )
    sure = [name_at(alone, "largest_mass", tuple(at)) for at in np.argwhere(listing.sure).tolist()]
    if not sure:
        none = masses and all(
            mass.sign(ATTENTION) < 0 or not offsets[head].value for head, mass in masses.items()
        )
        said_of_none = (
            f"Fed positions alone, none of {len(masses)} heads looks back: no largest diagonal "
            f"with {ATTENTION:g} or more of the attention is at an earlier token."
        )
        return said_of_none if none else ""
    first = max(sure, key=lambda head: masses[head].value)
    return (
        f"Fed positions alone, {of_all(len(sure), len(masses), beside=listing.beside).lower()} give"
        f"{'' if len(sure) > 1 else 's'} {ATTENTION:g} or more of the attention to one "
        f"distance back, such as {first} ({masses[first]}, {_back(offsets[first].value)})."
    )


def _score(result: Result) -> str:
    alone, query = result.select(condition=POSITION), result.chosen["query"]
    top = most(alone, "score")
    if top is None or np.isfinite(alone.values["score"]).sum() < 2:
        return ""
    first, second = np.sort(alone.values["score"][np.isfinite(alone.values["score"])])[:-3:-1]
    return (
        f"Fed positions alone, {who(result)}'s score from position {query} is highest at key "
        f"{top[0]} ({_back(query - top[0])}), {brief(first - second)} nats above the next."
    )


def _attention(result: Result) -> str:
    """Whether position or token draws a head to the key that it attends to most."""
    if (top := most(result.select(condition=BOTH), "pattern")) is None:
        return ""
    both, position, token = (number_of(result, "pattern", run, *top) for run in range(3))
    if not (more := (position - token).sign()):
        return ""
    return (
        f"From position {result.chosen['query']}, {who(result)} attends most to key {top[0]} "
        f"({both}), {'more' if more > 0 else 'less'} fed positions alone ({position}) "
        f"than fed tokens alone ({token})."
    )


def _diagonal(result: Result) -> str:
    half = result.values["pattern"].shape[-1] // 2
    means = [_mean_along(result, BOTH, back).value for back in range(half)]
    back = int(np.argmax(means))
    both, position, token = (_mean_along(result, run, back) for run in range(len(CONDITIONS)))
    if not (more := (position - token).sign()):
        return ""
    return (
        f"{who(result)}'s largest diagonal ({_back(back)}) gets {both} of the attention, "
        f"{'more' if more > 0 else 'less'} fed positions alone ({position}) than fed tokens "
        f"alone ({token})."
    )


def _mean_along(result: Result, run: int, back: int) -> Number:
    """Return the mean of a pattern along a diagonal, position 0 left out.

    The errors along it need not be independent, so that of the mean is at most their mean.
    """
    value, error = (
        float(part["pattern"][run, 1:, 1:].diagonal(-back).mean()) if "pattern" in part else 0.0
        for part in (result.values, result.errors)
    )
    return Number.within(value, result.interval * error)


def _zero(result: Result) -> str:
    """Whether position 0 or the missing start token is what induction lacks."""
    start, zero, one = (number_of(result, "probability", case) for case in range(3))
    cases = "Without a start token, [B] is {} after the last [A] if the first [A] is at position"
    drop, from_place = start - zero, one - zero
    if from_place.sign() > 0:
        return f"{cases.format('less likely')} 0 ({zero}) than if it is at position 1 ({one})."
    if drop.sign() > 0 and max(-from_place.low, from_place.high) < HALF * drop.low:
        return (
            f"{cases.format('as unlikely')} 1 ({one.trace}) as at position 0 ({zero.trace}); "
            f"after a start token it is likelier ({start}): position 0 is no exception."
        )
    if from_place.sign() < 0:
        return f"{cases.format('more likely')} 0 ({zero}) than if it is at position 1 ({one})."
    return ""


def _by_offset(result: Result) -> go.Figure:
    rows = {
        f"{run}, most at k = {offset}": (value[:half], error[:half])
        for half in [result.values["profile"].shape[-1] // 2 + 1]
        for (run, value, error), offset in zip(
            rows_of(result, "profile", "condition"), result.values["largest_offset"], strict=True
        )
    }
    x = np.arange(len(next(iter(rows.values()))[0]))
    return draw_lines(x, rows, over="offset", unit=unit_of(result, "profile"), looks=LOOKS)


def _map(result: Result) -> go.Figure:
    pattern = only_visible(result.values["pattern"].astype(np.float64))
    return stage_map(pattern, title="", span=(0.0, 1.0), unit=SHARE)


def _look_back(result: Result) -> go.Figure:
    alone = result.select(condition=POSITION)
    offset = alone.values["largest_offset"]
    return heads(
        alone, "largest_mass", hover_text=" by position only, %{customdata[1]} back",
        extra=[offset], text=offset, texttemplate="%{text}", textfont_size=11,
    )  # fmt: skip


def _last_rows(result: Result) -> go.Figure:
    figure = lines(result, "last_row", over="key", by="case", looks=CASE_LOOKS, band=False)
    figure.update_xaxes(title_text=f"key, counted so that [B] is {CANDIDATE} (tokens)")
    figure.add_scatter(
        x=[CANDIDATE] * len(CASE_LOOKS),
        y=result.values["last_row"][:, CANDIDATE],
        mode="markers",
        name="[B]",
        showlegend=False,
        hoverinfo="skip",
        cliponaxis=False,
        marker={
            "size": 16,
            "symbol": "circle-open",
            "color": [case_look.colour for case_look in CASE_LOOKS],
            "line_width": 2,
        },
    )
    figure.add_vline(
        x=CANDIDATE,
        line={"color": LINE, "width": 1.2, "dash": "dot"},
        layer="below",
        annotation={"text": "[B]", "font_size": 13},
        annotation_position="top right",
    )
    room = 1.15 * float(np.nanmax(result.values["last_row"]))  # for the letter
    return figure.update_yaxes(range=[0, room])


def _bars(result: Result) -> go.Figure:
    return mean_bars(
        result.words("cases"), result.values["probability"], result.errors["probability"],
        title="", x_title="probability of [B] ± 1 s.e.", other=result.values["probability_other"],
    )  # fmt: skip


VIEWS: Views = {
    "position-vs-token": (
        View("largest_mass largest_offset [condition]", says=_mass),
        View(
            "pattern [condition key]",
            partial(lines, name="pattern", over="key", by="condition", looks=LOOKS),
            "attention from position {query}",
            says=_attention,
            reading="The mean softmax of the scores: how much attention each key gets. Position "
            "alone is often sharper than the final attention, because tokens smooth it.",
        ),
        View(
            "score [condition key]",
            partial(lines, name="score", over="key", by="condition", looks=LOOKS),
            "scores from position {query}",
            says=_score,
            reading="The head's mean scores from one query position: with positions and tokens, "
            "with positions only, and with tokens only. Averaged over random tokens, the scores "
            "with tokens only are flat except at the start token, so peaks come from position.",
        ),
        View("profile [condition offset], largest_offset [condition]", _by_offset,
             "attention by offset"),
        View("pattern [query key]", _map, "{condition}"),
        View(
            "pattern [condition query key]",
            _map,
            each="condition",
            says=_diagonal,
            reading="The head's mean pattern in each of the three runs, for all queries. A "
            "diagonal in the run with positions only is positional; check whether it begins at "
            "query 1.",
        ),
        View(
            "largest_mass largest_offset [condition layer head]",
            _look_back,
            "How far heads look back",
            says=_masses,
            reading="One row per head: the offset of its largest diagonal, with both and by "
            "position alone, and the attention there. Compare *1 to 0*, the attention from "
            "position 1 to position 0, with P(1). Click a row to select the head on all pages.",
            explains="profile first_mass",
        ),
    ),
    "position-zero": (
        View(
            "last_row [case key]",
            _last_rows,
            "attention of the last [A]",
            reading="The last [A]'s attention in three cases: the first [A] stands after the start "
            "token, at position 0, or after a random token. Keys are shifted so that [B] is key 2 "
            "in all three. If induction fails only at position 0, the position is the cause; if it "
            "fails at position 1 too without a start token, the missing start token is.",
        ),
        View("probability probability_other [case]", _bars, "What follows the last [A]"),
        View("probability [case]", says=_zero),
    ),
}  # fmt: skip
