"""A static site of a model's results: the grid of all heads, and a page for each.

No server and no request to anywhere: the files can be opened from a disk, or put on any host of
static files. A head's page is ``heads/L0H3.html``, its figures ``#kernel``, ``#diagonals`` and
``#sink``; a measure of the grid is ``index.html#measure=...``.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.offline import get_plotlyjs

from poskernel_core import __version__
from poskernel_core.analyses.base import HeadMeasure
from poskernel_core.analyses.head_measures.figures import bias_texts, measure_texts, rank_texts
from poskernel_core.analyses.kernels.figures import head_curve, profile_figure
from poskernel_core.analyses.sinks.figures import sinks_figure
from poskernel_core.common.heads import cell_name
from poskernel_core.common.result import Result
from poskernel_core.export.files import (
    bibtex,
    caption_and_errors,
    chart_config,
    citation,
    file_stem,
    to_csv,
)
from poskernel_core.plotting.palette import DIVERGING, KIND_LOOKS, SCALE

OFFSETS = 24
NO_COLOUR = "#d5dade"
HERE = files(__name__.rpartition(".")[0])


@dataclass(frozen=True)
class Shown:
    """What a gallery shows of one run, of all heads.

    Attributes:
        verdicts, kernel, profile, sinks: the answers to these questions.
        measures: how each measure is drawn, by its title.
        query: the query position of the kernels.
    """

    verdicts: Result
    kernel: Result
    profile: Result
    sinks: Result
    measures: Mapping[str, HeadMeasure]
    query: int


def gallery(shown: Shown) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of all files."""
    yield "index.html", _index(shown)  # the first, by which the next export knows its folder
    yield "plotly.min.js", get_plotlyjs()
    yield "style.css", HERE.joinpath("gallery.css").read_text("utf-8")
    yield "grid.js", HERE.joinpath("gallery.js").read_text("utf-8")
    yield "measures.csv", to_csv(shown.verdicts)
    cells = _cells(shown.verdicts)
    for place, (layer, head) in enumerate(cells):
        near = [cells[at] if 0 <= at < len(cells) else None for at in (place - 1, place + 1)]
        kernel = shown.kernel.select(layer=layer, head=head)
        yield f"heads/{cell_name(layer, head)}.csv", to_csv(kernel)
        yield f"heads/{cell_name(layer, head)}.html", _head(shown, layer, head, near)


def _cells(verdicts: Result) -> list[tuple[int, int]]:
    """Return all heads that there are; layers without heads have none."""
    there = verdicts.texts["verdict"]
    gone = verdicts.provenance.get("layers_without_heads", {})
    return [
        (layer, head)
        for layer in range(there.shape[0])
        if str(layer) not in gone
        for head in range(there.shape[1])
    ]


def _index(shown: Shown) -> str:
    """Return the page with the grid of all heads."""
    found = shown.verdicts
    model = html.escape(str(found.provenance["model"]))
    options = "".join(
        f'<option value="{place}">{html.escape(title)} ({html.escape(unit)})</option>'
        for place, (title, unit) in enumerate(
            zip(found.words("measure"), found.words("unit"), strict=True)
        )
    )
    rows = []
    layers, heads = found.texts["verdict"].shape
    there = set(_cells(found))
    for layer in range(layers):
        cells = "".join(
            f'<td><a href="heads/{cell_name(layer, head)}.html" data-at="{layer},{head}">'
            f"<span>{cell_name(layer, head)}</span></a></td>"
            if (layer, head) in there
            else "<td></td>"
            for head in range(heads)
        )
        rows.append(f'<tr><th scope="row">L{layer}</th>{cells}</tr>')
    numbers = "".join(f'<th scope="col">{head}</th>' for head in range(heads))
    return _page(
        f"Attention heads of {model}",
        f"<h1>Attention heads of {model}</h1>"
        f"<p>{html.escape(caption_and_errors(found))}</p>"
        f'<label>Measure <select id="measure">{options}</select></label>'
        '<p id="reading"></p>'
        f'<div class="grid"><table><thead><tr><td></td>{numbers}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        '<p id="legend"></p><p id="told" aria-live="polite"></p>'
        '<p><a href="measures.csv" download>All measures as a table</a>. A cell leads to its '
        "head.</p>"
        f"{_cited(found, 'Attention heads')}"
        '<section id="verdicts"><h2>What every head does</h2>'
        f"<dl>{_sentences(found)}</dl></section>"
        f'<script type="application/json" id="data">{_safe(_data(shown))}</script>'
        '<script src="grid.js"></script>',
        "",
    )


def _sentences(found: Result) -> str:
    """Return what may be said of each head, as a list whose names lead to the heads."""
    return "".join(
        f'<dt><a href="heads/{cell_name(*at)}.html">{cell_name(*at)}</a></dt>'
        f"<dd>{html.escape(str(found.texts['verdict'][at]))}</dd>"
        for at in _cells(found)
    )


def _data(shown: Shown) -> list[dict[str, Any]]:
    """Return for each measure the colour and the text of every cell, and a legend."""
    found = shown.verdicts
    told = []
    for place, title in enumerate(found.words("measure")):
        one = found.select(measure=place)
        kinds = [word for word in found.texts["kinds"][place].tolist() if word]
        values = one.values["value"]
        colours, ends = _colours(values, kinds, shown.measures[title])
        told.append(
            {
                "title": title,
                "reading": shown.measures[title].reading,
                "colours": colours,
                "ends": ends,
                "texts": [
                    [_told(one, layer, head, kinds) for head in range(values.shape[1])]
                    for layer in range(values.shape[0])
                ],
            }
        )
    return told


