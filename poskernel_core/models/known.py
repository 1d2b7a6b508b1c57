"""Heads with a known function, from the posts or measured when a demo model was trained."""

import json

from poskernel_core.common.heads import head_name
from poskernel_core.models.curated import BUNDLED_MODELS

_TELLING = {
    "gpt2": {"": "L4H11", "induction": "L5H1"},
    "gpt2-small-layer0": {"": "L0H7"},
    "demo-gpt2": {"": "L2H6", "induction": "L3H7", "contextual": "L0H4"},
    "smollm2-135m-instruct-q4": {"": "L16H0", "induction": "L18H6"},
    "demo-attn-2l": {"": "L0H0", "induction": "L1H0"},
    "demo-rotary": {"": "L1H7", "induction": "L2H4"},
    "demo-training": {"": "L0H0", "induction": "L1H0"},
    "NeelNanda/Attn_Only_2L512W_C4_Code": {"": "L0H3", "induction": "L1H6"},
}
"""Heads by model and topic. Topic "" gives a positional head: a previous-token head if there is
one."""

_DETOKENIZATION = "detokenization (joins the pieces of a word)"
_GPT2 = {
    "L0H1": "duplicate tokens, near ones",
    "L0H5": "duplicate tokens, near and far",
    "L0H3": _DETOKENIZATION,
    "L0H4": _DETOKENIZATION,
    "L0H7": _DETOKENIZATION,
    "L4H11": "previous token",
    "L5H0": "induction",
    "L5H1": "induction",
    "L5H5": "induction",
}
_FIRST = {head: f"in GPT-2: {what}" for head, what in _GPT2.items() if head.startswith("L0")}
_POSTS: dict[str, dict[str, str]] = {
    "gpt2": _GPT2,
    "gpt2-small-layer0": _FIRST,
    "NeelNanda/Attn_Only_2L512W_C4_Code": {"L0H3": "previous token", "L1H6": "induction"},
}

MEASURED = {"previous_token": "previous token, P(1) =", "induction": "induction, score"}
"""What a figure of a head shows, in words before its number."""

_ENOUGH = 0.3
"""Smallest share of attention at which a head gets the label, as in verdicts."""


def known_heads(model: str) -> dict[str, str]:
    """Return the known functions of a model's heads, by head name."""
    folder = BUNDLED_MODELS.get(model)
    if folder is None or not (measured := folder / "measured.json").is_file():
        return _POSTS.get(model, {})
    figures = json.loads(measured.read_text(encoding="utf-8"))
    return {
        head_name(layer, head): f"{function} {figure:.2f}"
        for name, function in MEASURED.items()
        for layer, row in enumerate(figures[name])
        for head, figure in enumerate(row)
        if figure >= _ENOUGH
    }


def telling_head(model: str, topic: str = "") -> str:
    """Return the head of a model to show first: an instructive one for a topic.

    Topics are ``induction`` and ``contextual``; without a topic it is a positional head.
    """
    heads = _TELLING.get(model, {})
    return heads.get(topic) or heads.get("", "L0H0")
