"""Examples of a head's largest attention: query token, key token, and their texts."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result

AROUND = 5
"""Tokens of context shown on each side."""


@dataclass(frozen=True)
class Example:
    """The largest attention of one head in one text.

    Attributes:
        attention: as a share.
        query, key: positions of query and key.
        words: the tokens of the text.
    """

    attention: float
    query: int
    key: int
    words: tuple[str, ...]

    def around(self, place: int) -> tuple[str, str, str]:
        """Return the text before a token, the token, and the text after it."""
        before = self.words[max(0, place - AROUND) : place]
        after = self.words[place + 1 : place + 1 + AROUND]
        return "".join(before), self.words[place], "".join(after)


def sharpest(found: Result, layer: int, head: int, most: int = 5) -> list[Example]:
    """Return the examples with a head's largest attention, one from a text, largest first.

    ``found`` is the answer of ``head-examples``. Query 0 and key 0 do not count.
    """
    rows = {int(text): row for row, text in enumerate(found.coordinates["text"])}
    words = found.words("words")
    largest = found.values["max_activation"][layer, head]
    examples: list[Example] = []
    for place in np.argsort(-np.nan_to_num(largest, nan=-1.0)):
        text = int(found.values["example_text"][layer, head, place])
        if text < 0 or text not in rows or len(examples) == most:
            continue
        attention = found.values["top_attention"][layer, head, place].astype(float)
        key = found.values["top_key"][layer, head, place].astype(int)
        counted = np.where((key >= 1) & (np.arange(len(key))[:, None] >= 1), attention, -1.0)
        query, rank = np.unravel_index(np.argmax(counted), counted.shape)
        tokens = found.values["token"][rows[text]].astype(int)
        examples.append(
            Example(
                float(counted[query, rank]),
                int(query),
                int(key[query, rank]),
                tuple(words[token] for token in tokens),
            )
        )
    return examples


def examples_table(examples: list[Example]) -> go.Figure:
    """Draw the examples as a table."""
    columns = {
        "attention": [f"{each.attention:.3f}" for each in examples],
        "from": ["{}[{}]{}".format(*each.around(each.query)) for each in examples],
        "to": ["{}[{}]{}".format(*each.around(each.key)) for each in examples],
        "tokens back": [str(each.query - each.key) for each in examples],
    }
    table = go.Table(
        columnwidth=[2, 6, 6, 2],
        header={"values": list(columns), "align": "left"},
        cells={"values": list(columns.values()), "align": "left", "height": 26},
    )
    return go.Figure(table).update_layout(height=80 + 30 * len(examples))