def _told(one: Result, layer: int, head: int, kinds: list[str]) -> str:
    """Return what is said of a cell: its number with the error, or the name of its kind."""
    value, error = (part["value"][layer, head] for part in (one.values, one.errors))
    if np.isnan(value) or (kinds and value < 0):
        return "no value"
    if kinds:
        return kinds[int(value)]
    return f"{value:.4g}" + (f" ± {error:.2g}" if np.isfinite(error) else "")


def _colours(
    values: np.ndarray, kinds: list[str], declared: HeadMeasure
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the colour of every cell, and the colours of the legend with what they stand for."""
    if kinds:
        looks = [KIND_LOOKS[kind].colour if kind in KIND_LOOKS else "" for kind in kinds]
        spread = sample_colorscale(list(SCALE), len(kinds)) if len(kinds) > 1 else [SCALE[0]]
        looks = [own or other for own, other in zip(looks, spread, strict=True)]
        cells = [
            [NO_COLOUR if np.isnan(v) or v < 0 else looks[int(v)] for v in row] for row in values
        ]
        return cells, [[colour, kind] for colour, kind in zip(looks, kinds, strict=True)]
    known = values[np.isfinite(values)]
    if not known.size:
        return [[NO_COLOUR] * len(row) for row in values], []
    scale, placed = list(SCALE), values
    low, high = min(0.0, float(known.min())), float(known.max())
    if declared.scale == "log":
        floor = declared.floor or float(known[known > 0].min(initial=1.0))
        low, high = np.log(floor), np.log(max(high, floor * 1.01))
        placed = np.log(np.fmax(values, floor))
        placed[np.isnan(values)] = np.nan
    elif low < 0:
        scale, high = list(DIVERGING), float(np.abs(known).max())
        low = -high
    shares = np.clip((placed - low) / max(high - low, 1e-12), 0, 1)
    cells = [
        [
            NO_COLOUR if np.isnan(share) else sample_colorscale(scale, [float(share)])[0]
            for share in row
        ]
        for row in shares
    ]
    ends = [low, (low + high) / 2, high]
    shown = np.exp(ends) if declared.scale == "log" else ends
    legend = zip(sample_colorscale(scale, [0.0, 0.5, 1.0]), shown, strict=True)
    return cells, [[colour, f"{value:.3g}"] for colour, value in legend]


def _head(shown: Shown, layer: int, head: int, near: list[tuple[int, int] | None]) -> str:
    """Return the page of one head."""
    cell = cell_name(layer, head)
    one = shown.verdicts.select(layer=layer, head=head)
    model = html.escape(str(one.provenance["model"]))
    kernel = shown.kernel.select(layer=layer, head=head)
    profile = shown.profile.select(layer=layer, head=head).only("profile")
    sinks = shown.sinks.select(layer=layer, head=head).only("alpha")
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(each)}</td>' for each in row)}</tr>"
        for row in zip(
            one.words("measure"), measure_texts(one), bias_texts(one), one.words("unit"),
            rank_texts(one), strict=True,
        )
    )  # fmt: skip
    local = "local" in measure_texts(one)
    figures: tuple[tuple[str, str, Result, Callable[[], go.Figure]], ...] = (
        ("kernel", f"Positional kernel at n = {shown.query}", kernel,
         lambda: head_curve(kernel, shown.query, log_x=local)),
        ("diagonals", "Mean attention by offset", profile,
         lambda: profile_figure(profile, most=OFFSETS)),
        ("sink", "Attention to the first keys", sinks, lambda: sinks_figure(sinks)),
    )  # fmt: skip
    before, after = near
    links = [
        f'<a rel="prev" href="{cell_name(*before)}.html">← {cell_name(*before)}</a>'
        if before
        else "",
        f'<a rel="next" href="{cell_name(*after)}.html">{cell_name(*after)} →</a>' if after else "",
    ]
    return _page(
        f"{cell} of {model}",
        f'<nav><a href="../index.html">All heads of {model}</a> {links[0]} {links[1]}</nav>'
        f"<h1>{cell}</h1>"
        f'<p class="verdict">{html.escape(str(one.texts["verdict"]))}</p>'
        + "".join(_figure(*each) for each in figures)
        + '<section id="measures"><h2>All measures</h2><div class="grid"><table class="list">'
        "<thead><tr><th>measure</th><th>value</th><th>bias</th><th>unit</th><th>rank</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
        f'<p><a href="{cell}.csv" download>The kernel as a table</a></p>',
        "../",
    )


def _figure(name: str, title: str, found: Result, make: Callable[[], go.Figure]) -> str:
    """Return one figure with what it is of and how it is cited."""
    figure = make().update_layout(autosize=True, width=None, title=None)
    drawn = figure.to_html(
        include_plotlyjs=False, full_html=False, config=chart_config(file_stem(found, name)),
        default_width="100%",
    )  # fmt: skip
    return (
        f'<section id="{name}"><h2><a href="#{name}">{html.escape(title)}</a></h2>{drawn}'
        f"<p>{html.escape(caption_and_errors(found))}</p>{_cited(found, title)}</section>"
    )


def _cited(found: Result, title: str) -> str:
    return (
        f"<details><summary>Cite</summary><p>{html.escape(citation(found, title))}</p>"
        f"<pre>{html.escape(bibtex(found, title))}</pre></details>"
    )


def _safe(value: Any) -> str:
    """Return JSON that can stand inside a page."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def _page(title: str, body: str, up: str) -> str:
    plotly = f'<script src="{up}plotly.min.js"></script>' if up else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="generator" content="PosKernel {__version__}"><title>{title}</title>'
        f'<link rel="stylesheet" href="{up}style.css">{plotly}</head>'
        f"<body>\n<main>{body}</main>\n</body></html>\n"
    )
