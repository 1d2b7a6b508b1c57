"""What is drawn and said of what scores are made of; numbers of one text have no errors."""

import numpy as np

from poskernel_core.analyses.score_components.figures import keys_figure, score_figure
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result

SMALLEST = 0.1
"""Nats; a score nearer to its row's mean needs no reason."""

PHRASES = {
    "embedding": "the token embedding",
    "position": "the positional embedding",
    "biases": "the output biases",
    "constant": "the constant part",
}


def _pair(result: Result) -> str:
    values, names = result.values, result.texts["key_names"].tolist()
    table = values["component_score"] - values["mean_component_score"]
    key, query = (int(values[f"chosen_{role}"]) for role in ("key", "query"))
    bias = values.get("alibi_bias", 0 * values["score"])
    total = float(table.sum() + bias[key] - bias[values["counted"] > 0].mean())
    if abs(total) < SMALLEST:
        return ""
    asks, has = np.unravel_index(int(np.argmax(np.sign(total) * table)), table.shape)
    most, gap = (f"{abs(number):.1f}" for number in (table[asks, has], total))
    return (
        f"Key {key} lies {gap} nats {'above' if total > 0 else 'below'} its row's mean; the "
        f"largest pair makes {most}: {_wrote(names[has])} there, asked for by "
        f"{_wrote(names[asks])} at query {query}."
    )


def _wrote(name: str) -> str:
    return PHRASES.get(name, f"what {name} wrote")


VIEWS: Views = {
    "score-components": (
        View(
            "component_score mean_component_score [query_component key_component], "
            "score counted [key], chosen_query chosen_key []",
            score_figure,
            says=_pair,
            reading="The score of one key for the chosen query, as an exact sum over what wrote "
            "the two tokens' vectors: embeddings, earlier heads (such as L2H6) and MLPs. Top: by "
            "the query's parts, which say what is asked for. Middle: by the key's parts, which say "
            "what is found. Bottom: the largest pairs. Each panel adds up to the same score; blue "
            "raises it, orange lowers it. The softmax ignores what all keys share, so read the "
            "score *less the row's mean*, or *against another key*. A part is what wrote last: "
            "where its information comes from is not said.",
        ),
        View(
            "key_margin [key_component key], score counted [key]",
            keys_figure,
            reading="The scores of all keys of the chosen query, stacked by the key's parts: the "
            "five that vary most, and all the rest as one. Diamonds are the sums. Parts above and "
            "below zero cancel. A part of equal height everywhere does not matter to the softmax.",
        ),
    ),
}
