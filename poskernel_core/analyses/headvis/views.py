"""What is drawn and said of the metrics of HeadVis, and of the example texts of heads."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import ATTENTION, has, heads_at, heads_range, number_of, who
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result

LARGEST = "mean_max_activation"
SHARES = {
    "prev_token_score": "attention to the previous token",
    "self_attention_score": "attention to the token itself",
    "induction_score": "attention to what followed earlier occurrences of the token",
    LARGEST: "largest attention in a text, on average",
}
"""Shares of attention; the metrics below have no limit."""

OTHERS = {
    "pattern_entropy": "mean entropy of an attention row",
    "qk_distance": "mean distance of the attended key",
    "qk_distance_variance": "variance of the distance of the attended key",
}


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


def sharpest(head: Result, most: int = 5) -> list[Example]:
    """Return the examples with a head's largest attention, one from a text, largest first.

    Query 0 and key 0 do not count.
    """
    rows = {int(text): row for row, text in enumerate(head.coordinates["text"])}
    words = head.words("words")
    largest = head.values["max_activation"]
    examples: list[Example] = []
    for place in np.argsort(-np.nan_to_num(largest, nan=-1.0)):
        text = int(head.values["example_text"][place])
        if text < 0 or text not in rows or len(examples) == most:
            continue
        attention = head.values["top_attention"][place].astype(float)
        key = head.values["top_key"][place].astype(int)
        counted = np.where((key >= 1) & (np.arange(len(key))[:, None] >= 1), attention, -1.0)
        query, rank = np.unravel_index(np.argmax(counted), counted.shape)
        tokens = head.values["token"][rows[text]].astype(int)
        examples.append(
            Example(
                float(counted[query, rank]),
                int(query),
                int(key[query, rank]),
                tuple(words[token] for token in tokens),
            )
        )
    return examples


def _table(head: Result) -> go.Figure:
    """Draw the examples as a table."""
    examples = sharpest(head)
    columns = {
        "attention": [f"{example.attention:.3f}" for example in examples],
        "from": ["{}[{}]{}".format(*example.around(example.query)) for example in examples],
        "to": ["{}[{}]{}".format(*example.around(example.key)) for example in examples],
        "tokens back": [str(example.query - example.key) for example in examples],
    }
    table = go.Table(
        columnwidth=[2, 6, 6, 2],
        header={"values": list(columns), "align": "left"},
        cells={"values": list(columns.values()), "align": "left", "height": 26},
    )
    return go.Figure(table).update_layout(height=80 + 30 * len(examples))


def _said(result: Result) -> str:
    """Say where a head looks, or how many heads look there."""
    shares = [name for name in SHARES if name in result.values]
    if shares and has(result, (), *shares):
        return _head(result, shares)
    for name in shares:
        if said := heads_at(result, name, SHARES[name], ATTENTION):
            return said
    others = (name for name in OTHERS if name in result.values)
    return next(filter(None, (heads_range(result, name, OTHERS[name]) for name in others)), "")


def _head(result: Result, shares: list[str]) -> str:
    numbers = {name: number_of(result, name) for name in shares}
    largest = max(numbers, key=lambda name: numbers[name].value)
    number = numbers[largest]
    text = f"The {SHARES[largest]}, is" if "," in SHARES[largest] else f"The {SHARES[largest]} is"
    place = {"yes": "above", "no": "below"}.get(number.passes(ATTENTION) or "")
    most = " (the most of three kinds)" if place == "below" and len(shares) == 3 else ""
    limit = f"{place} the limit of {ATTENTION:g}"
    return f"{text} {number} in {who(result)}{most}, {limit}." if place else ""


VIEWS: Views = {
    "headvis": tuple(
        View(f"{name} [...]", says=_said) for name in SHARES | OTHERS if name != LARGEST
    ),
    "head-examples": (
        View(
            "max_activation example_text [example], top_key top_attention [example pos rank], "
            "token [text pos], words [word]",
            _table,
        ),
        View(
            "max_activation [example]",
            reading="The windows with the head's largest attention to a single key: the query "
            "token and the key token, each in its context. The first token of a window does not "
            "count. ⏎ is a line break.",
        ),
        View(f"{LARGEST} [...]", says=_said),
    ),
}
