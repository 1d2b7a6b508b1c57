"""Interventions: one prompt, clean and with one change."""

from functools import partial

import numpy as np
import streamlit as st

from pages.interventions import between, circuit
from pages.interventions.controls import choose_intervention, missing
from pages.interventions.many_texts import draw_many_texts
from pages.shared.cards.figure import chart
from pages.shared.cards.metric import draw_metrics
from pages.shared.cards.show import show
from pages.shared.choices.fit import choose_one, fitted_flag
from pages.shared.grid.measure_grid import draw_heads
from pages.shared.jobs import results
from pages.shared.selection.head_link import page_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.selection.zoom import choose_zoom
from poskernel_core.analyses.interventions.figures import PATTERNS
from poskernel_core.analyses.interventions.spec import (
    Averaging,
    AveragingParams,
    Intervention,
    InterventionParams,
)
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import value_text
from poskernel_core.export.notebook import MODES as OF_PAIRS
from poskernel_core.plotting.shades import diverging


def draw_mass_grid(masses: Result, selection: Selection) -> None:
    """Draw every head's change; a click selects the head on every page."""
    change = masses.values["previous_mass_change"]
    clean, changed = (masses.values[f"{run}_previous_mass"] for run in ("clean", "changed"))

    def label(i: int, j: int) -> str:
        return (
            f"{head_name(i, j)}: attention to the previous token {clean[i, j]:.3f} clean, "
            f"{changed[i, j]:.3f} changed"
        )

    labels = [[label(i, j) for j in range(len(row))] for i, row in enumerate(change)]
    unit = "change of the attention to the previous token (share)"
    draw_heads(diverging(change), labels, unit, selection, "mass-grid")


def draw_averaging(selection: Selection, layer: int | None, keep: int) -> None:
    """Draw the loss on windows of the corpus against the size of the groups, if asked for."""
    if st.toggle(
        "Measure the loss on 16 windows of the corpus, for every size of group",
        **fitted_flag("avgtable"),
    ):
        result = results.fetch(Averaging, selection.run, AveragingParams(layer=layer, keep=keep))
        if result is not None:
            show("averaging", result.only("loss", "loss_change"), "Loss on the corpus")


PLACE = Place(
    "Interventions",
    "Change one thing inside the model, and see the effect.",
    needs="weights",
    stored=True,
    questions=(
        "intervention",
        "averaging",
        "patch-heads",
        "patch-positions",
        "ablate-heads",
        "edges",
        "faithfulness",
    ),
)

SHOWN_WHOLE = 64
MODES = ("One prompt, one change", *OF_PAIRS)


def draw_numbers(result: Result) -> None:
    """Draw the effects of the change as numbers."""
    loss = "per token of the prompt; lower is better"
    numbers = (
        ("Loss, clean (nats)", "mean_clean_loss", loss),
        ("Loss, changed (nats)", "mean_changed_loss", loss),
        (
            "Loss change (nats)",
            "loss_change",
            "its error is over positions; above 0, the change did harm",
        ),
        ("KL, last (nats)", "last_kl", "of the next-token distribution, clean to changed"),
        ("KL, mean (nats)", "mean_kl", "over all positions of the prompt; 0: no effect"),
    )
    draw_metrics([(label, value_text(result, name), meaning) for label, name, meaning in numbers])


def draw_patterns(selection: Selection, result: Result) -> None:
    """Draw the selected head's attention, clean, changed, and their difference."""
    if not np.nan_to_num(result.values["difference"]).any():
        st.info(
            f"{selection.cell} attends as before: the change does not reach it. Select the changed "
            "head, or one in a later layer."
        )
    windows: dict[str, tuple[int, int] | None] = {"whole": None}
    if (length := len(result.values["clean"])) > SHOWN_WHOLE and (zoom := choose_zoom(length)):
        windows["window"] = zoom
    patterns = result.only(*PATTERNS)
    for name, window in windows.items():
        figures = {
            f"{name}-{pattern}": partial(figure_of, patterns, name=pattern, zoom=window)
            for pattern in PATTERNS
        }
        title = f"{selection.cell} on the prompt" if window is None else "The window"
        show(f"patterns-{name}", patterns, title, figures=figures)


def draw_effects(selection: Selection, result: Result) -> None:
    """Draw the next token's probabilities, and every head's attention to the previous token."""
    left, right = st.columns(2)
    show("next", result.only("clean_probability", "changed_probability"), column=left)
    masses = result.only("previous_mass_change", "clean_previous_mass", "changed_previous_mass")
    grid = partial(draw_mass_grid, masses, selection)
    show("masses", masses, "Attention to the previous token", grid, column=right)

    losses = result.only("clean_loss", "changed_loss", "kl")
    along = {"losses": partial(figure_of, losses), "kl": partial(figure_of, losses.only("kl"))}

    def draw() -> None:
        for name, figure in along.items():
            chart(name, figure, titled=True)

    show("loss", losses, "Along the prompt", draw, figures=along)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    modes = OF_PAIRS if selection.located.away else MODES  # of which something may be stored
    if (mode := choose_one("Show", modes, "mode")) != MODES[0]:
        (between if mode == MODES[1] else circuit).draw(selection)
        return
    if selection.located.geometry.scheme == "rotary":
        link = page_link("rotary_spectrum", "Spectrum")
        st.markdown(f"To freeze or remove bands of wavelengths over whole texts, open {link}.")
    prompt, params = choose_intervention(selection)
    with st.container():  # so that widgets below keep their places
        if wanted := missing(params):
            st.info(wanted, icon=":material/touch_app:")
        elif prompt is not None:
            intervention = InterventionParams(head=selection.cell, text=prompt, **params)
            if result := results.fetch(Intervention, selection.run, intervention):
                draw_numbers(result)
                draw_effects(selection, result)
                draw_patterns(selection, result)
    if params["change"] == "average":
        draw_averaging(selection, params["layer"], params["keep"])
    draw_many_texts(selection)
