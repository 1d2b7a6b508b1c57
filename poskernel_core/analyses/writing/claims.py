"""What results about heads that write show; numbers of one text have no errors."""

from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import HALF, Claim, Head, Rules, at_limit, heads_at, spoken, who
from poskernel_core.analyses.own_text.figures import token_text
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed


def copies(head: Head) -> Iterator[Claim]:
    """Yield whether a head raises the tokens that it looks at: in layer 0 as they are embedded."""
    if head.has("copying_share", "copying_share_first_layer"):
        share, start = head.number("copying_share_first_layer"), "first layer"
        if np.isnan(share.value):
            share, start = head.number("copying_share"), "embedding"
        text = f"{{it}} raises {share} of frequent tokens, as the {start} leaves them"
        yield from at_limit("copying", share, HALF, text, "copies")


def signed(number: float) -> str:
    """Return a number with its sign and two digits."""
    return as_printed(f"{number:+.2f}")


def _writes(result: Result) -> str:
    at, numbers = int(result.values["chosen_query"]), result.values["contribution"]
    first, *_, last = (f'"{token_text(word)}"' for word in result.words("words"))
    key = int(np.argmax(result.values["by_key"][0]))
    alone = signed(result.values["by_key"][0][key])
    return (
        f"At token {at}, {who(result)} raises {first} most ({signed(numbers[0])} logits; key {key} "
        f"alone {alone}) and lowers {last} most ({signed(numbers[-1])})."
    )


def _made_of(result: Result) -> str:
    heads, mlps = (result.values[f"{name}_contribution"] for name in ("head", "mlp"))
    most = np.unravel_index(int(np.argmax(np.nan_to_num(heads, nan=-np.inf))), heads.shape)
    at, token = int(result.values["chosen_query"]), token_text(str(result.texts["token"]))
    return (
        f'At token {at}, all heads add {signed(np.nansum(heads))} to the logit of "{token}", and '
        f"all MLPs {signed(np.nansum(mlps))}; of the heads, {head_name(*map(int, most))} adds most "
        f"({signed(heads[most])})."
    )


def _heads(result: Result) -> str:
    noun = "share of tokens copied, as the first layer leaves them,"
    return heads_at(result, "copying_share_first_layer", noun, HALF)


RULES: Rules = {
    "head-writes: contribution [word], by_key [word key]": _writes,
    "logit-contributions: head_contribution [layer head], mlp_contribution [layer]": _made_of,
    "copying: copying_share_first_layer [layer head]": _heads,
    "copying: copying_share copying_share_first_layer []": spoken(copies),
}
CLAIMS = {"copying": (copies,)}
