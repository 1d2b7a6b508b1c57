"""The run: which texts the model reads, and how; folded, with one line that says what it is."""

import typing
from typing import Any, Final

import streamlit as st

from pages.shared.cards.plain import plain
from pages.shared.choices.fit import fitted, fitted_flag, fitted_index
from pages.shared.jobs import results
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import (
    DEFAULT_CONTEXT,
    DEFAULT_SKIP,
    DEFAULT_TEXTS,
    MAX_SKIP,
    THINNED,
    CorpusSpec,
    Dtype,
    RunSpec,
    Until,
    default_positions,
)
from poskernel_core.data import texts
from poskernel_core.engine.engine import describe_run
from poskernel_core.models.catalog import Located

CORPUS_HELP: Final = (
    "**sample**: 225 passages (1.2 million characters) of public-domain text that the demo models "
    "were not trained on: books of Project Gutenberg, the King James Bible, speeches of United "
    "States presidents, plays of Shakespeare. **bible**: 16 chapters of the King James Bible. "
    "**openwebtext** (web pages) and **wikitext** (Wikipedia) come from the hub."
)
RESULTS_ALONE: Final = "This server has results of the model, not its weights"
CONTEXT_HELP: Final = (
    f"By default {DEFAULT_CONTEXT:,}, or fewer for a wide model, so that a run's sums have room. "
    f"In contexts of up to {THINNED} tokens, the widest models have fewer query positions too."
)
CONTEXT_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
WINDOW_COUNTS = (50, 100, 200, 500, 1000, 2000)
MAX_RUN = max(WINDOW_COUNTS)
ENDS: Final[dict[str, Until | None]] = {
    "all windows are read": None,
    "every kind is resolved": "kinds",
    "every ETC is known to 5 %": "etc",
}


def choose_run(located: Located) -> tuple[RunSpec, int]:
    """Draw the settings of a run; return the run, and how many first keys are skipped."""
    longest, first_run, alone = located.geometry.n_ctx, located.shown, bool(located.away)
    contexts = sorted({length for length in CONTEXT_LENGTHS if length < longest} | {longest})
    usual = located.geometry.usual_context
    default = max(length for length in contexts if length <= max(usual, contexts[0]))
    counts = list(WINDOW_COUNTS)
    offered, many, starts, dtypes = (
        texts.offered_corpora(),
        DEFAULT_TEXTS,
        True,
        typing.get_args(Dtype),
    )
    if first_run:
        default, many = first_run.context, first_run.windows
        contexts = [default] if alone else sorted({*contexts, default})
        counts = [many] if alone else sorted({*counts, many})
    if first_run and alone:
        offered, starts, dtypes = [first_run.corpus.name], first_run.start_token, (first_run.dtype,)
    off: dict[str, Any] = {"disabled": alone, "help": RESULTS_ALONE if alone else None}
    line = st.empty()
    with st.expander("Run", key="run"):
        corpus = st.selectbox("Corpus", help=CORPUS_HELP, **fitted_index("corpus", offered))
        context = st.selectbox(
            "Context T (tokens)",
            **off | {"help": off["help"] or CONTEXT_HELP},
            **fitted_index("context", contexts, default),
        )
        ends = None if alone else (1, MAX_RUN)
        windows = one_of("Windows of text, at most", counts, "windows", many, ends, **off)
        start = st.toggle("Start token first", **off, **fitted_flag("start", starts))
        dtype = st.selectbox("Precision", **off, **fitted_index("dtype", dtypes))
        until = st.selectbox("Read until", **off, **fitted_index("until", ENDS))
        about = "kernels leave out these keys, because attention often rests on the first keys"
        label = "Skip first keys (tokens)"
        skips = list(first_run.skips) if first_run and first_run.skips else []
        if skips:
            skip = one_of(label, skips, "skip", DEFAULT_SKIP, help=about)
        else:
            skip = st.slider(label, help=about, **fitted("skip", range(MAX_SKIP + 1), DEFAULT_SKIP))
    try:
        run = describe_run(
            located,
            corpus=CorpusSpec(name=corpus),
            context=context,
            windows=windows,
            start_token=start,
            dtype=dtype,
            until=ENDS[until],
        )
    except BadRequest as error:
        results.stop(str(error))
    line.caption(plain(_line(run, skip)))
    return run, skip


def _line(run: RunSpec, skip: int) -> str:
    """Return in one line what a run is."""
    parts = [
        run.corpus.name,
        f"{counted(run.windows, 'window')} of {counted(run.context, 'token')}",
        "start token" if run.start_token else "no start token",
        run.dtype,
        f"first {counted(skip, 'key')} skipped" if skip else "no key skipped",
    ]
    if len(run.positions) < len(default_positions(run.context)):
        parts.append(f"only {counted(len(run.positions), 'query position')}")
    if run.until is not None:
        parts.append("until " + next(words for words, end in ENDS.items() if end == run.until))
    return ", ".join(parts)


def one_of(
    label: str,
    numbers: list[int],
    key: str,
    usual: int,
    ends: tuple[int, int] | None = None,
    **more: Any,
) -> int:
    """Draw a slider over some numbers, or a select box for a single one."""
    usual = min(numbers, key=lambda number: abs(number - usual))
    if len(numbers) == 1:
        chosen: int = st.selectbox(label, **more | fitted_index(key, numbers, usual))
        return chosen
    moved: int = st.select_slider(label, **more | fitted(key, numbers, usual, ends))
    return moved
