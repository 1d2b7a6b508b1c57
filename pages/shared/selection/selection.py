"""The sidebar: widgets bound to the URL, and their values as one frozen :class:`Selection`.

Every widget's key is the name of its URL parameter, so that a link restores the page exactly.
Values that no longer fit (another model's head, a position beyond the context) are moved to the
nearest value that fits, before the widget is drawn.
"""

import os
import re
import typing
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from pages.shared.cards.plain import plain
from pages.shared.jobs import results
from pages.shared.selection.fit import fitted, fitted_index, linked
from pages.shared.selection.head_link import OVERVIEW, head_link
from pages.shared.selection.lending import DRAWN, lacks, lend_model
from pages.shared.selection.links import write
from pages.shared.selection.place import Place
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import (
    DEFAULT_CONTEXT,
    DEFAULT_QUERY,
    DEFAULT_SKIP,
    DEFAULT_TEXTS,
    MAX_SKIP,
    CorpusSpec,
    Dtype,
    RunSpec,
    default_positions,
)
from poskernel_core.data import texts
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import catalog
from poskernel_core.models.catalog import Located
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.known import telling_head

NO_PART: Final = "not used on this page"
RESULTS_ALONE: Final = "This server has results of the model, not its weights"
CORPUS_HELP: Final = (
    "**sample**: 225 passages (1.2 million characters) of public-domain text that the demo models "
    "were not trained on: books of Project Gutenberg, the King James Bible, speeches of United "
    "States presidents, plays of Shakespeare. **bible**: 16 chapters of the King James Bible. "
    "**openwebtext** (web pages) and **wikitext** (Wikipedia) come from the hub."
)
CONTEXT_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
WINDOW_COUNTS = (50, 100, 200, 500, 1000, 2000)
MAX_RUN = max(WINDOW_COUNTS)


@dataclass(frozen=True)
class Selection:
    """What all pages share: the run, the head, the query position, the skip."""

    located: Located
    run: RunSpec
    layer: int
    head: int
    query: int
    skip: int

    @property
    def cell(self) -> str:
        """Name of the selected head, such as ``L0H3``."""
        return head_name(self.layer, self.head)

    def of(self, found: Result) -> Result:
        """Return the selected head's part of a result on all heads."""
        return found.select(layer=self.layer, head=self.head)


def choose(place: Place) -> Selection:
    """Draw the sidebar and return the selection.

    Raises:
        PageStopped: the model or corpus is not available.
    """
    with st.sidebar:
        idle = place.idle
        located = _choose_model(place)
        run = _choose_run(located, idle)
        layer, head = _choose_cell(located, idle)
        _link_to_head(place, head_name(layer, head))
        shown = located.shown if located.away else None
        query = _one_of(
            "Query position n (tokens)",
            list((shown and shown.queries) or default_positions(run.context)),
            key="query",
            usual=min(DEFAULT_QUERY, run.context - 1),
            **_helped("query", idle, "the position whose attention and kernels are shown"),
        )
        about_skip = _helped(
            "skip",
            idle,
            "kernels leave out these keys, because attention often rests on the first keys",
        )
        label = "Skip first keys (tokens)"
        if shown and shown.skips:
            skip = _one_of(label, list(shown.skips), key="skip", usual=DEFAULT_SKIP, **about_skip)
        else:
            span = fitted("skip", range(MAX_SKIP + 1), DEFAULT_SKIP)
            skip = st.slider(label, 0, MAX_SKIP, **about_skip, **span)
    return Selection(located, run, layer, head, query, skip)


def _one_of(label: str, numbers: list[int], *, key: str, usual: int, **more: Any) -> int:
    """Draw a slider over some numbers, or a select box for a single one."""
    usual = min(numbers, key=lambda each: abs(each - usual))
    if len(numbers) == 1:
        chosen: int = st.selectbox(label, numbers, **more | fitted_index(key, numbers, usual))
        return chosen
    moved: int = st.select_slider(label, numbers, **more | fitted(key, numbers, usual))
    return moved


def select_head(cell: str) -> None:
    """Select a head from elsewhere than its widget (a grid, a table). A callback."""
    write("head", cell)


def _helped(name: str, idle: frozenset[str], words: str) -> dict[str, Any]:
    """Return the help of a widget, and whether it is disabled on this page."""
    return {"help": NO_PART, "disabled": True} if name in idle else {"help": words}


def _choose_cell(located: Located, idle: frozenset[str]) -> tuple[int, int]:
    geometry = located.geometry
    layers, heads = geometry.with_heads, range(geometry.n_heads)
    cells = [head_name(layer, head) for layer in layers for head in heads]
    telling = telling_head(located.spec.name)
    default = telling if telling in cells else cells[0]
    cell = st.selectbox(
        "Head",
        cells,
        **fitted_index("head", cells, default),
        **_helped("head", idle, "layer and head; type to search"),
    )
    return parse_cell(cell, geometry.n_layers, geometry.n_heads)


def _link_to_head(place: Place, cell: str) -> None:
    """Draw a link to the selected head's page «Overview», except on that page."""
    if place.title != OVERVIEW and "head" not in place.idle:
        st.markdown(f":small[{head_link(cell, f'Everything about {cell}')}]")


