"""What the reader has chosen: widgets bound to the URL, and one frozen :class:`Selection`.

Every widget's key is the name of its URL parameter, so that a link restores the page exactly.
Values that no longer fit (another model's cell, a position beyond the context) are moved to the
nearest that does, before the widget is drawn.
"""

from __future__ import annotations

import os
import re
import typing
from dataclasses import dataclass
from typing import Final

import streamlit as st

from pages.parts import results
from pages.parts.fragment import draw_note
from pages.parts.settle import settled, settled_index
from poskernel_core import catalog, texts
from poskernel_core.catalog import Located
from poskernel_core.config import (
    DEFAULT_QUERY,
    DEFAULT_SKIP,
    DEFAULT_TEXTS,
    MAX_SKIP,
    CorpusSpec,
    Dtype,
    RunSpec,
    cell_name,
    default_positions,
    parse_cell,
)
from poskernel_core.engine import DEFAULT_CONTEXT, describe_run
from poskernel_core.errors import BadRequest

__all__ = ["Selection", "choose", "select_cell"]

URL: Final = "query-params"
CONTEXTS = (64, 128, 256, 512, 1024, 2048, 4096)
TEXTS = (50, 100, 200, 500, 1000, 2000)


@dataclass(frozen=True)
class Selection:
    """Everything that pages share: the run, the head, the query position, the skip."""

    located: Located
    run: RunSpec
    layer: int
    head: int
    query: int
    skip: int

    @property
    def cell(self) -> str:
        """Name of the selected head, such as ``L0H3``."""
        return cell_name(self.layer, self.head)


def choose() -> Selection:
    """Draw the sidebar and return what is chosen.

    Raises:
        PageStopped: the model or corpus cannot be had.
    """
    with st.sidebar:
        located = _choose_model()
        run = _choose_run(located)
        layer, head = _choose_cell(located)
        positions = default_positions(run.context)
        query = st.select_slider(
            "Query position n (tokens)", positions, key="query", bind=URL,
            help="the position that attends; kernels are shown for this one",
            **settled("query", positions, min(DEFAULT_QUERY, run.context - 1)),
        )  # fmt: skip
        skip = st.slider(
            "Skip first keys (tokens)", 0, MAX_SKIP, key="skip", bind=URL,
            help="heads park attention on the first tokens; kernels leave these keys out",
            **settled("skip", range(MAX_SKIP + 1), DEFAULT_SKIP),
        )  # fmt: skip
    return Selection(located, run, layer, head, query, skip)


def select_cell(cell: str) -> None:
    """Select a head from elsewhere than its widget (a grid, a table); call it in a callback."""
    st.session_state["cell"] = cell


def _choose_cell(located: Located) -> tuple[int, int]:
    geometry = located.geometry
    layers, heads = range(geometry.n_layers), range(geometry.n_heads)
    cells = [cell_name(layer, head) for layer in layers for head in heads]
    cell = st.selectbox(
        "Head", cells, key="cell", bind=URL, help="layer and head; type to search",
        **settled_index("cell", cells, cells[0]),
    )  # fmt: skip
    return parse_cell(cell, geometry.n_layers, geometry.n_heads)


def _choose_model() -> Located:
    names = [entry.name for entry in catalog.entries()]
    about = {entry.name: entry for entry in catalog.entries()}
    free = catalog.may_type_any_model()
    name = st.selectbox(
        "Model", names, key="model", bind=URL, accept_new_options=free,
        help="type any hub name or directory" if free else "chosen by the host of this page",
    )  # fmt: skip
    if name is None or (name not in names and not free):
        results.stop(f"Model {name!r} is not offered here: choose one from the list.")
    revision = None
    if not catalog.is_local(name):
        typed = st.text_input(
            "Revision", key="revision", bind=URL, max_chars=64, placeholder="main",
            help="hub revision or training checkpoint",
        )  # fmt: skip
        revision = typed.strip() or None
        if revision and not free and re.fullmatch("[0-9a-f]{7,40}", revision):
            results.stop("Expected a branch or tag as revision, got a commit: leave it empty.")
    try:
        located = results.located(name, revision)
    except BadRequest as error:
        results.stop(str(error))
    entry = about.get(name)
    geometry = located.geometry
    good_for = f" Good for: {entry.good_for}." if entry and entry.good_for else ""
    st.caption(
        f"{geometry.n_layers} layers × {geometry.n_heads} heads, {geometry.scheme} positions, "
        f"context {geometry.n_ctx}.{good_for}"
    )
    draw_note(name)
    return located


def _choose_run(located: Located) -> RunSpec:
    longest = located.geometry.n_ctx
    contexts = sorted({length for length in CONTEXTS if length < longest} | {longest})
    default = max(length for length in contexts if length <= max(DEFAULT_CONTEXT, contexts[0]))
    offered = [*texts.BUNDLED, *texts.HUB, *_host_corpora()]
    corpus = st.selectbox("Corpus", offered, key="corpus", bind=URL)
    with st.expander("Run"):
        context = st.selectbox(
            "Context T (tokens)", contexts, key="context", bind=URL,
            **settled_index("context", contexts, default),
        )  # fmt: skip
        windows = st.select_slider(
            "Windows of text, at most", TEXTS, key="texts", bind=URL,
            **settled("texts", TEXTS, DEFAULT_TEXTS),
        )  # fmt: skip
        start = st.toggle("Start token first", True, key="start", bind=URL)
        dtype = st.selectbox("Precision", typing.get_args(Dtype), key="dtype", bind=URL)
    try:
        return describe_run(
            located.spec.name, revision=located.spec.revision, corpus=CorpusSpec(name=corpus),
            context=context, windows=windows, start_token=start, dtype=dtype,
        )  # fmt: skip
    except BadRequest as error:
        results.stop(str(error))


def _host_corpora() -> list[str]:
    """Return the files that the host offers as corpora (``POSKERNEL_CORPORA``, split on commas)."""
    return [name for name in os.environ.get("POSKERNEL_CORPORA", "").split(",") if name.strip()]
