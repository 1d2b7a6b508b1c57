"""What is drawn and said of what heads write; numbers of one text have no errors."""

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import HALF, Claim, Head, at_limit, heads_at, spoken, who
from poskernel_core.analyses.own_text.figures import token_names, token_text
from poskernel_core.analyses.score_components.figures import signed_bars, with_room
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.head_map import effect_map, share_map
from poskernel_core.plotting.layout import quoted, set_title, style

MOST = 12
"""Keys with a bar of their own."""
SCORES = {
    "copying_share_first_layer": "from the first layer",
    "copying_share": "from the embedding",
    "copying_eigenvalues": "eigenvalues",
}
ADDED = "added to the logit, less the mean of all"


def copies(head: Head) -> Iterator[Claim]:
    """Yield whether a head raises the tokens that it looks at: in layer 0 as they are embedded."""
    if head.has("copying_share", "copying_share_first_layer"):
        share, start = head.number("copying_share_first_layer"), "first layer"
        if np.isnan(share.value):
            share, start = head.number("copying_share"), "embedding"
        text = f"{{it}} raises {share} of frequent tokens, as the {start} leaves them"
        yield from at_limit("copying", share, HALF, text, "copies")


def _signed(number: float) -> str:
    """Return a number with its sign and two decimals, or two digits if it is small."""
    return as_printed(f"{number:+.2f}" if abs(number) >= 0.01 or not number else f"{number:+.1g}")


def _writes(result: Result) -> str:
    at, numbers = int(result.values["chosen_query"]), result.values["contribution"]
    first, *_, last = (f'"{token_text(word)}"' for word in result.words("words"))
    key = int(np.argmax(result.values["by_key"][0]))
    alone = _signed(result.values["by_key"][0][key])
    return (
        f"At token {at}, {who(result)} raises {first} most ({_signed(numbers[0])} logits; key "
        f"{key} alone {alone}) and lowers {last} most ({_signed(numbers[-1])})."
    )


def _made_of(result: Result) -> str:
    heads, mlps = (result.values[f"{name}_contribution"] for name in ("head", "mlp"))
    most = np.unravel_index(int(np.argmax(np.nan_to_num(heads, nan=-np.inf))), heads.shape)
    at, token = int(result.values["chosen_query"]), token_text(str(result.texts["token"]))
    return (
        f'At token {at}, all heads add {_signed(np.nansum(heads))} to the logit of "{token}", and '
        f"all MLPs {_signed(np.nansum(mlps))}; of the heads, {head_name(*map(int, most))} adds "
        f"most ({_signed(heads[most])})."
    )


def _heads(result: Result) -> str:
    noun = "share of tokens copied, as the first layer leaves them,"
    return heads_at(result, "copying_share_first_layer", noun, HALF)


def _bars(names: list[str], numbers: np.ndarray, x_title: str = ADDED) -> go.Figure:
    """Draw a bar for each name, blue above 0 and orange below."""
    figure = go.Figure(signed_bars(names, numbers.tolist(), ""))
    style(figure, x_title=x_title, y_title="", height=150 + 24 * len(names))
    with_room(figure, numbers.tolist())
    return figure


def word_names(result: Result) -> list[str]:
    """Return the tokens raised and lowered; with their ids where several look the same."""
    words = [token_text(word) for word in result.words("words")]
    ids = result.coordinates.get("word", np.arange(len(words)))
    return [
        f"{word} ({at})" if words.count(word) > 1 else word
        for word, at in zip(words, ids, strict=True)
    ]


def _by_word(result: Result) -> go.Figure:
    names = [quoted(word) for word in word_names(result)]
    what = f"{who(result)} at token {int(result.values['chosen_query'])}: what it writes"
    return set_title(_bars(names, result.values["contribution"]), what)


def _by_key(result: Result, place: int = 0) -> go.Figure:
    """Draw what the keys that a head looked at add to one of the tokens, the largest parts."""
    numbers = result.values["by_key"][place]
    keys = np.sort(np.argsort(-np.abs(numbers), kind="stable")[:MOST])
    names = [name for at, name in enumerate(token_names(result, len(numbers))) if at in keys]
    what = f"{who(result)}: the keys that {quoted(word_names(result)[place])} comes from"
    return set_title(_bars(names, numbers[keys]), what)


def _contributions(result: Result) -> go.Figure:
    heads, hover = result.values["head_contribution"], "<br>%{z:+.3g} logits"
    height = min(190 + 34 * len(heads), 900)
    figure = effect_map(heads, least=1e-6, unit="logits", hover_text=hover, height=height)
    return set_title(figure, logit_title(result))


def logit_title(result: Result) -> str:
    """Return the title of what makes a token's logit."""
    return f"What every head adds to the logit of {quoted(token_text(str(result.texts['token'])))}"


def _copying(result: Result) -> go.Figure:
    shares = result.values["copying_share_first_layer"]
    unit = result.units["copying_share_first_layer"]
    return share_map(shares, hover_text="%{z:.3f} of the tokens", title="", unit=unit)


def _scores(result: Result) -> go.Figure:
    known = [name for name in SCORES if np.isfinite(result.values[name])]
    numbers = np.array([float(result.values[name]) for name in known])
    return _bars([SCORES[name] for name in known], numbers, "1: it copies every token")


VIEWS: Views = {
    "head-writes": (
        View("contribution [word], by_key [word key], chosen_query []", says=_writes),
        View(
            "contribution [word], chosen_query []",
            _by_word,
            reading="The tokens that the head makes more likely here (blue) and less likely "
            "(orange), by what it adds to their logits directly. What later heads and MLPs make of "
            "it is not in these numbers: in the first layers they often mean little.",
        ),
        View(
            "by_key [word key]",
            _by_key,
            reading="What each key that the head looked at adds to one of these tokens: its "
            "attention times what its value writes. The bars of all keys add up to the token's "
            "bar; the twelve largest are drawn.",
        ),
    ),
    "logit-contributions": (
        View(
            "head_contribution [layer head]",
            _contributions,
            reading="What every head adds to the logit of the token, directly. Below, the same for "
            "all heads and MLPs together and for everything else; all of it adds up to the logit. "
            "Click a head, or move with the arrow keys and press Enter, to select it, and see its "
            "attention above.",
            explains="rest_contribution",
        ),
        View(
            "head_contribution [layer head], mlp_contribution [layer], chosen_query []",
            says=_made_of,
        ),
    ),
    "copying": (
        View(
            "copying_share_first_layer [layer head]",
            _copying,
            "frequent tokens that each head copies",
            says=_heads,
        ),
        View("copying_share copying_share_first_layer []", says=spoken(copies)),
        View(
            "copying_share copying_share_first_layer copying_eigenvalues []",
            _scores,
            "copying scores",
            reading="Whether the head raises the very token that it looks at, whatever it looks "
            "at. From the first layer: of most frequent tokens, as that layer leaves them in "
            "texts, the share that the head raises into its ten highest logits. From the "
            "embedding: the same for their embeddings. Eigenvalues: above 0 it raises embedded "
            "tokens, below 0 it lowers them.",
        ),
    ),
}
CLAIMS = {"copying": (copies,)}
