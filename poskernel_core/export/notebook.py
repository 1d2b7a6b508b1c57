"""Results in notebooks: finding, figure, caption, a link to the dashboard, and a data frame."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from uuid import uuid4

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from poskernel_core.analyses.patching.pairs import MADE
from poskernel_core.analyses.views import figure_of, finding_of
from poskernel_core.common.heads import head_name, layer_of
from poskernel_core.common.result import Result
from poskernel_core.data.made import RANDOM, REPEATED
from poskernel_core.data.texts import TYPED
from poskernel_core.export.continuation import continuation
from poskernel_core.export.files import (
    caption,
    caption_and_errors,
    chart_config,
    file_stem,
    template,
    to_frame,
    to_xarray,
)
from poskernel_core.export.printing import WIDTHS, save_picture
from poskernel_core.plotting.layout import MUTED

PARAMETERS: Final = (
    "skip", "query", "text", "neuron", "measure", "clean", "changed", "pairs",
)  # fmt: skip
"""Parameters with the same name in page addresses."""

MODES: Final = ("Between two prompts", "From heads to a circuit")
"""How page addresses name what is shown of pairs of prompts."""

METRICS: Final = {
    "difference of two answers": "difference",
    "log probability of one answer": "log-probability",
    "loss of the clean prompt": "loss",
}
"""How page addresses name metrics of prompts, and below what is exchanged between them."""

PARTS: Final = {"whole output": "output", "pattern alone": "pattern", "values alone": "values"}
DIRECTIONS: Final = {
    "clean into changed": "clean-into-changed",
    "changed into clean": "changed-into-clean",
}
OUTSIDE: Final = {
    "their output on the changed prompt": "changed",
    "its mean over the changed prompts": "mean",
    "attention by their kernels": "kernel",
}
WHOLE_LAYER: Final = "all heads of its layer"
TABLE: Final = "a table"

SOURCES: Final = {"text": "one text", "token": "one token"}
"""How page addresses name query sources other than the mean over windows."""

MAX_IN_ADDRESS = 8000

EMBEDDED: Final[list[str]] = []
"""The cell whose output contains plotly.js, if any."""


@dataclass(frozen=True, eq=False)
class View:
    """A result with its figure; a notebook draws it if it is the last expression of a cell.

    Attributes:
        result: the values as arrays, with units, errors and provenance.
        address: the dashboard to link to; None: no link.
        embed: whether every output contains plotly.js, or no output; None: one per notebook.
    """

    result: Result
    address: str | None = None
    embed: bool | None = None

    @cached_property
    def figure(self) -> go.Figure:
        """The figure, to change or save: ``view.figure.write_html("kernel.html")``."""
        return figure_of(self.result)

    def save(self, path: str | os.PathLike[str], width: int = WIDTHS[0]) -> None:
        """Write the figure for a paper to a file, ``.svg`` or ``.png``, ``width`` mm wide.

        Chrome or Chromium draws it; one that is not on the path is named by ``BROWSER_PATH``.

        Raises:
            BadRequest: there is no browser, or the file is none of these, or cannot be written.
        """
        save_picture(self.result, Path(path), width)

    @cached_property
    def values(self) -> Any:
        """All values as a tidy pandas data frame, one row per observation, as in the CSV file."""
        return to_frame(self.result)

    def to_xarray(self) -> Any:
        """Return all values as an xarray data set, with coordinates, units, errors and intervals.

        Raises:
            BadRequest: xarray is not installed.
        """
        return to_xarray(self.result)

    @property
    def finding(self) -> str:
        """What the result shows, in one sentence; empty if it supports no claim."""
        return finding_of(self.result)

    @property
    def link(self) -> str | None:
        """The address of the page that shows this; None without a dashboard's address."""
        return None if self.address is None else page_address(self.result, self.address)

    @property
    def cell(self) -> str:
        """Python that goes on from the figure in TransformerLens: model, windows, number, hooks."""
        return continuation(self.result)

    def html(self, *, library: bool) -> str:
        """Return the figure as an HTML fragment that loads nothing.

        Args:
            library: whether to include plotly.js; otherwise the page must have it already.
        """
        figure = json.loads(self.figure.to_json())
        figure["layout"].setdefault("font", {}).setdefault("color", MUTED)
        config = chart_config(file_stem(self.result, self.result.analysis))
        given = {"data": figure["data"], "layout": figure["layout"], "config": config}
        return template("notebook.html").render(
            library=get_plotlyjs() if library else "",
            name=f"poskernel-{uuid4().hex}",
            height=self.figure.layout.height or 450,
            finding=self.finding,
            caption=caption_and_errors(self.result),
            link=self.link,
            code=self.cell,
            figure=given,
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def _repr_html_(self) -> str:
        """Return the figure; plotly.js comes with the first one of a notebook."""
        if self.embed is not None:
            return self.html(library=self.embed)
        cell = _cell()
        if not EMBEDDED:
            EMBEDDED.append(cell)
        return self.html(library=EMBEDDED[0] == cell)  # with that one, even if it is redrawn

    def __repr__(self) -> str:
        """Return the result's identity and finding, and shape and unit of every value."""
        lines = [caption(self.result), *filter(None, [self.finding])]
        for name, array in self.result.values.items():
            axes = " ".join(
                f"{axis}={size}"
                for axis, size in zip(self.result.axes[name], array.shape, strict=True)
            )
            what = f"[{axes}]" if axes else self.result.text_of(name)
            lines.append(f"  {name} {what} ({self.result.units[name]})")
        return "\n".join([*lines, *([self.link] if self.link else [])])


def page_address(result: Result, base: str) -> str:
    """Return the address of a result in a dashboard, as far as addresses can express it.

    The address names the question; the dashboard opens the matching page.
    """
    run, params = result.provenance, result.params | result.chosen
    fields: dict[str, Any] = {
        "show": result.analysis,
        "model": run.get("model"),
        "revision": run.get("revision"),
        "corpus": run.get("corpus"),
        "context": run.get("context"),
        "windows": run.get("windows_asked"),
        "dtype": run.get("dtype"),
        "start": None if run.get("start_token", True) else "false",
        "head": result.params.get("head"),
        **{name: params.get(name) for name in PARAMETERS},
        "manyheads": params.get("heads") if result.analysis == "ablate-heads" else None,
    }
    if {"layer", "head"} <= result.chosen.keys():
        fields["head"] = head_name(result.chosen["layer"], result.chosen["head"])
    if result.analysis.startswith("own-text"):
        fields["at"] = result.chosen.get("query")
        fields.pop("query")
    else:
        fields["source"] = SOURCES.get(params.get("source", ""))
        fields["item"] = params.get("text_item") or ("my own text" if params.get("text") else None)
    if params.get("source") in (None, "token"):
        fields["token"] = params.get("token")
    if run.get("corpus") in (TYPED, RANDOM, REPEATED):  # no choice of pages
        fields |= dict.fromkeys(("corpus", "context", "windows"))
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    given |= _of_prompts(params)
    for name in ("text", "pairs"):
        if len(str(given.get(name, ""))) > MAX_IN_ADDRESS:
            given.pop(name)
    return f"{base}/?{urlencode(given)}"


def _of_prompts(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return how addresses name what is asked of two prompts, or of a set; else nothing."""
    two = "changed" in params
    if not two and not {"maker", "pairs"} & params.keys():
        return {}
    asked: dict[str, Any] = {"mode": MODES[0] if two else MODES[1]}
    for key, name, words in (
        ("metric", "metric", METRICS),
        ("what", "what", PARTS),
        ("way", "direction", DIRECTIONS),
        ("outside", "outside", OUTSIDE),
    ):
        asked[key] = next((word for word, code in words.items() if code == params.get(name)), None)
    if maker := params.get("maker"):
        asked |= {"maker": maker, "count": params.get("count", MADE)}
    elif params.get("pairs"):
        asked |= {"maker": TABLE, "bad": "true" if params.get("skip_bad") else None}
    elif two and params["metric"] != "loss":  # empty answers too: an example has others
        asked["answer"] = params["answer"]
        if params["metric"] == "difference":
            asked["otheranswer"] = params["other_answer"]
    head = str(params.get("head", ""))
    if head and layer_of(head) < 0:
        asked |= {"head": f"{head.upper()}H0", "patched": WHOLE_LAYER}
    asked["keptorder"] = params.get("order") or None
    asked["exact"] = "true" if params.get("exact") == "all" else None
    return {name: value for name, value in asked.items() if value is not None}


def _cell() -> str:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    known = (parent.get("metadata") or {}).get("cellId")
    return str(known or getattr(shell, "execution_count", ""))
