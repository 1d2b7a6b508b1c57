"""What makes a head's sink, as a figure and as a table."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import has
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.layout import LINE, MUTED, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, hatched
from poskernel_core.plotting.parts import part, title_of

PROPERTIES = {
    "standing_first": "standing first",
    "position_zero": "position 0",
    "start_token": "start token",
}
WAYS = {"key_effect": "through its key", "query_effect": "through the queries"}


def sink_anatomy_figure(head: Result) -> go.Figure:
    """Draw one head's effects as bars, or the sinks of all heads."""
    if not has(head, (), *PROPERTIES, *WAYS, "interaction"):
        return by_axes(head)
    together = zip(head.words("factors"), *part(head, "interaction"), strict=True)
    single, ways = (
        [(label, *part(head, name)) for name, label in names.items()]
        for names in (PROPERTIES, WAYS)
    )
    figure, labels = go.Figure(), []
    for name, (colour, pattern), bars in (
        ("effect of a property", (BLUE, ""), single),
        ("together only", (MUTED, "x"), together),
        ("how the start token acts", (VERMILLION, "/"), ways),
    ):
        shown = [(label, float(x), float(error)) for label, x, error in bars if np.isfinite(x)]
        labels += [label for label, _, _ in shown]
        figure.add_bar(
            x=[x for _, x, _ in shown],
            y=[label for label, _, _ in shown],
            error_x={"array": [e for *_, e in shown], "thickness": 2, "width": 5, "color": MUTED},
            name=name,
            orientation="h",
            marker=hatched(colour, pattern, size=8, solidity=0.2),
            customdata=[measured(x, error) for _, x, error in shown],
            hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
        )
    style(figure, x_title="effect ± 1 s.e. (share)", y_title="", height=150 + 34 * len(labels))
    figure.update_layout(bargap=0.35, barmode="overlay")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(zeroline=True, zerolinecolor=LINE, zerolinewidth=1.5)
    at = head.chosen.get("layer"), head.chosen.get("head")
    return set_title(legend_under_title(figure), title_of(*at, "what makes the first key a sink"))


def arrangement_rows(head: Result) -> list[list[str]]:
    """Return a row for each arrangement: in words, and the attention to its two front keys."""
    words, attention = head.words("arrangements"), head.values["attention"]
    return [[word, *(f"{n:.2f}" for n in row)] for word, row in zip(words, attention, strict=True)]
