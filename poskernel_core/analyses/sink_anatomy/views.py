"""What is drawn and said of what makes a head's sink."""

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    EFFECT,
    Claim,
    Head,
    Number,
    heads_at,
    listed,
    param,
    spoken,
    told,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.sinks.views import first
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.layout import LINE, MUTED, legend_under_title, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, hatched

PROPERTIES = {
    "standing_first": "standing first",
    "position_zero": "position 0",
    "start_token": "start token",
}
WAYS = {"key_effect": "through its key", "query_effect": "through the queries"}
FOLLOWS = {
    "standing_first": "what stands first",
    "position_zero": "position 0",
    "start_token": "the start token",
}
"""What a sink may follow, by the names of the effects."""

THROUGH = {"key_effect": "its key", "query_effect": "the queries after it"}


def effects(head: Result) -> go.Figure:
    """Draw a head's effects as bars."""

    def both(name: str) -> tuple[np.ndarray, np.ndarray]:
        return head.values[name], head.errors[name]

    together = zip(head.words("factors"), *both("interaction"), strict=True)
    single, ways = (
        [(label, *both(name)) for name, label in names.items()] for names in (PROPERTIES, WAYS)
    )
    figure, labels = go.Figure(), []
    for name, (colour, pattern), bars in (
        ("effect of a property", (BLUE, ""), single),
        ("together only", (MUTED, "x"), together),
        ("how the start token acts", (VERMILLION, "/"), ways),
    ):
        drawn = [(label, float(x), float(error)) for label, x, error in bars if np.isfinite(x)]
        labels += [label for label, _, _ in drawn]
        figure.add_bar(
            x=[x for _, x, _ in drawn],
            y=[label for label, _, _ in drawn],
            error_x={"array": [e for *_, e in drawn], "thickness": 2, "width": 5, "color": MUTED},
            name=name,
            orientation="h",
            marker=hatched(colour, pattern, size=8, solidity=0.2),
            customdata=[measured(x, error) for _, x, error in drawn],
            hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
        )
    style(figure, x_title="effect ± 1 s.e. (share)", y_title="", height=150 + 34 * len(labels))
    figure.update_layout(bargap=0.35, barmode="overlay")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(zeroline=True, zerolinecolor=LINE, zerolinewidth=1.5)
    return legend_under_title(figure)


def arrangement_rows(head: Result) -> list[list[str]]:
    """Return a row for each arrangement: in words, and the attention to its two front keys."""
    words, attention = head.words("arrangements"), head.values["attention"]
    return [[word, *(f"{n:.2f}" for n in row)] for word, row in zip(words, attention, strict=True)]


def _head(result: Result) -> str:
    less = [claim for claim in first(Head(result)) if claim.passes != "yes"]
    none = told(result, (claim for claim in less if claim.passes == "no"))
    return none or spoken(follows)(result) or told(result, less)


def follows(head: Head) -> Iterator[Claim]:
    """Yield what a sink follows: effects on its share of attention."""
    effects = {name: head.number(name) for name in (*FOLLOWS, *THROUGH) if head.has(name)}
    up, down, flat = (
        {name: number for name, number in effects.items() if _side(number) == side}
        for side in (1, -1, 0)
    )
    largest = [up[name] for name in FOLLOWS if name in up]
    if not largest:
        return
    text = f"{{its}} sink follows {listed(_told(up, FOLLOWS))}"
    if rest := _told(flat, FOLLOWS):
        text += f", not {' nor '.join(rest)}"
    if less := _told(down, FOLLOWS):
        text += f", and less {listed(less)}"
    if "start_token" in up and (through := _told(up, THROUGH)):
        text += f", where the start token acts through {listed(through)}"
    yield Claim("sink follows", text, largest[0])


def _side(effect: Number) -> int | None:
    """Return 1 or -1 for an effect that is large, 0 for a small one, else None."""
    sides = effect.sign(-EFFECT), effect.sign(EFFECT)
    return {(1, 1): 1, (1, -1): 0, (-1, -1): -1}.get(sides)


def _told(effects: dict[str, Number], words: dict[str, str]) -> list[str]:
    """Return the effects that have words, each with its signed number."""
    return [
        f"{words[name]} ({'+' if number.value > 0 else ''}{number})"
        for name, number in effects.items()
        if name in words
    ]


def _heads(result: Result) -> str:
    count = int(np.isfinite(result.values["standing_first"]).sum())
    if not count:
        return heads_at(result, "sink", "attention to the first key", param(result, "threshold"))
    known = [name for name in FOLLOWS if np.isfinite(result.values[name]).any()]
    sure = {name: discovered(result, Condition(name, EFFECT)).count for name in known}
    if not any(sure.values()):
        return ""
    parts = [f"{FOLLOWS[name]} in {sure[name] or 'none'}" for name in known]
    return (
        f"Among {counted(count, 'head')} with a sink, it follows "
        f"{', '.join(parts)} (effect {EFFECT:g} or more)."
    )


EFFECTS = f"{' '.join((*FOLLOWS, *THROUGH))} []"

VIEWS: Views = {
    "sink-anatomy": (
        View(f"{EFFECTS}, sink []", says=_head),
        View(
            f"{EFFECTS}, interaction [factors]",
            effects,
            "what makes the first key a sink",
            reading="The first key of a text stands first, has position 0, and is the start token, "
            "all at once. Here the three are taken apart: two front tokens, a target and a filler, "
            "stand before the same text in every arrangement. A blue bar says how much more "
            "attention the target gets with that property than without it. Grey bars are what "
            "properties do only together. The lower bars say how the start token acts in place of "
            "an ordinary first token: through its own key, or through the queries of the text, "
            "which earlier layers have changed. The table gives the attention to both front keys "
            "in every arrangement; a token's id is its position. The effects do not say what the "
            "head reads from its sink, and most arrangements are unlike anything in training.",
            explains="attention",
        ),
        View(f"{' '.join(FOLLOWS)} sink [layer head]", says=_heads),
    ),
}

CLAIMS = {"sink-anatomy": (follows,)}
