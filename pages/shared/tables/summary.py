"""Numbers of heads with their standard errors: those of one head, and a table of all heads."""

import numpy as np
import pandas as pd

from pages.shared.cards.plain import capital
from pages.shared.tables.tables import (
    HEAD,
    errors_line,
    linked_table,
    markdown_table,
    rounded_table,
)
from poskernel_core.analyses.kernels.etc import EtcHeatMap, stands
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text
from poskernel_core.plotting.palette import KIND_LOOKS

TITLES = {measure.value: measure.title for measure in EtcHeatMap.measures}
NUMBERS = {
    "etc": "how many tokens the kernel covers",
    "half_mass_distance": "half of the mass lies nearer; offset k reaches from k to k + 1",
    "local_mass": "decides whether the head is «local»",
    "query_variation": "mean total variation between kernels of different queries; 0: they agree",
    "equivariance_error": "the same to kernels of other positions, aligned; 0: they agree",
    "attention_distance": "the same to the mean observed attention; 0: the mean is the kernel",
}
"""What every number means; total variation lies between 0 and 1."""

OPEN = " (not resolved)"
"""What is said of a kind if the interval of a number holds the limit that decides it."""

LAST = 10
"""Default number of last tokens that count as local."""


def summary(head: Result, *, meanings: bool) -> None:
    """Draw a head's numbers (a result selected down to one number each) as a small table."""
    kind = [_kind_text(head)] if "kind" in head.values else []
    rows = [("Kind", text, "") for text in kind]
    for name, meaning in NUMBERS.items():
        if name in head.values:
            number = value_text(head, name)
            if head.units[name] == "tokens":
                number = counted(number, "token")
            rows.append((_label(name, head), number, f":small[{meaning}]"))
    column_count = 3 if meanings else 2
    markdown_table(rows[0][:column_count], [row[:column_count] for row in rows[1:]])
    errors_line(head)


def _label(name: str, result: Result) -> str:
    """Return what a number is called, with its query position or its number of last tokens."""
    if name == "local_mass":
        return f"Mass in the last {result.params.get('local_tokens', LAST)} tokens"
    query = result.chosen.get("query", result.params.get("query", "each"))
    return capital(TITLES[name]) + f" at n = {query}" * (name == "etc")


def _kind_text(head: Result) -> str:
    if not (kind := head.text_of("kind")):
        return "no key is visible"
    return f"{KIND_LOOKS[kind].glyph} **{kind}**{'' if stands(head) else OPEN}"


def heads_table(etc: Result, visible_kinds: set[str]) -> None:
    """Draw a sortable table of the heads of the shown kinds."""
    kinds, resolved = np.array(etc.text_of("kind"), dtype=object), stands(etc)
    places = [(i, j) for i, j in np.ndindex(*kinds.shape) if kinds[i, j] in visible_kinds]
    heads = [i * kinds.shape[1] + j for i, j in places]
    table = pd.DataFrame({HEAD: [head_name(i, j) for i, j in places]}, index=heads)
    table["kind"] = [f"{kinds[place]}{'' if resolved[place] else OPEN}" for place in places]
    columns = {}
    for name in NUMBERS:
        if name in etc.values:  # some form later
            column = _label(name, etc) + " (tokens)" * (etc.units[name] == "tokens")
            columns[column] = name
            table[column] = [etc.values[name][place] for place in places]
    linked_table(rounded_table(table, etc, columns), "heads-table")
    errors_line(etc)
