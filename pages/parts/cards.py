"""What surrounds every figure: title, how to read it, formula, provenance, downloads."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pages.parts.figures.layout import chart_config
from poskernel_core.analyses.base import Result

__all__ = ["Explanation", "card", "provenance_line"]


class Explanation:
    """The words beside a figure: how to read it, and the formula behind it with its source."""

    def __init__(self, reading: str, formula: str) -> None:
        self.reading = reading
        self.formula = formula


def card(
    name: str,
    figure: go.Figure | None,
    result: Result,
    words: Explanation,
    title: str = "",
    draw: Callable[[], None] | None = None,
) -> None:
    """Draw one figure with everything around it.

    ``name`` is unique on the page and names the files; ``draw`` draws what is not a Plotly figure,
    and ``figure`` then is what the downloads hold.
    """
    with st.container(border=True, key=f"card-{name}"):
        if title:
            st.subheader(title, anchor=name)
        if draw is not None:
            draw()
        elif figure is not None:
            image = st.session_state.get("image", "svg")
            config = chart_config(name)
            config["toImageButtonOptions"]["format"] = image
            st.plotly_chart(figure, key=f"figure-{name}", config=config)
        st.markdown(f":small[{words.reading}]")
        formula, download, about = st.columns([1, 1, 1])
        with formula.popover("Formula", icon=":material/function:", width="stretch"):
            st.markdown(words.formula)
        with download.popover("Download", icon=":material/download:", width="stretch"):
            _downloads(name, figure, result)
        with about.popover("Provenance", icon=":material/receipt_long:", width="stretch"):
            st.markdown(provenance_line(result))
            st.json(result.as_json()["run"], expanded=False)


def provenance_line(result: Result) -> str:
    """Return where a result comes from, in words."""
    run = result.provenance
    skip = result.params.get("skip")
    revision = run["revision"] or "main"
    error = run["dtype_error"]
    precision = run["dtype"] + (f" (relative error {error:.1e})" if error else "")
    return (
        f"**{run['model']}**, revision {revision}, fingerprint `{run['model_fingerprint'][:12]}`. "
        f"Corpus **{run['corpus']}**: {run['windows']} windows of {run['context']} tokens, start "
        f"token {'first' if run['start_token'] else 'absent'}, seed {run['seed']}. "
        + ("" if skip is None else f"First {skip} keys skipped. ")
        + f"{precision} on {run['device']}, {run['date']}."
    )


def _downloads(name: str, figure: go.Figure | None, result: Result) -> None:
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
    if figure is not None:
        st.download_button(
            "HTML (stand-alone figure)",
            lambda: figure.to_html(include_plotlyjs=True, config=chart_config(name)),
            f"{file}.html", on_click="ignore", key=f"html-{name}", width="stretch",
        )  # fmt: skip
    st.caption("The camera above a figure saves it as an image.")


def to_npz(result: Result) -> bytes:
    """Return a result's arrays, errors and provenance as the bytes of a .npz file."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {**result.values, **result.coordinates}
    arrays |= {f"{name}_error": array for name, array in result.errors.items()}
    arrays["about"] = np.array(json.dumps(result.as_json()["run"]))
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def to_csv(result: Result) -> str:
    """Return a result as a long table: one row per element, one column per axis and value.

    Values with fewer axes than the largest are repeated along the axes that they lack.
    """
    axes = max(result.axes.values(), key=len)
    shapes = {
        a: n
        for name, v in result.values.items()
        for a, n in zip(result.axes[name], v.shape, strict=True)
    }
    columns: dict[str, np.ndarray] = {}
    grids = np.meshgrid(
        *[result.coordinates.get(axis, np.arange(shapes[axis])) for axis in axes], indexing="ij"
    )
    columns |= {axis: grid.ravel() for axis, grid in zip(axes, grids, strict=True)}
    full = tuple(shapes[axis] for axis in axes)
    for name, value in result.values.items():
        columns[f"{name} ({result.units[name]})"] = _spread(
            _worded(result, name, value), result.axes[name], axes, full
        )
        if name in result.errors:
            columns[f"{name} standard error"] = _spread(
                result.errors[name], result.axes[name], axes, full
            )
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return table.getvalue()


def _worded(result: Result, name: str, value: np.ndarray) -> np.ndarray:
    if name not in result.labels:
        return value
    return np.array([*result.labels[name], ""], dtype=object).take(value)


def _spread(
    value: np.ndarray, has: tuple[str, ...], axes: tuple[str, ...], full: tuple[int, ...]
) -> np.ndarray:
    shape = [size if axis in has else 1 for axis, size in zip(axes, full, strict=True)]
    return np.broadcast_to(np.asarray(value).reshape(shape), full).ravel()
