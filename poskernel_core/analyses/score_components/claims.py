"""What one score is made of, in a sentence; numbers of one text have no errors."""

import numpy as np

from poskernel_core.analyses.claims import Rules
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
    key, query = (int(values[f"chosen_{each}"]) for each in ("key", "query"))
    bias = values.get("alibi_bias", 0 * values["score"])
    total = float(table.sum() + bias[key] - bias[values["counted"] > 0].mean())
    if abs(total) < SMALLEST:
        return ""
    asks, has = np.unravel_index(int(np.argmax(np.sign(total) * table)), table.shape)
    most, whole = (f"{abs(each):.1f}" for each in (table[asks, has], total))
    return (
        f"Key {key} lies {whole} nats {'above' if total > 0 else 'below'} its row's mean; the "
        f"largest pair makes {most}: {_wrote(names[has])} there, asked for by "
        f"{_wrote(names[asks])} at query {query}."
    )


def _wrote(name: str) -> str:
    return PHRASES.get(name, f"what {name} wrote")


RULES: Rules = {
    "score-components: component_score mean_component_score [query_component key_component]": _pair
}
