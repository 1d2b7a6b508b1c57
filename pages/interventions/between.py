"""Between two prompts: what of their difference each head carries."""

from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from pages.interventions.controls import MAX_CHARACTERS, choose_preset
from pages.shared.cards.metric import draw_metrics
from pages.shared.cards.plain import say
from pages.shared.cards.show import show
from pages.shared.choices.fit import choose_one, fitted_text
from pages.shared.grid.measure_grid import Extras, draw_heads
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import ROWS_SHOWN, heads_frame, linked_table, number_columns
from poskernel_core.analyses.interventions.presets import Preset
from poskernel_core.analyses.patching.presets import pairs_for
from poskernel_core.analyses.patching.spec import (
    SHARE,
    PatchHeads,
    PatchParams,
    PatchPositions,
    PatchPositionsParams,
)
from poskernel_core.analyses.patching.views import no_behaviour, so_far
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.heads import head_name, layer_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, value_text
from poskernel_core.plotting.layout import quoted, visible
from poskernel_core.plotting.shades import diverging

METRICS: Final[dict[str, str]] = {
    "difference of two answers": "difference",
    "log probability of one answer": "log-probability",
    "loss of the clean prompt": "loss",
}
PARTS: Final[dict[str, str]] = {
    "whole output": "output",
    "pattern alone": "pattern",
    "values alone": "values",
}
EFFECT: Final = "effect"
DIRECTIONS: Final[dict[str, str]] = {
    "clean into changed": "clean-into-changed",
    "changed into clean": "changed-into-clean",
}


def draw(selection: Selection) -> None:
    """Draw the controls, the map of all heads, and one head or layer by position."""
    params = _choose(selection)
    if not params["clean"].strip() or not params["changed"].strip():
        st.info("Type two prompts of equally many tokens, a clean and a changed one.")
        return
    heads = results.fetch(PatchHeads, selection.run, PatchParams(**params))
    if heads is None:
        return
    _draw_prompts(heads)
    if why := no_behaviour(heads):
        say(f"{why} Choose other prompts or answers.")
        return
    effects = heads.only("effect", "attribution")
    grid = partial(_draw_grid, effects, selection)
    show("patch", effects, f"What each head's {params['what']} carries", grid)
    head, layer = selection.cell, f"L{layer_of(selection.cell)}"
    if choose_one("By position", ["the head", "all heads of its layer"], "patched") != "the head":
        head = layer
    asked = PatchPositionsParams(**params, head=head)
    if found := results.fetch(PatchPositions, selection.run, asked):
        both = {
            "parts": partial(figure_of, found.only("part_effect")),
            "positions": partial(figure_of, found.only("effect", "attribution")),
        }
        show("patch-positions", found, f"{head} by position", figures=both)


def _choose(selection: Selection) -> dict[str, Any]:
    """Draw the examples, the two prompts, the metric and what is put where."""
    pairs = pairs_for(selection.run.model.name)
    first, about = choose_preset(selection, pairs, _values, "pair")
    usual, params = _values(first, ""), {}
    for place, (name, label) in zip(
        st.columns(2), (("clean", "Clean prompt"), ("changed", "Changed prompt")), strict=True
    ):
        text = fitted_text(name, usual[name], MAX_CHARACTERS)
        params[name] = place.text_area(label, height=110, **text)
    one, two, three = st.columns([2, 1, 1], vertical_alignment="bottom")
    params["metric"] = METRICS[choose_one("Metric", METRICS, "metric", place=one)]
    hint = "one token, tried with a leading space too; empty: the likeliest after the prompt"
    for place, name, label, used in (
        (two, "answer", "Answer to the clean prompt", params["metric"] != "loss"),
        (three, "other_answer", "to the changed one", params["metric"] == "difference"),
    ):
        if used:
            key = name.replace("_", "")
            text = fitted_text(key, usual[key], 64)
            params[name] = place.text_input(label, help=hint, **text)
    one, two = st.columns(2)
    params["what"] = PARTS[choose_one("Put into the other run", PARTS, "what", place=one)]
    way = choose_one("Direction", DIRECTIONS, "way", place=two)
    about()
    return params | {"direction": DIRECTIONS[way]}


def _values(preset: Preset, cell: str) -> dict[str, Any]:
    """Return the values of all widgets for a pair of prompts."""
    return {
        "clean": preset.prompt,
        "changed": preset.params["changed"],
        "answer": preset.params["answer"],
        "otheranswer": preset.params["other_answer"],
        "metric": next(iter(METRICS)),
    }


def _draw_prompts(heads: Result) -> None:
    """Draw both prompts' tokens, aligned, and their metrics."""
    rows = {"clean": heads.words("tokens"), "changed": heads.words("changed_tokens")}
    pairs = enumerate(zip(*rows.values(), strict=True))
    names = [f"{at} ≠" if one != other else str(at) for at, (one, other) in pairs]
    table = pd.DataFrame([[*map(visible, row)] for row in rows.values()], [*rows], names)
    st.dataframe(table, key="aligned")
    told = ", ".join([heads.params["metric"] + " (nats)", *map(quoted, heads.words("answers"))])
    names_of = {"Clean prompt": "clean_metric", "Changed prompt": "changed_metric"}
    draw_metrics([(label, value_text(heads, name), told) for label, name in names_of.items()])


def _draw_grid(shown: Result, selection: Selection) -> None:
    """Draw every head's effect, or its estimate, and the largest; a click selects the head."""
    values, exact = so_far(shown), ~np.isnan(shown.values["effect"])
    estimated = ~exact & ~np.isnan(values)
    labels = [
        [
            f"{head_name(i, j)}: {brief(value)} ({'exact' if exact[i, j] else 'first order'})"
            for j, value in enumerate(row)
        ]
        for i, row in enumerate(values)
    ]
    marks = [["≈" if each else "" for each in row] for row in estimated]
    glyphs = [("≈", "first-order estimate")] if estimated.any() else []
    grid, beside = st.columns([3, 2])
    with grid:
        extras = Extras(marks=marks, glyphs=glyphs)
        draw_heads(diverging(values), labels, SHARE, selection, "patch-grid", extras)
    how = np.where(exact, "exact", "first order")
    table = heads_frame({EFFECT: values, "": how}).dropna()
    largest = table.sort_values(EFFECT, key=abs, ascending=False, kind="stable")[:ROWS_SHOWN]
    with beside:
        st.caption("The largest effects")
        linked_table(largest, "patch-largest", number_columns({EFFECT: SHARE}, "%.3f"))
