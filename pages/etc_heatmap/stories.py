"""Three stories for a first reader: heads of this model that show a finding at once, as links."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import streamlit as st

from pages.shared.jobs import results
from pages.shared.selection.head_choice import strongest
from pages.shared.selection.head_link import page_address
from pages.shared.selection.selection import Selection
from poskernel_core.analyses import find
from poskernel_core.analyses.head_measures.claims import ATTENTION
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result


def draw_stories(selection: Selection) -> None:
    """Draw links to figures of this model that show something at once, as far as stored."""
    links = [f"[{words}]({address})" for words, address in _stories(partial(_stored, selection))]
    if links:
        st.markdown(f"**See** {' · '.join(links)}")


def _stories(stored: Callable[[str], Result | None]) -> Iterator[tuple[str, str]]:
    """Yield what a link says, and where it leads."""
    if previous := stored("previous-token"):
        by_position = np.array(previous.text_of("kind")) == "by position"
        scores = np.where(by_position, previous.values["previous_mass"], 0.0)
        if cell := _clearly(scores):
            words = "a head that looks one back by position alone"
            yield words, f"{page_address('previous_token', cell)}#profile"
    induction, sinks = stored("induction-scores"), stored("sinks")
    if induction and (cell := _clearly(induction.values["induction"])):
        yield "an induction head", f"{page_address('induction_recency', cell)}#induction"
    if sinks and (cell := _clearly(sinks.values["sink"])):
        yield "a sink", f"{page_address('head', cell)}#sinks"


def _clearly(scores: np.ndarray) -> str:
    """Return the head with the largest share of attention; empty unless that is large."""
    layer, head = strongest(scores)
    return head_name(layer, head) if scores[layer, head] >= ATTENTION else ""


def _stored(selection: Selection, name: str) -> Result | None:
    question = find(name)
    defaults = question.default_params(selection.run, selection.located.geometry)
    try:
        return results.stored(results.plan(question, selection.run, question.params(**defaults)))
    except PosKernelError:
        return None
