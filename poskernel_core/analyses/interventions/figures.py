"""What a change does to predictions, losses and attention, as figures."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from poskernel_core.common.attention import only_visible
from poskernel_core.common.result import Result
from poskernel_core.plotting.curves import Look, curves
from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import LINE, THIRD, quoted, set_height, set_title, style
from poskernel_core.plotting.palette import BLUE, DIVERGING, VERMILLION
from poskernel_core.plotting.patterns import difference_map, stage_map

FEW = 13
"""Positions up to which each has a tick."""

PerCandidate = Float[np.ndarray, " candidate"]
PerPosition = Float[np.ndarray, " pos"]
PerGroup = Float[np.ndarray, " group"]


def next_token_bars(tokens: list[str], clean: PerCandidate, changed: PerCandidate) -> go.Figure:
    """Probability (0 to 1, drawn in %) of each candidate, before and after; likeliest on top."""
    for bars in (clean, changed):
        if bars.shape != (len(tokens),):
            raise ValueError(f"expected {len(tokens)} probabilities, received {[*bars.shape]}")
    order = np.argsort(-clean, kind="stable")
    rows = np.arange(len(tokens))
    names = [quoted(tokens[index]) for index in order]
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
            customdata=names,
            marker={
                "color": colour,
                "pattern": {
                    "shape": shape,
                    "fillmode": "overlay",
                    "size": 6,
                    "fgcolor": "rgba(255,255,255,0.7)",
                },
                "line_width": 0,
            },
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
        height=110 + 46 * len(tokens),
    )
    figure.update_layout(barmode="group", bargap=0.28)
    figure.update_xaxes(range=[0, 1.2 * top])
    return figure.update_yaxes(tickvals=rows, ticktext=names, showgrid=False, autorange="reversed")


def percent(probability: float) -> str:
    """A probability as a short percentage: 99.1 %, 0.042 %, < 0.01 %."""
    share = 100 * probability
    return "< 0.01 %" if 0 < share < 0.01 else f"{share:.3g} %" if share >= 1 else f"{share:.2g} %"


def loss_by_position(
    positions: Int[np.ndarray, " pos"], clean: PerPosition, changed: PerPosition, *, title: str
) -> go.Figure:
    """The loss (nats per token) at each position, before and after; NaN leaves a gap."""
    figure = curves(
        positions,
        {"clean": (clean, None), "changed": (changed, None)},
        x_title="position (tokens)",
        y_title="loss (nats per token)",
        where="position %{x}",
        looks=(Look(BLUE), Look(VERMILLION, "dot", "square")),
    )
    return _along(figure, positions, title)


def kl_by_position(positions: Int[np.ndarray, " pos"], kl: PerPosition, *, title: str) -> go.Figure:
    """How far the prediction at each position moves: KL(clean || changed), in nats."""
    figure = curves(
        positions,
        {"KL divergence": (kl, None)},
        x_title="position (tokens)",
        y_title="KL(clean ‖ changed) (nats)",
        where="position %{x}",
        looks=(Look(VERMILLION),),
    )
    return _along(figure, positions, title)


def _along(figure: go.Figure, positions: Int[np.ndarray, " pos"], title: str) -> go.Figure:
    """Whole positions alone have a tick, and the values begin at 0."""
    figure.update_xaxes(dtick=1 if len(positions) <= FEW else None)
    return set_title(figure.update_yaxes(rangemode="tozero"), title)


def loss_by_group(
    groups: Int[np.ndarray, " group"], loss: PerGroup, error: PerGroup, *, title: str
) -> go.Figure:
    """The loss (nats per token) +- 1 standard error over the group size; a group of 1 is clean."""
    if not groups.shape == loss.shape == error.shape:
        raise ValueError(
            f"expected one loss and one error for each of {len(groups)} groups, "
            f"received {len(loss)} and {len(error)}"
        )
    order = np.argsort(groups)
    clean = groups[order] == 1
    figure = go.Figure()
    if clean.any():
        figure.add_hline(
            y=float(loss[order][clean][0]),
            line={"color": LINE, "width": 1.5, "dash": "dot"},
            annotation={"text": "clean", "font_size": 12},
            annotation_position="bottom right",
        )
    figure.add_scatter(
        x=groups[order],
        y=loss[order],
        mode="lines+markers",
        name="loss",
        line={"color": VERMILLION, "width": 2},
        error_y={"array": error[order], "thickness": 1.4, "width": 4},
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
    ticks = groups[order]
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick}" for tick in ticks])
    return set_title(figure, title)


PATTERNS = ("clean", "changed", "difference")


def pattern_figure(found: Result, name: str, zoom: tuple[int, int] | None) -> go.Figure:
    """The observed head's attention in an intervention: clean, changed or their difference."""
    values = found.values[name].astype(np.float64)
    first, stop = zoom or (0, len(values))
    values = only_visible(values[first:stop, first:stop])
    tokens = found.words("tokens") or None
    if name == "difference":
        reach = max(float(np.nanmax(np.abs(values))), 1e-6)
        figure = difference_map(
            values,
            title="Difference",
            first_query=first,
            first_key=first,
            tokens=tokens,
            span=(-reach, reach),
            unit="changed − clean",
        )
    else:
        figure = stage_map(
            values,
            title=name.capitalize(),
            first_query=first,
            first_key=first,
            tokens=tokens,
            span=(0.0, 1.0),
            unit="probability",
        )
    return set_height(figure, THIRD)


def bars_figure(found: Result) -> go.Figure:
    """Next-token probabilities before and after."""
    return next_token_bars(
        found.words("candidates"),
        found.values["clean_probability"],
        found.values["changed_probability"],
    )


def losses_figure(found: Result) -> go.Figure:
    """The loss of every token of the prompt, before and after."""
    clean = found.values["clean_loss"]
    changed = found.values["changed_loss"]
    return loss_by_position(np.arange(len(clean)), clean, changed, title="Loss of each token")


def kl_figure(found: Result) -> go.Figure:
    """How far the prediction moved at every position."""
    kl = found.values["kl"]
    return kl_by_position(np.arange(len(kl)), kl, title="KL(clean ‖ changed)")


def averaging_figure(found: Result) -> go.Figure:
    """The loss against the size of the groups; errors are those of the paired difference."""
    where = "in W_pos" if found.params["layer"] is None else f"before layer {found.params['layer']}"
    return loss_by_group(
        found.coordinates["group"],
        found.values["loss"],
        found.errors["loss_change"],
        title=f"Positions averaged {where}",
    )


def mass_figure(masses: Result) -> go.Figure:
    """The change of every head's attention to the previous token [layer, head]."""
    change = masses.values["previous_mass_change"]
    reach = max(0.01, float(np.abs(np.nan_to_num(change)).max()))
    return head_map(change, "change of P(1)", (-reach, reach), DIVERGING)
