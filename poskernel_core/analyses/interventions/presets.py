"""Preset interventions: those of the post, and similar ones for the demo models."""

from dataclasses import dataclass, field
from typing import Any

_STRINGS = (
    "hello",
    " gorapopefm",
    " seven lamps",
    "q8d2kfw",
    " copper kettle",
    "tamborilo",
    " river and road",
    "zz-41-zz",
    " quiet morning",
    "plimsoll",
    " green ladder",
    "1pdjpm3efe4",
)
_LIST = (
    "blue fire water house king garden river; blue fire water house king garden river; blue fire"
)
_TOY_LIST = "day house king land people man; day house"
_ROTARY_LIST = "data line table name man code; data line table name man code; data line"
"""Each word is one token of the small vocabulary."""
SHORT = 512
"""Shorter contexts may not hold the post's prompt of about 320 tokens."""

_ABOUT = {
    "average": "Neighbouring positions share one embedding: the previous-token head, which goes by "
    "position in this model, can no longer distinguish them.",
    "blind": "The predecessor is cut out of every head's attention in these layers.",
    "ablate": "Without it the induction heads find nothing to copy.",
    "remove": "Only the causal mask is left to distinguish positions.",
}


@dataclass(frozen=True)
class Preset:
    """One intervention, ready to run.

    Attributes:
        name: a short title.
        about: what to expect, in one or two sentences.
        prompt: the text.
        cell: the head to look at.
        params: the intervention's parameters that differ from the defaults.
    """

    name: str
    about: str
    prompt: str
    cell: str
    params: dict[str, Any] = field(default_factory=dict)


def _repeat_after_me(last: str, begun: str) -> str:
    """Return the post's prompt: several requests with complete replies, then a last request.

    The reply to the last one is only started, for the model to continue.
    """
    request = "Please repeat the following string exactly: "
    examples = [f'Request: {request}"{text}"\nReply: "{text}"' for text in _STRINGS]
    return "\n".join([*examples, f'Request: {request}"{last}"\nReply: "{begun}'])


_GPT2 = (
    Preset(
        "Apple, orange: positions averaged by 10",
        "The post: the model goes on repeating the right fruit, 99 % sure, although ten "
        "neighbouring positions share one embedding.",
        _repeat_after_me(" apple orange", ""),
        "L4H11",
        {"change": "average", "group": 10},
    ),
    Preset(
        "The stream before layer 2 averaged by 10",
        "The post: tremendous damage to the early previous-token heads such as L2H2.",
        _repeat_after_me(" apple orange", ""),
        "L2H2",
        {"change": "average", "group": 10, "layer": 2, "keep": 1},
    ),
    Preset(
        "The stream before layer 4 averaged by 10",
        "The post: minimal damage to L4H11, which aggregates what earlier heads found.",
        _repeat_after_me(" apple orange", ""),
        "L4H11",
        {"change": "average", "group": 10, "layer": 4, "keep": 1},
    ),
    Preset(
        "Every fifth position blind to its predecessor",
        "The post: L4H11 loses the previous token at those positions, although W_pos is intact.",
        _repeat_after_me(" apple orange", ""),
        "L4H11",
        {"change": "blind", "every": 5, "layers": "0-3", "stage": "pattern"},
    ),
    Preset(
        "Ninja turtle pirate: L4H11's attention moved",
        "The post: turtle falls from 99 % to 26 %, and pirate rises to 65 %, with the output "
        "doubled.",
        _repeat_after_me(" ninja turtle pirate", " ninja"),
        "L4H11",
        {
            "change": "move",
            "edited": "L4H11",
            "moves": 'pirate>ninja, turtle>"',
            "stage": "scores",
            "scale": 2.0,
            "scope": "layer",
        },
    ),
)


def _demo(
    prompt: str, cell: str, layers: str, moves: str, about: dict[str, str], *, learned: bool = True
) -> tuple[Preset, ...]:
    """Return the presets of a demo model for its previous-token head.

    Presets that change positional embeddings are included only if these are ``learned``.
    """
    changes: dict[str, dict[str, Any]] = {
        "The previous-token head's attention moved": {
            "change": "move",
            "edited": cell,
            "moves": moves,
        },
        "Positions averaged by 10": {"change": "average", "group": 10},
        "Every fifth position blind to its predecessor": {
            "change": "blind",
            "every": 5,
            "layers": layers,
            "stage": "pattern",
        },
        "The previous-token head switched off": {"change": "ablate", "heads": cell},
        "Positional embeddings removed": {"change": "remove", "embeddings": "positions"},
    }
    texts = _ABOUT | about
    return tuple(
        Preset(name, texts[params["change"]], prompt, cell, params)
        for name, params in changes.items()
        if learned or params["change"] not in ("average", "remove")
    )


def _any_model(prompt: str, scheme: str = "learned") -> tuple[Preset, ...]:
    """Return presets that name no head: they show the selected one.

    Token embeddings are removed only if learned positions then remain in the stream.
    """
    blind = Preset(
        "Every fifth position blind to its predecessor",
        "Which heads lose the previous token, and does the prompt still repeat?",
        prompt,
        "",
        {"change": "blind", "every": 5, "layers": "0", "stage": "pattern"},
    )
    removed = Preset(
        "Token embeddings removed",
        "Only position is left: every head shows what it does by position alone.",
        prompt,
        "",
        {"change": "remove", "embeddings": "tokens"},
    )
    sooner = Preset(
        "Every second position blind to its predecessor, before the softmax",
        "What the previous token would have got goes to the others: which heads look elsewhere?",
        prompt,
        "",
        {"change": "blind", "every": 2, "layers": "0", "stage": "scores"},
    )
    return blind, removed if scheme == "learned" else sooner


_BY_MODEL = {
    "gpt2": _GPT2,
    "demo-gpt2": _demo(
        _LIST,
        "L2H6",
        "0-1",
        "king>fire, water>blue",
        {
            "move": "The list repeats, and the model copies: after fire comes water. With L2H6's "
            "attention at king and at water moved, fire seems to have been followed by king.",
            "average": "Hardly anything changes, as the post found in GPT-2: order is read off the "
            "causal mask, and the head shuns its own token.",
            "remove": "Even without any positional embedding the list goes on: the causal mask is "
            "enough.",
        },
    ),
    "demo-attn-2l": _demo(
        _TOY_LIST,
        "L0H0",
        "0",
        "land>house, king>day",
        {
            "move": "The list repeats, and the model copies: after house comes king. With L0H0's "
            "attention at land and at king moved, house seems to have been followed by land."
        },
    ),
    "demo-rotary": _demo(
        _ROTARY_LIST,
        "L1H7",
        "0-1",
        "name>line, table>data",
        {
            "move": "The list repeats, and the model copies: after line comes table. With L1H7's "
            "attention at name and at table moved, line seems to have been followed by name."
        },
        learned=False,
    ),
    "demo-training": _any_model(_TOY_LIST),
}


def presets_for(model: str, scheme: str = "learned", context: int = SHORT) -> tuple[Preset, ...]:
    """Return the presets of a model, or generic ones.

    ``scheme`` is the model's position scheme. A ``context`` (tokens) below ``SHORT`` gets a short
    prompt.
    """
    prompt = _repeat_after_me(" apple orange", "") if context >= SHORT else _LIST
    return _BY_MODEL.get(model) or _any_model(prompt, scheme)
