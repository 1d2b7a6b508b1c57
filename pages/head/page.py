"""Everything about one head: a verdict in words, its measures, and its figures."""

import json
from typing import Final

import streamlit as st

from pages import FIRST, module_of, page_showing
from pages.head.blocks import CURVE, DIAGONALS, SINKS, draw_block, draw_experiments
from pages.shared.cards.plain import plain, say_error
from pages.shared.cards.rest import rest
from pages.shared.cards.show import show
from pages.shared.jobs import results
from pages.shared.jobs.pressed import fetch_known, is_wanted, offer
from pages.shared.selection.head_link import OVERVIEW, page_address
from pages.shared.selection.host import allowed
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import errors_line, markdown_table
from poskernel_core.analyses import find
from poskernel_core.analyses.head_measures.verdicts import HeadVerdicts, HeadVerdictsParams
from poskernel_core.analyses.head_measures.views import measure_texts, rank_texts
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.common.settings import settings
from poskernel_core.storage.notes import MAX_NOTE, Notes


def draw_note(selection: Selection) -> None:
    """Draw the note on the head, if the server allows notes."""
    if not allowed(settings().notes):
        return
    notes, model = Notes(results.engine().store.directory), selection.located.spec
    try:
        written = notes.of(model.fingerprint, selection.cell)
    except PosKernelError as error:
        say_error(str(error))
        return
    label = "Note" if not written else f"Note: {written.splitlines()[0][:80]}"
    box = st.expander(label, icon=":material/edit_note:", key="note-box")
    key = f"note-{model.fingerprint}-{selection.cell}"
    text = box.text_area(
        f"What you noted on {selection.cell}",
        written,
        key=key,
        max_chars=MAX_NOTE,
        placeholder="Kept on this machine, for this model's head",
    )
    row = box.container(horizontal=True)
    if row.button("Keep the note", icon=":material/save:", key="keep-note"):
        try:
            notes.write(model.name, model.fingerprint, selection.cell, text)
        except PosKernelError as error:
            say_error(str(error))
            return
        st.rerun()
    every = notes.all()
    row.download_button(
        "All notes",
        json.dumps([note.model_dump() for note in every], indent=1, ensure_ascii=False),
        "poskernel-notes.json",
        "application/json",
        icon=":material/download:",
        on_click="ignore",
        disabled=not every,
        key="all-notes",
    )


CLAIMS: Final = ("claim_question", "claim")

NO_BREAK_DASH: Final = "\N{WORD JOINER}–\N{WORD JOINER}"
NO_BREAK: Final = "\N{NO-BREAK SPACE}"


FEW: Final = 3
"""Claims below a verdict that are seen at once."""

SEEN: Final = {
    "effective token count", "kind of kernel", "half-mass distance", "query variation",
    "distance to observed attention", "attention entropy", "attention sink",
    "score variance explained by position", "cost of the kernel alone (estimate)",
    "copying from the first layer", "attention to the previous token",
    "attention to far duplicates", "induction score",
}  # fmt: skip
"""Measures that are seen at once; the others are in a fold."""


def draw_measures(selection: Selection, result: Result) -> None:
    """Draw the measures of the head as tables, most of them folded."""
    head = selection.of(result)

    def draw() -> None:
        seen: list[tuple[str, ...]] = []
        folded: list[tuple[str, ...]] = []
        for title, question, value, rank, unit, kinds in zip(
            head.words("measure"),
            head.words("question"),
            measure_texts(head),
            rank_texts(head),
            head.words("unit"),
            head.texts["kinds"],
            strict=True,
        ):
            page = page_showing(question)
            chosen = {"measure": title} if page == FIRST else {}
            link = f"[{title}]({page_address(page, selection.cell, **chosen)})"
            of = "" if any(kinds) else f" :small[({plain(unit)})]"
            gap = " " if "(" in rank else NO_BREAK
            place = rank.replace(" of ", f"{gap}of{NO_BREAK}").replace("–", NO_BREAK_DASH)
            (seen if title in SEEN else folded).append((f"{link}{of}", plain(value), place))
        names = ("Measure", "Value", "Rank")
        markdown_table(names, seen)
        with st.expander(counted(len(folded), "more measure"), key="more-measures"):
            markdown_table(names, folded)
        errors_line(head)

    title = f"All measures of {selection.cell}, kernels at n = {selection.query}"
    show("measures", head, title, draw)


PLACE = Place(
    OVERVIEW,
    "Everything about one head: what it does in a sentence, its measures, its figures.",
    questions=("verdicts", "sink-anatomy"),
)


def missing_experiments(selection: Selection, params: HeadVerdictsParams) -> list[str]:
    """Return the questions on request without a stored result, such as experiments."""
    missing = results.missing(HeadVerdicts, selection.run, params)
    return [name for name in missing if find(name).on_request]


def draw_verdict(selection: Selection, verdicts: Result) -> None:
    """Draw the verdict in words, and offer the measures that are not computed yet."""
    sentence = str(verdicts.texts["verdict"][selection.layer][selection.head])
    st.markdown(f"**{plain(sentence)}**" if sentence else "Nothing is known about this head.")
    lines = zip(*(selection.of(verdicts).words(name) for name in CLAIMS), strict=True)
    rest = [
        f"* {plain(claim)} :small[[{module_of(place).PLACE.title}]"
        f"({page_address(place, selection.cell)})]"
        for question, claim in lines
        if claim
        for place in [page_showing(question)]
    ]
    st.markdown("\n".join(rest[:FEW]))
    if rest[FEW:]:
        with st.expander(f"What else is known ({len(rest) - FEW})", key="more-claims"):
            st.markdown("\n".join(rest[FEW:]))
    unknown, key = verdicts.words("unknown"), wanted_key(selection)
    if unknown and not is_wanted(key):
        what, label = plain(", ".join(unknown)), "Compute the remaining measures"
        offer(what, label, "compute-verdicts", key, located=selection.located)


def wanted_key(selection: Selection) -> str:
    """Return the key under which a reader asks for all measures of a run."""
    return f"verdicts-{selection.run.key()}"


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    st.subheader(f"{selection.cell} of {plain(selection.located.title)}", anchor="head")
    params = HeadVerdictsParams(query=selection.query, skip=selection.skip)
    try:  # statistics are gathered at once, experiments once the reader has asked for them
        missing = missing_experiments(selection, params)
        key = wanted_key(selection)
        verdicts = fetch_known(HeadVerdicts, selection.run, params, missing, key)
    except PosKernelError as error:
        say_error(str(error))
        return
    if verdicts is not None:
        draw_verdict(selection, verdicts)
    draw_note(selection)
    left, right = st.columns(2)
    with left:
        for block in (CURVE, DIAGONALS, SINKS):
            draw_block(block, selection)
    with right:
        if verdicts is not None:
            draw_measures(selection, verdicts)
    with rest() as wanted:
        if wanted:
            draw_experiments(selection)
    if missing_experiments(selection, params) != missing:  # the verdict uses the new results
        st.rerun()
