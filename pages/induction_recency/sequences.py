"""The table of sequences of an experiment, with its tokens coloured by role."""

from html import unescape

import numpy as np
import streamlit as st
from jinja2 import Template

from pages.shared.selection.fit import linked
from poskernel_core.common.result import Result
from poskernel_core.data.layouts import ROLES
from poskernel_core.plotting.layout import MASKED, quoted
from poskernel_core.plotting.palette import CATEGORICAL, ink_on

MAX_ROWS = 16
COLOURS = dict(zip(ROLES[2:], ("#777D84", *CATEGORICAL[:5]), strict=True))
"""``[A]`` is grey, candidates have the colours of the figures, other tokens have none."""
TABLE = Template(
    """<div style="overflow-x:auto"><table style="border-spacing:3px;font-size:0.85rem">
<caption style="text-align:left">position (tokens)</caption>
<thead><tr><th scope="col">second [A] at</th>
{%- for position in positions %}<th>{{ position }}</th>{% endfor %}</tr></thead>
<tbody>{% for second, cells in rows %}<tr><th scope="row">{{ second }}</th>
{%- for role, word, colour, ink in cells %}<td title="{{ role }}" style="padding:2px 6px;
border-radius:4px;text-align:center;white-space:nowrap;background:{{ colour }}
{%- if ink %};color:{{ ink }};font-weight:600{% endif %}">{{ word }}</td>{% endfor %}</tr>
{%- endfor %}</tbody></table></div>""",
    autoescape=True,
)


def draw_sequences(recency: Result) -> None:
    """Draw a row for every position of the last pair: its roles, or the tokens of one sample."""
    roles, examples = recency.values["role"], recency.texts["examples"]
    seconds = recency.coordinates["second"]
    shown = np.unique(np.linspace(0, len(roles) - 1, MAX_ROWS).round().astype(int))
    tokens = st.toggle("Show the tokens of the first sample", False, **linked("showtokens"))
    rows = []
    for i in shown:
        names = [ROLES[role] for role in roles[i]]
        words = [unescape(quoted(token)) for token in examples[i]] if tokens else names
        cells = []
        for name, word in zip(names, words, strict=True):
            colour = COLOURS.get(name, MASKED)
            cells.append((name, word, colour, ink_on(colour) if name in COLOURS else ""))
        rows.append((int(seconds[i]), cells))
    st.html(TABLE.render(positions=range(roles.shape[1]), rows=rows))
