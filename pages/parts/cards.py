"""What surrounds every figure: title, how to read it, formula, provenance, downloads."""

from __future__ import annotations

import json
from collections.abc import Callable

import plotly.graph_objects as go
import streamlit as st

from pages.parts.figures.layout import chart_config, without_title
from pages.parts.plain import plain
from poskernel_core.analyses.base import Result
from poskernel_core.exports import to_csv, to_npz

__all__ = ["Explanation", "card", "chart", "provenance_line"]


class Explanation:
    """The words beside a figure: how to read it, and the formula behind it with its source."""

    def __init__(self, reading: str, formula: str) -> None:
        self.reading = reading
        self.formula = formula


def card(
    name: str,
    figure: Callable[[], go.Figure],
    result: Result,
    words: Explanation,
    title: str = "",
    draw: Callable[[], None] | None = None,
) -> None:
    """Draw one figure with everything around it.

    ``name`` is unique on the page and names the files; ``draw`` draws what is not a Plotly figure,
    and ``figure`` is then made for the download only.
    """
    with st.container(border=True, key=f"card-{name}"):
        if title:
            st.subheader(title, anchor=name)
        if draw is not None:
            draw()
        else:
            image = st.session_state.get(f"image-{name}", "svg")
            chart(name, without_title(figure()) if title else figure(), image)
        st.markdown(f":small[{words.reading}]")
        row = st.container(horizontal=True, gap="small")
        with row.popover("Formula", icon=":material/function:", width="content"):
            st.markdown(words.formula)
        with row.popover("Download", icon=":material/download:", width="content"):
            _downloads(name, figure, result)
            if draw is None:
                _image_format(name)
        with row.popover("Provenance", icon=":material/receipt_long:", width="content"):
            st.markdown(provenance_line(result))
            st.json(result.as_json()["run"], expanded=False)


def chart(name: str, figure: go.Figure, image: str = "svg") -> None:
    """Draw one Plotly figure in the page's colours; its camera saves a file of that name."""
    config = chart_config(name)
    config["toImageButtonOptions"]["format"] = image
    st.plotly_chart(_legible(figure), key=f"figure-{name}", config=config)


def _legible(figure: go.Figure) -> go.Figure:
    """Give axis titles, ticks and legend a colour that reads on the page's theme, in place."""
    ink = "#c9d3da" if st.context.theme.type == "dark" else "#3b4650"
    figure.update_layout(legend_font_color=ink)
    figure.update_xaxes(title_font_color=ink, tickfont_color=ink)
    figure.update_yaxes(title_font_color=ink, tickfont_color=ink)
    bar = {"colorbar_tickfont_color": ink, "colorbar_title_font_color": ink}
    figure.update_traces(bar, selector={"type": "heatmap"})
    return figure


def provenance_line(result: Result) -> str:
    """Return where a result comes from, in words."""
    run = result.provenance
    skip = result.params.get("skip")
    revision = run["revision"] or "main"
    error = run["dtype_error"]
    precision = run["dtype"] + (f" (relative error {error:.1e})" if error else "")
    return (
        f"**{plain(run['model'])}**, revision {plain(revision)}, "
        f"fingerprint `{run['model_fingerprint'][:12]}`. Corpus **{plain(run['corpus'])}**: "
        f"{run['windows']} windows of {run['context']} tokens, "
        f"start token {'first' if run['start_token'] else 'absent'}, seed {run['seed']}. "
        + ("" if skip is None else f"First {skip} keys skipped. ")
        + f"{precision} on {run['device']}, {run['date']}."
    )


def _downloads(name: str, figure: Callable[[], go.Figure], result: Result) -> None:
    file = f"{result.provenance['model'].replace('/', '_')}-{name}"
    for label, suffix, make in (
        ("CSV", "csv", lambda: to_csv(result)),
        ("NPZ", "npz", lambda: to_npz(result)),
        ("JSON", "json", lambda: json.dumps(result.as_json())),
    ):
        st.download_button(
            label, make, f"{file}.{suffix}", on_click="ignore", key=f"{suffix}-{name}",
            width="stretch",
        )  # fmt: skip
    st.download_button(
            "HTML (stand-alone figure)",
            lambda: figure().to_html(
                include_plotlyjs=True, config=chart_config(name), auto_play=False
            ),
            f"{file}.html", on_click="ignore", key=f"html-{name}", width="stretch",
        )  # fmt: skip


def _image_format(name: str) -> None:
    st.segmented_control(
        "The camera above the figure saves", ["svg", "png"], default="svg", required=True,
        key=f"image-{name}",
    )  # fmt: skip
