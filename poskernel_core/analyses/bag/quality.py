"""Figures of the bag's prediction of the heads' joint output, and of the heads' kernel."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.plotting.curves import Look, add_curve
from poskernel_core.plotting.layout import few_lines, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, CATEGORICAL, fade

WORST = -1.0  # a lower R² is drawn as a triangle at the lower edge; hover shows its value
ROW = 0.07  # height of a row of triangles
SHOWN = 4  # variants of the bag drawn at first: the last ones; the very last is the bag itself
QUALITY = {
    "bag_r2": "R² of the heads' output (share of variance)",
    "bag_centred_r2": "R², predictions centred (share of variance)",
    "bag_cosine": "cosine of predicted and true output",
}


def quality(result: Result, value: str = "bag_centred_r2") -> go.Figure:
    """Draw how well each variant of the bag predicts the heads' joint output, by position.

    Colours show the scale, dashes the kernel. Values below -1 are marked under the axis, in one row
    per variant.
    """
    means, errors, query = result.values[value], result.errors[value], result.coordinates["query"]
    names, figure, rows = result.words("variants"), go.Figure(), 0
    for mean, error, name, one in zip(means, errors, names, _looks(names), strict=True):
        add_curve(
            figure, query, mean, error, name=name, look=one, where="position %{x}", floor=WORST
        )
        bands = {"fill": "tonexty", "legendgroup": name}
        figure.update_traces(fillcolor=fade(one.colour, 0.15), selector=bands)
        figure.data[-1].update(line_width=4.5 if one.colour == BLUE else 2, marker_size=5)
        if (mean < WORST).any():
            rows += 1
            _add_below(figure, query[mean < WORST], mean[mean < WORST], rows, one, name)
    low = max(WORST, float(np.nanmin(np.append(means - np.nan_to_num(np.abs(errors)), 1.0))))
    style(figure, x_title="query position n (tokens)", y_title=QUALITY[value], height=460)
    figure.update_yaxes(range=[low - 0.03 * (1 - low) - ROW * (rows + 0.3 * (rows > 0)), 1.02])
    if rows:
        figure.update_yaxes(tickvals=[-1, -0.5, 0, 0.5, 1])
    few_lines(figure, SHOWN, last=True)
    return legend_under_title(figure)


def _add_below(
    figure: go.Figure, query: np.ndarray, mean: np.ndarray, row: int, look: Look, name: str
) -> None:
    """Draw a row of triangles where a curve is below the axis; hover shows the values."""
    figure.add_scatter(
        x=query,
        y=np.full(len(query), WORST - ROW * row),
        mode="markers",
        name=f"{name}, below",
        legendgroup=name,
        showlegend=False,
        customdata=mean,
        marker={
            "symbol": look.symbol.replace("circle", "triangle-down"),
            "size": 7,
            "color": look.colour,
        },
        hovertemplate=f"<b>{name}</b>, position %{{x}}<br>%{{customdata:.3g}}<extra></extra>",
    )


def _looks(names: list[str]) -> list[Look]:
    pairs = [name.partition(", ")[::2] for name in names]
    kernels, scales = (list(dict.fromkeys(column)) for column in zip(*pairs, strict=True))
    dashes, symbols = ("dash", "solid", "dot"), ("circle-open", "circle", "circle-cross")
    return [
        Look(CATEGORICAL[scales.index(scale) % 4], dashes[at % 3], symbols[at % 3])
        for kernel, scale in pairs
        for at in [kernels.index(kernel)]
    ]


def mean_kernel(result: Result) -> go.Figure:
    """Draw the heads' mean kernel from the query position, over the offset."""
    kernel = result.values["kernel"][::-1]
    figure = go.Figure().add_scatter(
        x=np.arange(len(kernel)),
        y=kernel,
        mode="lines+markers" if len(kernel) <= 64 else "lines",
        line={"color": BLUE, "width": 2.2},
        name="mean kernel",
        fill="tozeroy",
        fillcolor=fade(BLUE, 0.2),
        hovertemplate="offset %{x}<br>K %{y:.3g}<extra></extra>",
    )
    style(figure, x_title="offset n − i (tokens)", y_title="share of attention", height=340)
    top = float(kernel[:-1].max(initial=0.0))
    high = kernel[-1] > 2.5 * top > 0  # key 0, usually a start token, would flatten the rest
    figure.update_yaxes(range=[0, 1.2 * (top if high else kernel.max())])
    if high:
        figure.add_annotation(
            x=len(kernel) - 1,
            y=1.12 * top,
            text=f"key 0: {kernel[-1]:.3g}",
            showarrow=False,
            xanchor="right",
            xshift=-6,
        )
    heads = result.words("heads")
    who = ", ".join(heads) if len(heads) <= 4 else f"{len(heads)} heads"
    return set_title(figure, f"Mean kernel of {who} from position {len(kernel) - 1}")
