"""A static site of a model's results: the grid of all heads, and a page for each head.

It needs no server and sends no requests: open the files from a disk, or upload them to any static
host. A head's page is ``heads/L0H3.html``, and its figures have the anchors ``#kernel``,
``#diagonals`` and ``#sink``. The grid of a measure is ``index.html#measure=...``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.head_measures.views import measure_texts, rank_texts
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.export.files import (
    FOLDER,
    bibtex,
    caption_and_errors,
    chart_config,
    citation,
    file_stem,
    template,
    to_csv,
)
from poskernel_core.plotting.palette import NO_VALUE
from poskernel_core.plotting.shades import shaded

OFFSETS = 24
NO_COLOUR = "repeating-linear-gradient(-45deg, #d5dade 0 4px, #fff 4px 6px)"
PAGE = template("gallery.html")


@dataclass(frozen=True)
class GalleryRun:
    """The results of one run, for all heads, that a gallery shows; its measures by title."""

    verdicts: Result
    kernel: Result
    profile: Result
    sinks: Result
    measures: Mapping[str, HeadMeasure]
    query: int


def gallery(run: GalleryRun) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of all files."""
    yield "index.html", _index(run)  # first: the next export knows its folder by this file
    yield "plotly.min.js", get_plotlyjs()
    yield "style.css", FOLDER.joinpath("gallery.css").read_text("utf-8")
    yield "grid.js", FOLDER.joinpath("gallery.js").read_text("utf-8")
    yield "measures.csv", to_csv(run.verdicts)
    cells = _cells(run.verdicts)
    for place, (layer, head) in enumerate(cells):
        near = [cells[at] if 0 <= at < len(cells) else None for at in (place - 1, place + 1)]
        kernel = run.kernel.select(layer=layer, head=head)
        yield f"heads/{head_name(layer, head)}.csv", to_csv(kernel)
        yield f"heads/{head_name(layer, head)}.html", _head(run, layer, head, near)


def _cells(verdicts: Result) -> list[tuple[int, int]]:
    there = verdicts.texts["verdict"]
    gone = verdicts.provenance.get("layers_without_heads", {})
    return [
        (layer, head)
        for layer in range(there.shape[0])
        if str(layer) not in gone
        for head in range(there.shape[1])
    ]


def _index(run: GalleryRun) -> str:
    verdicts = run.verdicts
    layers, heads = verdicts.texts["verdict"].shape
    return PAGE.render(
        model=verdicts.model_title,
        about=_about(verdicts, "Attention heads"),
        measures=list(zip(verdicts.words("measure"), verdicts.words("unit"), strict=True)),
        layers=layers,
        heads=heads,
        verdicts={at: verdicts.texts["verdict"][at] for at in _cells(verdicts)},
        data=_data(run),
    )


def _data(run: GalleryRun) -> list[dict[str, Any]]:
    verdicts = run.verdicts
    entries = []
    for place, title in enumerate(verdicts.words("measure")):
        one = verdicts.select(measure=place)
        kinds = [word for word in verdicts.texts["kinds"][place].tolist() if word]
        values = one.values["value"]
        declared = run.measures[title]
        shade = shaded(values, declared.scale, declared.floor, kinds)
        entries.append(
            {
                "title": title,
                "reading": run.measures[title].reading,
                "colours": [
                    [NO_COLOUR if colour == NO_VALUE else colour for colour in row]
                    for row in shade.colours
                ],
                "ends": [[colour, text] for colour, text in shade.legend if text],
                "texts": [
                    [_told(one, layer, head, kinds) for head in range(values.shape[1])]
                    for layer in range(values.shape[0])
                ],
            }
        )
    return entries


def _told(one: Result, layer: int, head: int, kinds: list[str]) -> str:
    value, error = (part["value"][layer, head] for part in (one.values, one.errors))
    if np.isnan(value) or (kinds and value < 0):
        return "no value"
    if kinds:
        return kinds[int(value)]
    return f"{value:.4g}" + (f" ± {error:.2g}" if np.isfinite(error) else "")


def _head(run: GalleryRun, layer: int, head: int, near: list[tuple[int, int] | None]) -> str:
    one = run.verdicts.select(layer=layer, head=head)
    kernel = run.kernel.select(layer=layer, head=head)
    profile = run.profile.select(layer=layer, head=head).only("profile")
    sinks = run.sinks.select(layer=layer, head=head).only("alpha")
    columns = {
        "measure": one.words("measure"),
        "value": measure_texts(one),
        "unit": one.words("unit"),
        "rank": rank_texts(one),
    }
    curve = figure_of(kernel, query=run.query)
    figures = {
        "kernel": (f"Positional kernel at n = {run.query}", kernel, curve),
        "diagonals": (
            "Mean attention by offset", profile, figure_of(profile, most=OFFSETS)
        ),
        "sink": ("Attention to the first keys", sinks, figure_of(sinks)),
    }  # fmt: skip
    before, after = (head_name(*cell) if cell else None for cell in near)
    return PAGE.render(
        model=one.model_title,
        cell=head_name(layer, head),
        before=before,
        after=after,
        verdict=one.texts["verdict"],
        claims=[claim for claim in one.words("claim") if claim],
        figures={name: _drawn(name, *entry) for name, entry in figures.items()},
        columns=columns,
        rows=list(zip(*columns.values(), strict=True)),
    )


def _drawn(name: str, title: str, result: Result, figure: go.Figure) -> dict[str, str]:
    figure.update_layout(autosize=True, width=None, title=None)
    config = chart_config(file_stem(result, name))
    drawn = figure.to_html(
        include_plotlyjs=False, full_html=False, config=config, default_width="100%"
    )
    return _about(result, title) | {"title": title, "drawn": drawn}


def _about(result: Result, title: str) -> dict[str, str]:
    return {
        "caption": caption_and_errors(result),
        "citation": citation(result, title),
        "bibtex": bibtex(result, title),
    }
