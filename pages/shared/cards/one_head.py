"""Cards on the selected head that several pages draw."""

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from pages.instrument.parts import draw_curve
from pages.shared.cards.show import show
from pages.shared.choices.choices import chosen
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.claims import ATTENTION, passing
from poskernel_core.analyses.conversations.spec import ConversationParams, Conversations
from poskernel_core.analyses.sinks.spec import AttentionSinks
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text
from poskernel_core.models.catalog import Located
from poskernel_core.models.chat import chat_template


def first_keys(selection: Selection) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the attention of all heads to the skipped keys, and which give one of them 0.3.

    None if no keys are skipped, or the attention to them is not stored.
    """
    result = results.known(AttentionSinks.name, selection.run, selection.located.geometry)
    if result is None or not 0 < selection.skip <= result.values["alpha"].shape[-1]:
        return None
    skipped = slice(selection.skip)
    much = passing(result, "alpha", ATTENTION)[0]
    parked = result.values["alpha"][..., skipped].sum(axis=-1)
    return parked, np.asarray(much[..., skipped].any(axis=-1))


def draw_kernel(kernel: Result, selection: Selection, block: str | None = None) -> None:
    """Draw a head's kernel and observed attention by offset.

    ``kernel`` has the kernels of all heads; ``block`` is its key, if its queries are not those of
    the sampled windows.
    """
    head, axes = selection.of(kernel), chosen("log")

    band, also = "10–90 % of queries" if block is None else "", ""
    data: dict[str, Any] = {"kind": "kernel", "block": block, "band": band}
    if block is None and (left_out := first_keys(selection)):
        shares, much = left_out
        keys = f"first {counted(selection.skip, 'key')}"
        data |= {"keys": keys, "parked": shares.round(4).tolist()}
        at = selection.layer, selection.head
        if much[at]:
            also = f" On average the {keys} get {shares[at]:.2f} of all its attention."
    show(
        "kernel",
        head,
        "Kernel and observed attention",
        partial(_draw_own, "kernel", data),
        also,
        query=selection.query,
        log_x="offset" in axes,
        log_y="attention" in axes,
        others=np.delete(kernel.values["kernel"][selection.layer], selection.head, axis=0),
    )


def _draw_own(name: str, data: dict[str, Any]) -> None:
    """Draw a curve in the browser, from the numbers of all heads."""
    with st.container(key=f"own-{name}"):
        draw_curve(f"curve-{name}", data)


def draw_profile(profile: Result, most: int) -> None:
    """Draw a head's mean attention by offset, up to ``most`` tokens back."""
    data = {"kind": "profile", "band": "± 1 s.e.", "most": most}
    draw = partial(_draw_own, "profile", data)
    show("profile", profile, "Mean attention by offset", draw, most=most)


def draw_duplicates(heads: Result, selection: Selection) -> None:
    """Draw the head's attention to duplicates, from the result on all contextual heads."""
    head = selection.of(heads.only("duplicate_attention", "baseline"))
    show("duplicates", head, "Attention to earlier duplicates")


def draw_variation(denominators: Result) -> None:
    """Draw the variation of a head's softmax denominator over windows."""
    read = counted(len(denominators.values["denominator"]), "window")
    variation = denominators.only("denominator_cv", "predicted_cv", "etc")
    show("variation", variation, f"CV of the softmax denominator over {read}")


def shares_told(head: Result, cell: str) -> str:
    """Return as a sentence what the variance of a head's keys consists of."""
    position, content, both = (
        value_text(head, f"{part}_share") for part in ("position", "content", "interaction")
    )
    return (
        f"Of the variance of the keys of **{cell}**, position explains {position}, content "
        f"{content}, and their interaction {both}."
    )


def draw_similarity(additivity: Result, selection: Selection) -> None:
    """Draw how similar the head's content stays across positions."""
    head = selection.of(additivity).only("content_similarity")
    show("similarity", head, f"Content similarity across positions, {selection.cell}")


def reads_turns(located: Located) -> bool:
    """Tell whether a model has a chat template."""
    try:
        return chat_template(located) is not None
    except PosKernelError:  # damaged files, which are told of where they are needed
        return False


def has_conversations(selection: Selection) -> bool:
    """Tell whether model and corpus have conversations, or an answer about them is stored."""
    try:
        plan = results.plan(Conversations, selection.run, ConversationParams())
    except PosKernelError:
        return False
    return reads_turns(selection.located) or results.engine().ready(plan)


def draw_conversation(result: Result, selection: Selection) -> None:
    """Draw the selected head's attention by class of token."""
    show("conversation", selection.of(result))
