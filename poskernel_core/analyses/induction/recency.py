"""Several candidates after the same token: which of them is predicted, and attended to.

And one share of attention for every head, such as the induction score.
"""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int, Num

from poskernel_core.plotting.curves import Look, add_curve, look
from poskernel_core.plotting.layout import MUTED, legend_under_title, set_title, style
from poskernel_core.plotting.palette import SCALE
from poskernel_core.plotting.role_maps import letter, share_bar

FEW = 32  # up to this many keys, the cells of a map stand apart, and candidates have their letter
PerSecond = Float[np.ndarray, " second"]
PerPair = Float[np.ndarray, "second pair"]


def candidate_curves(
    seconds: Int[np.ndarray, " second"],
    values: PerPair,
    errors: PerPair,
    names: list[str],
    *,
    title: str,
    y_title: str,
    other: tuple[PerSecond, PerSecond] | None = None,
) -> go.Figure:
    """One curve per candidate over the position of the last pair's [A], with error bars.

    `other` = (mean, standard error) of the other random tokens, grey and dotted.
    """
    if values.shape != errors.shape or values.shape != (len(seconds), len(names)):
        raise ValueError(
            f"expected [{len(seconds)} rows, {len(names)} candidates], received "
            f"{[*values.shape]} and errors {[*errors.shape]}"
        )
    figure = go.Figure()
    where = "second [A] at %{x}" if len(names) == 2 else "last pair at %{x}"
    for index, name in enumerate(names):
        add_curve(
            figure,
            seconds,
            values[:, index],
            errors[:, index],
            name=name,
            look=look(index),
            where=where,
            band=False,
        )
    if other is not None:
        add_curve(
            figure,
            seconds,
            *other,
            name="other random tokens (mean)",
            look=Look(MUTED, "dot", "circle-open"),
            where=where,
            band=False,
        )
    style(figure, x_title="position of the last pair's [A] (tokens)", y_title=y_title)
    figure.update_xaxes(dtick=1 if len(seconds) <= 16 else None)
    figure.update_yaxes(rangemode="tozero")
    return set_title(legend_under_title(figure), title)


def last_rows_map(
    seconds: Int[np.ndarray, " second"],
    rows: Float[np.ndarray, "second key"],
    errors: Float[np.ndarray, "second key"],
    roles: list[list[str]],
    *,
    title: str,
) -> go.Figure:
    """Attention of the last [A] to each key (x) for each position of the last pair (y).

    `roles` [second][key] say what stands where; candidates are marked with their letter.
    """
    if rows.shape != errors.shape or [len(row) for row in roles] != [rows.shape[1]] * len(seconds):
        raise ValueError(
            f"expected [{len(seconds)} rows, keys] of attention, errors and roles, "
            f"received {[*rows.shape]}, {[*errors.shape]}, {len(roles)}"
        )
    few = rows.shape[1] <= FEW
    letters = [["" if role == "[A]" else letter(role) for role in row] for row in roles]
    top = float(rows.max())
    figure = go.Figure(
        go.Heatmap(
            z=rows.astype(np.float32),
            y=seconds,
            zmin=0,
            zmax=top,
            colorscale=SCALE,
            text=letters if few else None,
            texttemplate="%{text}" if few else None,
            textfont_size=12,
            xgap=1 if few else 0,
            ygap=1 if few else 0,
            customdata=errors.astype(np.float32),
            hovertemplate="last pair at %{y}, key %{x}"
            "<br><b>%{z:.3g}</b> ± %{customdata:.2g}<extra></extra>",
        )
    )
    style(
        figure,
        x_title="key position i (tokens)",
        y_title="position of the last pair's [A]",
        height=420,
    )
    figure.update_xaxes(showgrid=False, dtick=1 if rows.shape[1] <= 13 else None)
    figure.update_yaxes(
        showgrid=False, autorange="reversed", dtick=1 if len(seconds) < 13 else None
    )
    return set_title(share_bar(figure, top), title)


def head_map(
    z: Float[np.ndarray, "layer head"],
    extra: list[Num[np.ndarray, "layer head"]],
    hover: str,
    title: str,
) -> go.Figure:
    """One share of attention per head as a heat map; `extra` is for hover."""
    if z.ndim != 2:
        raise ValueError(f"expected a value for every layer and head, received {[*z.shape]}")
    top = max(float(np.nanmax(z)), 1e-3)
    cells = go.Heatmap(
        z=z,
        zmin=0,
        zmax=top,
        colorscale=SCALE,
        xgap=1,
        ygap=1,
        customdata=np.dstack(extra),
        hovertemplate=f"<b>L%{{y}}H%{{x}}</b><br>{hover}<extra></extra>",
    )
    figure = style(
        go.Figure(cells), x_title="head", y_title="layer", height=min(190 + 34 * len(z), 900)
    )
    figure.update_xaxes(dtick=1 if z.shape[1] <= 16 else 4, showgrid=False)
    figure.update_yaxes(dtick=1 if len(z) <= 16 else 4, autorange="reversed", showgrid=False)
    return set_title(share_bar(figure, top), title)
