"""The table of sequences of an experiment, its tokens coloured by what they are for."""

import html

import numpy as np
import streamlit as st

from poskernel_core.common.result import Result
from poskernel_core.data.layouts import ROLES
from poskernel_core.plotting.layout import MASKED, quoted
from poskernel_core.plotting.palette import CATEGORICAL, ink_on

MOST_ROWS = 16
COLOURS = dict(zip(ROLES[2:], ("#777D84", *CATEGORICAL[:5]), strict=True))
"""``[A]`` grey, candidates in the colours of the figures; random tokens and start token none."""
_CELL = "padding:2px 6px;border-radius:4px;text-align:center;white-space:nowrap;"


def draw_sequences(recency: Result) -> None:
    """Draw one row for every position of the last pair; roles, or the tokens of one sample."""
    roles = recency.values["role"]
    seconds = recency.coordinates["second"]
    shown = np.unique(np.linspace(0, len(roles) - 1, MOST_ROWS).round().astype(int))
    tokens = st.toggle(
        "Show the tokens of the first sample", False, key="showtokens", bind="query-params"
    )
    examples = recency.texts["examples"]
    head = "".join(f"<th>{position}</th>" for position in range(roles.shape[1]))
    rows = [_row(roles[i], examples[i] if tokens else None, int(seconds[i])) for i in shown]
    st.html(
        "<div style='overflow-x:auto'><table style='border-spacing:3px;font-size:0.85rem'>"
        f"<caption style='text-align:left'>position (tokens)</caption>"
        f"<thead><tr><th scope='col'>second [A] at</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(roles: np.ndarray, tokens: list[str] | None, second: int) -> str:
    names = [ROLES[role] for role in roles]
    words = names if tokens is None else [quoted(token) for token in tokens]
    cells = "".join(_cell(name, word) for name, word in zip(names, words, strict=True))
    return f"<tr><th scope='row'>{second}</th>{cells}</tr>"


def _cell(role: str, word: str) -> str:
    colour = COLOURS.get(role)
    strong = f"color:{ink_on(colour)};font-weight:600" if colour else ""
    look = f"background:{colour or MASKED};{strong}"
    text = word if "\N{LEFT SINGLE QUOTATION MARK}" in word else html.escape(word)
    return f"<td title='{html.escape(role)}' style='{_CELL}{look}'>{text}</td>"