def _bare(geometry: Geometry) -> str:
    """Return how many layers have no heads, and why, as a sentence."""
    if not geometry.reasons:
        return ""
    why = "; ".join(dict.fromkeys(geometry.reasons.values()))
    return f" {_count(len(geometry.reasons), 'layer')} without heads ({why})."


def _choose_model(place: Place) -> Located:
    idle = place.idle
    names = [entry.name for entry in catalog.entries()]
    about = {entry.name: entry for entry in catalog.entries()}
    free = settings().allow_any_model
    asked = st.session_state.get("model") or st.query_params.get("model") or names[0]
    asked = lend_model(place, asked)
    unknown = asked not in names and not free
    name = st.selectbox(
        "Model",
        [*names, asked] if unknown else names,
        accept_new_options=free,
        help="or type a hub name, directory or GGUF file"
        if free
        else "the host chooses the models",
        **linked("model"),
    )
    if name is None or (name not in names and not free):
        results.stop(
            f"The link asks for model {name!r}, which is not offered here. Choose one in the "
            f"sidebar: {', '.join(names)}. The host of this server can add models with "
            "POSKERNEL_MODELS, or allow all with POSKERNEL_ALLOW_ANY_MODEL=1."
        )
    st.session_state[DRAWN] = True
    if lacks(place, name):
        st.rerun()  # Back and Forward restore the model of the address
    revision = None
    if not catalog.is_local(name):
        typed = st.text_input(
            "Revision",
            max_chars=64,
            placeholder="main",
            help="hub revision or training checkpoint",
            **linked("revision"),
        )
        revision = typed.strip() or None
        if revision and not free and re.fullmatch("[0-9a-f]{7,40}", revision):
            results.stop("Expected a branch or tag as revision, got a commit: leave it empty.")
    else:
        revision = _choose_checkpoint(name, idle)
    try:
        located = results.located(name, revision)
    except BadRequest as error:
        results.stop(str(error))
    entry = about.get(name)
    geometry = located.geometry
    good_for = f" Good for: {entry.good_for}." if entry and entry.good_for else ""
    st.caption(
        f"{_count(geometry.n_layers, 'layer')} × {_count(geometry.n_heads, 'head')}, "
        f"{geometry.scheme} positions, "
        f"context {geometry.n_ctx}.{_bare(geometry)}{good_for}"
    )
    if located.away:
        st.caption(f":material/inventory_2: {RESULTS_ALONE}. To compute more, {located.away}.")
    draw_note(name)
    return located


def _choose_checkpoint(name: str, idle: frozenset[str]) -> str | None:
    """Draw the checkpoints of a directory, if it has any; the last one is the default."""
    try:
        run = results.training(name)
    except BadRequest as error:
        results.stop(str(error))
    if run is None:
        return None
    names = [each.revision for each in run.checkpoints]
    chosen: str = st.selectbox(
        "Checkpoint",
        names,
        **fitted_index("checkpoint", names, names[-1]),
        **_helped("checkpoint", idle, "the model at that step of its training"),
    )
    return chosen


def _count(number: int, of: str) -> str:
    return f"{number} {of}" + ("" if number == 1 else "s")


def _choose_run(located: Located, idle: frozenset[str]) -> RunSpec:
    longest, shown, alone = located.geometry.n_ctx, located.shown, bool(located.away)
    contexts = sorted({length for length in CONTEXT_LENGTHS if length < longest} | {longest})
    default = max(length for length in contexts if length <= max(DEFAULT_CONTEXT, contexts[0]))
    counts = list(WINDOW_COUNTS)
    offered, many, starts, dtypes = offered_corpora(), DEFAULT_TEXTS, True, typing.get_args(Dtype)
    if shown:
        default, many = shown.context, shown.windows
        contexts = [default] if alone else sorted({*contexts, default})
        counts = [many] if alone else sorted({*counts, many})
    if shown and alone:
        offered, starts, dtypes = [shown.corpus.name], shown.start_token, (shown.dtype,)
    corpus = st.selectbox(
        "Corpus", offered, **_helped("run", idle, CORPUS_HELP), **linked("corpus")
    )
    unused = "run" in idle or alone
    why = RESULTS_ALONE if alone else NO_PART if unused else None
    with st.expander("Run"):
        context = st.selectbox(
            "Context T (tokens)",
            contexts,
            disabled=unused,
            help=why,
            **fitted_index("context", contexts, default),
        )
        windows = _one_of(
            "Windows of text, at most", counts, key="windows", usual=many, disabled=unused, help=why
        )
        start = st.toggle("Start token first", starts, disabled=unused, help=why, **linked("start"))
        dtype = st.selectbox("Precision", dtypes, disabled=unused, help=why, **linked("dtype"))
    try:
        return describe_run(
            located.spec.name,
            revision=located.spec.revision,
            corpus=CorpusSpec(name=corpus),
            context=context,
            windows=windows,
            start_token=start,
            dtype=dtype,
        )
    except BadRequest as error:
        results.stop(str(error))


def draw_note(model: str) -> None:
    """Say if a model is constructed, partial or quantised."""
    if note := catalog.note_of(model):
        st.caption(f":material/info: {plain(note)}")


def offered_corpora() -> list[str]:
    """Return the corpora on offer, with the host's own files in ``POSKERNEL_CORPORA``."""
    own = [name for name in os.environ.get("POSKERNEL_CORPORA", "").split(",") if name.strip()]
    return [*texts.BUNDLED, *texts.HUB, *own]
