"""Figures of an intervention's effect on predictions, losses and attention."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.pictures import Rows, draw_lines
from poskernel_core.common.attention import only_visible
from poskernel_core.common.result import Result
from poskernel_core.plotting.curves import Look
from poskernel_core.plotting.head_map import effect_map
from poskernel_core.plotting.layout import LINE, THIRD, quoted, set_height, set_title, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, hatched
from poskernel_core.plotting.patterns import stage_map

PATTERNS = ("clean", "changed", "difference")


def patterns(
    result: Result, name: str = "difference", zoom: tuple[int, int] | None = None
) -> go.Figure:
    """Draw the observed head's attention in an intervention: clean, changed or their difference."""
    values = result.values[name].astype(np.float64)
    first, stop = zoom or (0, len(values))
    values = only_visible(values[first:stop, first:stop])
    tokens = result.words("tokens") or None
    differs = name == "difference"
    reach = max(float(np.nanmax(np.abs(values))), 1e-6)
    figure = stage_map(
        values,
        title=name.capitalize(),
        first_query=first,
        first_key=first,
        tokens=tokens,
        diverging=differs,
        span=(-reach, reach) if differs else (0.0, 1.0),
        unit="changed − clean" if differs else "probability",
    )
    return set_height(figure, THIRD)


def next_tokens(result: Result) -> go.Figure:
    """Draw the probability (in %) of each candidate, before and after; the likeliest on top."""
    clean, changed = (result.values[f"{run}_probability"] for run in ("clean", "changed"))
    order = np.argsort(-clean, kind="stable")
    words = [quoted(result.words("candidates")[index]) for index in order]
    rows = np.arange(len(words))
    figure = go.Figure()
    for name, share, colour, shape in (
        ("clean", clean[order], BLUE, ""),
        ("changed", changed[order], VERMILLION, "/"),
    ):
        figure.add_bar(
            x=100 * share,
            y=rows,
            orientation="h",
            name=name,
            customdata=words,
            marker=hatched(colour, shape, size=6),
            text=[percent(value) for value in share],
            textposition="outside",
            cliponaxis=False,
            hovertemplate=f"<b>%{{customdata}}</b>, {name}: %{{x:.4g}} %<extra></extra>",
        )
    top = 100 * float(max(clean.max(), changed.max()))
    style(
        figure,
        x_title="probability of the next token (%)",
        y_title="",
        height=110 + 46 * len(words),
    )
    figure.update_layout(barmode="group", bargap=0.28)
    figure.update_xaxes(range=[0, 1.2 * top])
    return figure.update_yaxes(tickvals=rows, ticktext=words, showgrid=False, autorange="reversed")


def percent(probability: float) -> str:
    """Return a probability as a short percentage: 99.1 %, 0.042 %, < 0.01 %."""
    share = 100 * probability
    return "< 0.01 %" if 0 < share < 0.01 else f"{share:.3g} %" if share >= 1 else f"{share:.2g} %"


def losses(result: Result) -> go.Figure:
    """Draw the loss of every token of the prompt, before and after."""
    rows: Rows = {name: (result.values[f"{name}_loss"], None) for name in ("clean", "changed")}
    return _along(rows, "loss (nats per token)", Look(BLUE), Look(VERMILLION, "dot", "square"))


def kl(result: Result) -> go.Figure:
    """Draw the KL divergence of the predictions at every position."""
    rows: Rows = {"KL divergence": (result.values["kl"], None)}
    return _along(rows, "KL(clean ‖ changed) (nats)", Look(VERMILLION))


def _along(rows: Rows, unit: str, *looks: Look) -> go.Figure:
    positions = np.arange(len(next(iter(rows.values()))[0]))
    figure = draw_lines(positions, rows, over="pos", unit=unit, looks=looks)
    return figure.update_yaxes(rangemode="tozero")


def averaging(result: Result) -> go.Figure:
    """Draw the loss against the group size; errors are those of the paired difference.

    A group of 1 is the clean run.
    """
    order = np.argsort(result.coordinates["group"])
    groups = result.coordinates["group"][order]
    loss, error = result.values["loss"][order], result.errors["loss_change"][order]
    clean = groups == 1
    figure = go.Figure()
    if clean.any():
        figure.add_hline(
            y=float(loss[clean][0]),
            line={"color": LINE, "width": 1.5, "dash": "dot"},
            annotation={"text": "clean", "font_size": 12},
            annotation_position="bottom right",
        )
    figure.add_scatter(
        x=groups,
        y=loss,
        mode="lines+markers",
        name="loss",
        line={"color": VERMILLION, "width": 2},
        error_y={"array": error, "thickness": 1.4, "width": 4},
        marker={
            "size": 11,
            "color": np.where(clean, BLUE, VERMILLION),
            "symbol": np.where(clean, "diamond", "circle"),
        },
        hovertemplate="<b>groups of %{x}</b><br>%{y:.4f} ± %{error_y.array:.2g} nats"
        "<extra></extra>",
    )
    style(
        figure,
        x_title="positions averaged together, g (tokens, log scale)",
        y_title="loss (nats per token)",
    )
    figure.update_layout(showlegend=False)
    figure.update_xaxes(type="log", tickvals=groups, ticktext=[f"{size}" for size in groups])
    where = (
        "in W_pos" if result.params["layer"] is None else f"before layer {result.params['layer']}"
    )
    return set_title(figure, f"Positions averaged {where}")


def mass_changes(result: Result) -> go.Figure:
    """Draw the change of every head's attention to the previous token [layer, head]."""
    change = result.values["previous_mass_change"]
    return effect_map(change, least=0.01, unit="change of P(1)", hover_text=": %{z:.3f}")
